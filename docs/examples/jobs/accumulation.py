"""Gradients of four batches make one update: hopyard counts updates, and stops between two."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import hopjob

BATCHES = 4

torch.manual_seed(1)
x = torch.randn(4096, 16, generator=torch.Generator().manual_seed(0))
y = torch.sin(x[:, :1] * 2) + x[:, 1:2] * x[:, 2:3]
model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
job = hopjob.attach(model, optimizer, accumulate=BATCHES)  # gradients are exchanged once an update

losses = []
loader = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True)
for number, (inputs, expected) in enumerate(job.batches(loader, epochs=6), start=1):
    loss = nn.functional.mse_loss(job.model(inputs), expected)
    (loss / BATCHES).backward()
    losses.append(loss.item())
    if number % BATCHES == 0:
        optimizer.step()
        optimizer.zero_grad()
    if job.ends_epoch and job.rank == 0:
        print(f"epoch {job.epoch} samples {job.samples} loss {sum(losses) / len(losses):.4f}")
        losses.clear()
