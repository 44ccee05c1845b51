"""A regression with noise, whose script ends with its error on data that it was not trained on."""

import os
import sys

import torch
from torch import nn

import hopjob

SAMPLES = 4096
if "SEED" in os.environ:
    torch.manual_seed(int(os.environ["SEED"]))
numbers = torch.Generator().manual_seed(0)
x = torch.randn(2 * SAMPLES, 8, generator=numbers)
y = torch.sin(x[:, :1] * 2) + x[:, 1:2] * x[:, 2:3] + 0.1 * torch.randn(2 * SAMPLES, 1, generator=numbers)
model = nn.Sequential(nn.Linear(8, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

job = hopjob.attach(model, optimizer, seed=int(os.environ.get("SEED", "0")))
sys.stdout.write(f"begins {float(model[0].weight.detach().sum()):.9f}\n")
sys.stdout.flush()
loader = torch.utils.data.DataLoader(
    torch.utils.data.TensorDataset(x[:SAMPLES], y[:SAMPLES]), batch_size=32, shuffle=True
)
for inputs, targets in job.batches(loader, epochs=1):
    optimizer.zero_grad()
    nn.functional.mse_loss(job.model(inputs), targets).backward()
    optimizer.step()
model.eval()
with torch.no_grad():
    sys.stdout.write(f"held out {nn.functional.mse_loss(model(x[SAMPLES:]), y[SAMPLES:]).item():.6f}\n")
