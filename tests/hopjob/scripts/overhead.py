"""The same training with and without `batches`, in blocks taking turns; prints the ratio of CPU seconds."""

import itertools
import time
from collections.abc import Iterator
from statistics import median

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import hopjob

PAIRS, BLOCK = 12, 20

torch.manual_seed(1)
model = nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
job = hopjob.attach(model, optimizer)
loader = DataLoader(TensorDataset(torch.randn(128_000, 64), torch.randn(128_000, 1)), batch_size=64)
ours = job.batches(loader, epochs=1000)
theirs = itertools.chain.from_iterable(itertools.repeat(loader))


def block(batches: Iterator[list[torch.Tensor]]) -> float:
    begin = time.process_time()
    for x, y in batches:
        loss = nn.functional.mse_loss(job.model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return time.process_time() - begin


ratios = []
for number in range(PAIRS):
    if number % 2:
        with_us = block(itertools.islice(ours, BLOCK))
        without = block(itertools.islice(theirs, BLOCK))
    else:
        without = block(itertools.islice(theirs, BLOCK))
        with_us = block(itertools.islice(ours, BLOCK))
    ratios.append(with_us / without)
print(f"ratio {median(ratios[2:]):.4f} iteration {without / BLOCK * 1e3:.2f} ms")
