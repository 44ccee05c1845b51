"""Trains a while; then the rank that RAISES names has an error of its own."""

import os
import time

import torch
from torch import nn

import hopjob


def train() -> None:
    torch.manual_seed(1)
    dataset = torch.utils.data.TensorDataset(torch.randn(4096, 8), torch.randn(4096, 1))
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    job = hopjob.attach(model, optimizer)
    loader = torch.utils.data.DataLoader(dataset, batch_size=8)
    for number, (x, y) in enumerate(job.batches(loader, epochs=100)):
        loss = nn.functional.mse_loss(job.model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.01)
        if number == 50 and job.rank == int(os.environ["RAISES"]):
            raise ValueError("this loss is no loss")


train()
