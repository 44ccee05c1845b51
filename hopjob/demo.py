"""Four small training jobs, to see the system at work: `python -m hopjob.demo MODEL`.

They really train, on data that this module generates: shapes, spirals, sums, waves. Pauses between the blocks
of a model make CPU slots of unlike types unlike in speed: a pause is as long as `PAUSE_S` says for the GPU
type, and twice as long in the backward pass. A pause takes no CPU, so many ranks fit on a small machine.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import hopjob

PAUSE_S = {"swift": 0.012, "steady": 0.030}
SAMPLES = 4_096
BATCH = 32
PRINTED_EVERY = 20
"""number of updates between two printed lines"""


class Pause(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: torch.Tensor, seconds: float) -> torch.Tensor:  # noqa: ANN401
        context.seconds = seconds
        time.sleep(seconds)
        return x.view_as(x)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:  # noqa: ANN401
        time.sleep(2 * context.seconds)
        return gradient, None


class Paced(nn.Sequential):
    """Blocks with a pause between two, while gradients are recorded."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pause_s = PAUSE_S.get(os.environ.get("HOPJOB_GPU_TYPE", ""), 0.0)
        for block in self:
            x = block(Pause.apply(x, pause_s) if x.requires_grad else x)
        return x


class TokenEmbedding(nn.Module):
    """An embedding of tokens and of their positions."""

    def __init__(self, words: int, places: int, width: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(places, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.words(x) + self.places(torch.arange(x.shape[1]))


class Last(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, -1]


def shapes() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """A convolutional network says which of four shapes is in a noisy picture."""
    kind = torch.arange(SAMPLES) % 4
    x = 0.3 * torch.randn(SAMPLES, 1, 16, 16)
    row, column = torch.meshgrid(torch.arange(16), torch.arange(16), indexing="ij")
    band, bar = (row // 4).eq(2), (column // 4).eq(1)
    disc, stroke = ((row - 8) ** 2 + (column - 8) ** 2).lt(25), (row - column).abs().lt(2)
    x += torch.stack([disc, stroke, band, bar])[kind].unsqueeze(1).float()
    first = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
    second = nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
    return Paced(first, second, nn.Linear(256, 4)), x, kind


def spirals() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """A network of three layers classifies points by the arm of the spiral that they are on."""
    arm, radius = torch.arange(SAMPLES) % 3, torch.rand(SAMPLES)
    angle = 5 * radius + arm * 2 * math.pi / 3 + 0.1 * torch.randn(SAMPLES)
    x = torch.stack([radius * angle.cos(), radius * angle.sin()], 1)
    layers = (nn.Linear(2, 64), nn.Sequential(nn.ReLU(), nn.Linear(64, 64)))
    return Paced(*layers, nn.Sequential(nn.ReLU(), nn.Linear(64, 3))), x, arm


def sums() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """A transformer finds the last digit of the sum of two digits."""
    digits = torch.randint(0, 10, (SAMPLES, 2))
    x = torch.cat([digits, torch.full((SAMPLES, 1), 10)], 1)
    layers = [nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True) for _ in range(2)]
    model = Paced(TokenEmbedding(11, 3, 32), *layers, nn.Sequential(Last(), nn.Linear(32, 10)))
    return model, x, digits.sum(1) % 10


def waves() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """A recurrent network says which of four pitches a noisy wave has."""
    pitch = torch.arange(SAMPLES) % 4
    at = torch.arange(32).float() + 32 * torch.rand(SAMPLES, 1)
    x = torch.sin(at * (0.2 + 0.15 * pitch.float()).unsqueeze(1)) + 0.3 * torch.randn(SAMPLES, 32)

    class Read(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cells = nn.GRU(1, 32, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.cells(x.unsqueeze(2))[0][:, -1]

    return Paced(Read(), nn.Linear(32, 32), nn.Sequential(nn.ReLU(), nn.Linear(32, 4))), x, pitch


Made = Callable[[], "tuple[nn.Module, torch.Tensor, torch.Tensor]"]
MODELS: dict[str, Made] = {"shapes": shapes, "spirals": spirals, "sums": sums, "waves": waves}


def train(name: str) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model, x, y = MODELS[name]()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.002)
    job = hopjob.attach(model, optimizer)
    loader = DataLoader(TensorDataset(x, y), batch_size=BATCH, shuffle=True)
    for updates, (given, wanted) in enumerate(job.batches(loader)):
        answer = job.model(given)
        loss = functional.cross_entropy(answer, wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if job.rank == 0 and updates % PRINTED_EVERY == 0:
            right = (answer.argmax(1) == wanted).float().mean().item()
            sys.stdout.write(
                f"samples {job.samples}, ranks {job.world}: loss {loss.item():.3f}, right {right:.0%}\n"
            )
            sys.stdout.flush()


if __name__ == "__main__":
    if sys.argv[1:2] == [] or sys.argv[1] not in MODELS:
        sys.exit(f"usage: python -m hopjob.demo {' | '.join(MODELS)}")
    train(sys.argv[1])
