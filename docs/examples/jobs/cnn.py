"""A convolutional network that tells shapes apart: an ordinary script, and three lines of hopjob's."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import hopjob


class Shapes(Dataset):
    """Squares, crosses and bars of some size somewhere in a noisy picture of 16 × 16."""

    def __len__(self):
        return 3000

    def __getitem__(self, index):
        numbers = torch.Generator().manual_seed(index)
        picture = torch.randn(1, 16, 16, generator=numbers) / 4
        row, column = torch.randint(2, 9, (2,), generator=numbers).tolist()
        kind = index % 3
        if kind in (0, 1):
            picture[0, row + 2, column : column + 5] += 1
        if kind in (0, 2):
            picture[0, row : row + 5, column + 2] += 1
        return picture, kind


arguments = argparse.ArgumentParser()
arguments.add_argument("--epochs", type=float, default=2)
options = arguments.parse_args()

torch.manual_seed(1)
model = nn.Sequential(
    nn.Conv2d(1, 8, 5, padding=2),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(8, 16, 3, padding=1),
    nn.ReLU(),
    nn.AdaptiveMaxPool2d(1),
    nn.Flatten(),
    nn.Linear(16, 3),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
job = hopjob.attach(model, optimizer)

loader = DataLoader(Shapes(), batch_size=32, shuffle=True)
for pictures, kinds in job.batches(loader, epochs=options.epochs):
    loss = nn.functional.cross_entropy(job.model(pictures), kinds)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if job.ends_epoch and job.rank == 0:
        print(f"epoch {job.epoch} samples {job.samples} loss {loss.item():.4f}")
