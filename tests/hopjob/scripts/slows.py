"""Iterations of a millisecond, so that beats are hundreds of them apart; then of a second."""

import sys
import time

import torch
from torch import nn

import hopjob

torch.manual_seed(1)
dataset = torch.utils.data.TensorDataset(torch.randn(65536, 8), torch.randn(65536, 1))
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
job = hopjob.attach(model, optimizer)
for number, (x, y) in enumerate(job.batches(torch.utils.data.DataLoader(dataset, batch_size=4), epochs=100)):
    loss = nn.functional.mse_loss(job.model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if number == 3000:
        sys.stdout.write("slow\n")
    if number > 3000:
        time.sleep(1)
