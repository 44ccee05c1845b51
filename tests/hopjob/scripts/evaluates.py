"""Evaluates for long between two updates: all ranks, or rank 0 while the others wait in an exchange."""

import os
import sys
import time

import torch
from torch import nn

import hopjob

torch.manual_seed(1)
dataset = torch.utils.data.TensorDataset(torch.randn(4096, 8), torch.randn(4096, 1))
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
job = hopjob.attach(model, optimizer)
for number, (x, y) in enumerate(job.batches(torch.utils.data.DataLoader(dataset, batch_size=8), epochs=100)):
    loss = nn.functional.mse_loss(job.model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    time.sleep(0.005)
    if number == 40 and (job.rank == 0 or os.environ["EVALUATES"] == "all"):
        sys.stdout.write("evaluates\n")
        for _ in range(6000):
            job.check()
            time.sleep(0.1)
