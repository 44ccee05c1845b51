"""A model in double precision, trained for a few updates; rank 0 writes its parameters down, all digits."""

import json
import os
import sys

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import hopjob

torch.manual_seed(1)
torch.set_default_dtype(torch.float64)
numbers = torch.Generator().manual_seed(0)
x = torch.randn(120, 6, generator=numbers)
y = torch.sin(x.sum(dim=1, keepdim=True))


class Segments(nn.Sequential):
    """Computed again in the backward pass, each layer by itself."""

    def __init__(self, *layers: nn.Module, reentrant: bool) -> None:
        super().__init__(*layers)
        self.reentrant = reentrant

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        between = inputs.requires_grad_()
        for layer in self:
            between = checkpoint(layer, between, use_reentrant=self.reentrant)
        return between


layers = nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1)
checkpointing = os.environ.get("CHECKPOINTING")
model = Segments(*layers, reentrant=checkpointing == "reentrant") if checkpointing else nn.Sequential(*layers)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
accumulate = int(os.environ.get("ACCUMULATE", "1"))
penalty = float(os.environ.get("PENALTY", "0"))

job = hopjob.attach(model, optimizer, accumulate=accumulate)
data = torch.utils.data.TensorDataset(x, y)
loader = torch.utils.data.DataLoader(data, batch_size=int(os.environ["BATCH"]), shuffle=True)
sizes = []
for number, (inputs, targets) in enumerate(job.batches(loader, epochs=2), start=1):
    loss = nn.functional.mse_loss(job.model(inputs), targets)
    if penalty:
        loss = loss + penalty * sum((one**2).sum() for one in model.parameters())
    if os.environ.get("GIVEN"):
        (loss / accumulate).reshape(1).backward(torch.ones(1))
    else:
        (loss / accumulate).backward()
    sizes.append(len(inputs))
    if number % accumulate == 0:
        optimizer.step()
        optimizer.zero_grad()
parameters = [number for one in model.parameters() for number in one.flatten().tolist()]
sys.stdout.write("end " + json.dumps({"parameters": parameters, "sizes": sorted(set(sizes))}) + "\n")
