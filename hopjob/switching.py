"""A job that records when it computes: `python -m hopjob.switching MODEL FILE`, with a model of the demo.

FILE gets a line for each update with two times of the machine's clock, in seconds: when the process had both
the batch and the GPU, and when the backward pass was over. So lines of several processes can be compared.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import hopjob
from hopjob.demo import BATCH, MODELS
from hopjob.turns import Turns


def train(name: str, path: Path) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(1)
    over: list[float] = []
    plain = Turns.give_back

    def give_back(turns: Turns) -> None:
        """Give the turn back, after which another job may compute."""
        over.append(_now())
        plain(turns)

    watched: Any = Turns
    watched.give_back = give_back  # replaced from outside, so that the training code stays unchanged
    model, x, y = MODELS[name]()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.002)
    job = hopjob.attach(model, optimizer)
    loader = DataLoader(TensorDataset(x, y), batch_size=BATCH, shuffle=True)
    with path.open("a", buffering=1, encoding="ascii") as file:
        for given, wanted in job.batches(loader):
            begin = time.monotonic()
            loss = functional.cross_entropy(job.model(given), wanted)
            optimizer.zero_grad()
            loss.backward()
            end = over.pop() if over else _now()
            optimizer.step()
            file.write(f"{begin} {end}\n")


def _now() -> float:
    """The time, once the GPU has finished its queued work."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return time.monotonic()


if __name__ == "__main__":
    name, path = (*sys.argv[1:], "", "")[:2]
    if name not in MODELS or not path:
        sys.exit(f"usage: python -m hopjob.switching {' | '.join(MODELS)} FILE")
    train(name, Path(path))
