"""A model that computes as much as it gets of a CPU, and nothing else."""

import torch
from torch.utils.data import DataLoader, TensorDataset

import hopjob

torch.set_num_threads(1)
torch.manual_seed(1)
model = torch.nn.Sequential(
    torch.nn.Linear(256, 512),
    torch.nn.ReLU(),
    torch.nn.Linear(512, 512),
    torch.nn.ReLU(),
    torch.nn.Linear(512, 1),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
job = hopjob.attach(model, optimizer)
data = TensorDataset(torch.randn(8_192, 256), torch.randn(8_192, 1))
for x, y in job.batches(DataLoader(data, batch_size=64)):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(job.model(x), y).backward()
    optimizer.step()
