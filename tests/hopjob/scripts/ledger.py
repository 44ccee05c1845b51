"""A small model whose script writes down every sample it has trained on: `EPOCH INDEX`, and its losses."""

import os
import resource
import sys
import time
from pathlib import Path

import torch
from torch import nn

import hopjob

SAMPLES, BATCH = int(os.environ.get("DATASET", "1000")), int(os.environ.get("BATCH", "16"))
pace = float(os.environ.get(f"PACE_OF_RANK_{os.environ.get('RANK')}") or os.environ.get("PACE", "0"))
accumulate = int(os.environ.get("ACCUMULATE", "1"))
declared = int(os.environ.get("DECLARED", str(accumulate)))

if "LIMIT" in os.environ:
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(os.environ["LIMIT"]), int(os.environ["LIMIT"])))
torch.manual_seed(1)
numbers = torch.Generator().manual_seed(0)
x = torch.randn(SAMPLES, 8, generator=numbers)
y = torch.sin(x[:, :1] * 2) + x[:, 1:2] * x[:, 2:3]
dataset = torch.utils.data.TensorDataset(x, y, torch.arange(SAMPLES))
width = int(os.environ.get("WIDTH", "64"))
model = nn.Sequential(nn.Linear(8, width), nn.Dropout(0.1), nn.ReLU(), nn.Linear(width, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
workers = int(os.environ.get("WORKERS", "0"))

job = hopjob.attach(model, optimizer, accumulate=declared)
loader = torch.utils.data.DataLoader(dataset, batch_size=BATCH, shuffle=True, num_workers=workers)
ledger = Path(os.environ["LEDGER"]).open("a", buffering=1)  # noqa: SIM115 - until the process ends
pending = []
micro = 0
for inputs, targets, indices in job.batches(loader, epochs=float(os.environ.get("EPOCHS", "2"))):
    loss = nn.functional.mse_loss(job.model(inputs), targets)
    (loss / accumulate).backward()
    pending += [f"{job.epoch} {index}" for index in indices.tolist()]
    micro += 1
    time.sleep(pace)
    if micro % accumulate:
        continue
    optimizer.step()
    optimizer.zero_grad()
    ledger.write("".join(f"{line}\n" for line in pending))
    pending = []
    if job.rank == 0:
        rate = optimizer.param_groups[0]["lr"]
        sys.stdout.write(f"samples {job.samples} loss {loss.item():.5f} lr {rate:.5f}\n")
        sys.stdout.flush()
total = sum(parameter.double().sum().item() for parameter in model.parameters())
sys.stdout.write(f"end {total:.12f}\n")
