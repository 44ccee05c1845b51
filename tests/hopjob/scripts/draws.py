"""Prints what is drawn: the samples held out after `attach`, and workers' augmentations by batch."""

import os
import random
import sys
import time

import torch
from torch import nn
from torch.optim.lr_scheduler import LinearLR, MultiStepLR, SequentialLR
from torch.utils.data import DataLoader, Dataset, random_split

import hopjob


class Augmented(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    def __len__(self) -> int:
        return 500

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.tensor([float(index)]), torch.rand(1) + random.random()


torch.manual_seed(1)
model = nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
parts = [LinearLR(optimizer, 0.1, total_iters=80), MultiStepLR(optimizer, [10, 15])]
schedule = SequentialLR(optimizer, parts, milestones=[80])
job = hopjob.attach(model, optimizer, schedule)
training, held_out = random_split(Augmented(), [400, 100])
sys.stdout.write(f"held out {sorted(held_out.indices)}\n")
loader = DataLoader(training, batch_size=8, num_workers=2, persistent_workers=True, shuffle=True)
for index, drawn in job.batches(loader, epochs=2):
    rate = optimizer.param_groups[0]["lr"]
    indices = index.int().flatten().tolist()
    sys.stdout.write(f"at {job.samples}: {indices} {drawn.flatten().tolist()} {rate:.4g}\n")
    sys.stdout.flush()
    nn.functional.mse_loss(job.model(index), drawn).backward()
    optimizer.step()
    optimizer.zero_grad()
    schedule.step()
    time.sleep(float(os.environ.get("PACE", "0")))
