"""A model whose pace is the GPU type's: each layer sleeps, and its gradients are really exchanged.

It learns y = 8·x + noise. Every step is written down in LEDGER: where it ran, its loss, and the samples of
this rank, so that a test can say what was trained, and how often.
"""

import json
import os
import time
from itertools import pairwise
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset

import hopjob

PACE_S = {"fast": 0.010, "slow": 0.025}
pace_s = PACE_S.get(os.environ.get("HOPJOB_GPU_TYPE", ""), 0.010) * float(os.environ.get("SLOWER", "1"))
LAYERS = int(os.environ.get("LAYERS", "3"))
WIDTH = int(os.environ.get("WIDTH", "64"))
SAMPLES = int(os.environ.get("EPOCH", "2048"))
BATCH = int(os.environ.get("BATCH", "16"))


def pace_of_batch(x: torch.Tensor) -> float:
    """With PER_SAMPLE, half as many samples take half as long."""
    return len(x) / BATCH if "PER_SAMPLE" in os.environ else 1.0


class Pace(torch.autograd.Function):
    @staticmethod
    def forward(_: object, x: torch.Tensor) -> torch.Tensor:
        time.sleep(pace_s * pace_of_batch(x))
        return x.view_as(x)

    @staticmethod
    def backward(_: object, gradient: torch.Tensor) -> torch.Tensor:
        time.sleep(2 * pace_s * pace_of_batch(gradient))
        return gradient


class Layer(torch.nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(inputs, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Pace.apply(self.linear(x))


class Line(Dataset):
    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(7)
        self.x = torch.randn(SAMPLES, 8, generator=generator)
        self.y = 8 * self.x.sum(1, keepdim=True) + torch.randn(SAMPLES, 1, generator=generator)

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor, int]:
        return self.x[index], self.y[index], index


def loss_now() -> float:
    """Loss over the first 256 samples, whatever is trained now: a figure without the noise of batches."""
    with torch.no_grad():
        x = line.x[:256]
        for layer in model:
            x = layer.linear(x)
        return torch.nn.functional.mse_loss(x, line.y[:256]).item()


torch.set_num_threads(1)
torch.manual_seed(1)
widths = [8] + [WIDTH] * (LAYERS - 1) + [1]
model = torch.nn.Sequential(*[Layer(inputs, outputs) for inputs, outputs in pairwise(widths)])
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
job = hopjob.attach(model, optimizer)
line = Line()
loader = DataLoader(line, batch_size=BATCH, shuffle=True)
placement = os.environ.get("HOPJOB_PLACEMENT", "alone")
folder = Path(os.environ["LEDGER"])
folder.mkdir(parents=True, exist_ok=True)

measuring = "HOPJOB_PROFILE" in os.environ
with (folder / f"{placement}-{job.rank}.jsonl").open("a", buffering=1) as ledger:
    for x, y, indices in job.batches(loader):
        before, known = job.samples, loss_now()
        loss = torch.nn.functional.mse_loss(job.model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step = {
            "at": time.time(),
            "samples": before,
            "world": job.world,
            "loss": known,
            "indices": indices.tolist(),
            "placement": placement,
            "rank": job.rank,
        }
        if not measuring:
            ledger.write(json.dumps(step) + "\n")
        if job.rank == 0 and not measuring:
            print(f"samples {before} loss {known:.4f} world {job.world}", flush=True)
