"""Four families of models on made-up data, as a job of `real_path.py` trains them, in the job's interpreter.

`families.py FAMILY LOADER [--small] [--overhead]`: weights are random, the shapes those of the papers. A GPU
type whose name ends in `-bf16` computes so, any other in strict 32 bit: two types on one card.
"""

import itertools
import os
import sys
import time
from collections.abc import Callable, Iterator
from statistics import median

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

import hopjob

SMALL = "--small" in sys.argv
SLOW_BATCH = 10
"""of the loader `two-mode`, every so many-th"""
LOADING_S = {"compute": (0.0, 0.0), "data": (0.12, 0.12), "two-mode": (0.0, 0.15)}
"""of CPU work for a batch: usually, and for a slow one"""
Batch = tuple[Tensor, Tensor]
PRINTED_EVERY = 20
"""updates"""
BLOCK, PAIRS = (5, 6) if SMALL else (20, 20)
VOCABULARY = 1_000 if SMALL else 50_257


class Bottleneck(nn.Module):
    """He et al., 2016, figure 5 right, projection where the shape changes."""

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Conv2d(before, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()),
            *(nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()),
            *(nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)),
        )
        same = before == 4 * width and stride == 1
        self.past = nn.Identity() if same else nn.Conv2d(before, 4 * width, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.body(x) + self.past(x))


def resnet() -> nn.Module:
    width, depths = (8, (1, 1, 1, 1)) if SMALL else (64, (3, 4, 6, 3))
    before = width
    layers: list[nn.Module] = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    layers.append(nn.MaxPool2d(3, 2, 1))
    for stage, depth in enumerate(depths):
        for block in range(depth):
            layers.append(Bottleneck(before, width << stage, 2 if stage and not block else 1))
            before = 4 * (width << stage)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 1000))


class Transformer(nn.Module):
    """Twelve layers of width 768 over pieces of a picture or words; `ahead`: each sees those before it."""

    def __init__(self, pieces: int, answers: int, *, words: bool, ahead: bool = False) -> None:
        super().__init__()
        width, depth, heads = (32, 2, 2) if SMALL else (768, 12, 12)
        self.pieces = nn.Embedding(VOCABULARY, width) if words else nn.Linear(3 * 16 * 16, width)
        self.places = nn.Parameter(0.02 * torch.randn(pieces, width))
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.answer = nn.Linear(width, answers)
        self.words, self.ahead = words, ahead

    def forward(self, x: Tensor) -> Tensor:
        if not self.words:
            x = functional.unfold(x, 16, stride=16).transpose(1, 2)
        count = x.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(count, x.device) if self.ahead else None
        x = self.layers(self.pieces(x) + self.places[:count], mask=mask, is_causal=self.ahead)
        return self.answer(x if self.words else x.mean(1))


SIDE = 32 if SMALL else 224
LENGTHS = {"gpt2": 16 if SMALL else 512, "bert": 16 if SMALL else 128}
MODELS: dict[str, Callable[[], nn.Module]] = {
    "resnet50": resnet,
    "vit": lambda: Transformer((SIDE // 16) ** 2, 1000, words=False),
    "gpt2": lambda: Transformer(LENGTHS["gpt2"], VOCABULARY, words=True, ahead=True),
    "bert": lambda: Transformer(LENGTHS["bert"], VOCABULARY, words=True),
}
BATCHES = {"resnet50": 64, "vit": 32, "gpt2": 4, "bert": 32}


class MadeUp(Dataset[tuple[Tensor, Tensor]]):
    def __init__(self, family: str) -> None:
        length = LENGTHS.get(family)
        self.x = torch.randn(64, 3, SIDE, SIDE) if length is None else torch.randint(VOCABULARY, (64, length))
        self.y = torch.randint(1000, (64,)) if length is None else torch.randint(VOCABULARY, (64, length))

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.x[index % 64], self.y[index % 64]


class Loading:
    """Puts a batch together, after as much CPU work as the kind of loader has."""

    def __init__(self, kind: str) -> None:
        self.usual_s, self.slow_s = LOADING_S[kind]
        self.count = 0

    def __call__(self, rows: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        self.count += 1
        until = time.perf_counter() + (self.usual_s if self.count % SLOW_BATCH else self.slow_s)
        while time.perf_counter() < until:
            sum(range(1000))
        return torch.stack([x for x, _ in rows]), torch.stack([y for _, y in rows])


def main(family: str, kind: str) -> None:
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    if not torch.cuda.is_available():
        torch.set_num_threads(1)
    model = MODELS[family]()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    job = hopjob.attach(model, optimizer, backend="gloo")
    half = os.environ.get("HOPJOB_GPU_TYPE", "").endswith("-bf16")

    def step(batch: Batch) -> Tensor:
        x, y = (part.to(job.device) for part in batch)  # those of the plain loader are not there yet
        with torch.autocast(job.device.type, torch.bfloat16, enabled=half):
            loss = functional.cross_entropy(job.model(x).flatten(0, -2), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    loader = DataLoader(MadeUp(family), BATCHES[family] // (8 if SMALL else 1) or 1, collate_fn=Loading(kind))
    ours = iter(job.batches(loader, epochs=1_000_000))
    if "--overhead" in sys.argv:
        print(f"ratio {overhead(step, ours, loader):.5f}", flush=True)
    for updates, batch in enumerate(ours):
        loss = step(batch)
        if updates % PRINTED_EVERY == 0 and job.rank == 0:
            print(f"samples {job.samples}, ranks {job.world}: loss {loss.item():.4f}", flush=True)


def overhead(step: Callable[[Batch], Tensor], ours: Iterator[Batch], loader: DataLoader[Batch]) -> float:
    """Seconds of an update with the plug-in to those without: the median of blocks that take turns."""
    theirs = itertools.chain.from_iterable(itertools.repeat(loader))

    def block(batches: Iterator[Batch]) -> float:
        begin = time.perf_counter()
        for batch in itertools.islice(batches, BLOCK):
            step(batch)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return time.perf_counter() - begin

    block(theirs), block(ours)
    pairs = [
        (block(ours), block(theirs)) if n % 2 else (block(theirs), block(ours))[::-1] for n in range(PAIRS)
    ]
    return median(with_us / without for with_us, without in pairs)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
