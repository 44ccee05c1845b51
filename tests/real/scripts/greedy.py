"""The paced script's job with an appetite: it takes 50 MB a step and gives nothing back."""

import torch
from torch.utils.data import DataLoader, TensorDataset

import hopjob

model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
job = hopjob.attach(model, optimizer)
data = TensorDataset(torch.randn(65_536, 8), torch.randn(65_536, 1))
kept = []
for x, y in job.batches(DataLoader(data, batch_size=16)):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(job.model(x), y).backward()
    optimizer.step()
    if job.samples > 16 * 60:  # after a measurement would be over
        kept.append(torch.ones(50_000_000 // 4))
