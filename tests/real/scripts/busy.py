"""A model whose batch costs a set CPU time, however fast the CPU is in that moment; it takes what it gets.

Caches and the other half of a core are shared with whatever else runs on the machine: the same arithmetic
costs more CPU time beside it, and a profile taken in a quiet moment would not hold in a loud one.
"""

import time

import torch
from torch.utils.data import DataLoader, TensorDataset

import hopjob

CPU_S_PER_BATCH = 0.005

torch.set_num_threads(1)
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
job = hopjob.attach(model, optimizer)
data = TensorDataset(torch.randn(8_192, 64), torch.randn(8_192, 1))
end_s = time.process_time()
for x, y in job.batches(DataLoader(data, batch_size=64)):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(job.model(x), y).backward()
    optimizer.step()
    end_s = max(end_s + CPU_S_PER_BATCH, time.process_time())
    while time.process_time() < end_s:
        pass
