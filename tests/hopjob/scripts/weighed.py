"""A model in double precision, trained for a few updates; rank 0 writes its parameters down, all digits."""

import json
import os
import sys

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import hopjob

if os.environ.get("UNTOLD"):  # as in a torch that has given up this name, which is its own
    del torch._C._current_graph_task_id

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


norms = {"batch": nn.BatchNorm1d, "synced": nn.SyncBatchNorm}
norm = [norms[os.environ["NORM"]](16)] if "NORM" in os.environ else []
layers = nn.Linear(6, 16), *norm, nn.Tanh(), nn.Linear(16, 1)
checkpointing = os.environ.get("CHECKPOINTING")
model = Segments(*layers, reentrant=checkpointing == "reentrant") if checkpointing else nn.Sequential(*layers)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
accumulate = int(os.environ.get("ACCUMULATE", "1"))
penalty = float(os.environ.get("PENALTY", "0"))

schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.8)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0) if os.environ.get("SCALED") else None

more = {"scaler": scaler} if scaler else {}
job = hopjob.attach(model, optimizer, schedule, accumulate=accumulate, more=more)
data = torch.utils.data.TensorDataset(x, y)
loader = torch.utils.data.DataLoader(data, batch_size=int(os.environ["BATCH"]), shuffle=True)
sizes = []
for number, (inputs, targets) in enumerate(job.batches(loader, epochs=2), start=1):
    loss = nn.functional.mse_loss(job.model(inputs), targets)
    if penalty:
        loss = loss + penalty * sum((one**2).sum() for one in model.parameters())
    loss = loss / accumulate
    if os.environ.get("CLEARED") == "before" and number % accumulate == 1 % accumulate:
        optimizer.zero_grad()
    if scaler:
        loss = scaler.scale(loss)
    if os.environ.get("GIVEN"):
        loss.reshape(1).backward(torch.ones(1))
    else:
        loss.backward()
    sizes.append(len(inputs))
    if number % accumulate == 0 and not os.environ.get("NO_STEP"):
        if scaler:
            scaler.unscale_(optimizer)
        if os.environ.get("CLIPPED"):
            nn.utils.clip_grad_norm_(model.parameters(), float(os.environ["CLIPPED"]))
        if scaler:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
        schedule.step()
        if os.environ.get("CLEARED") != "before":
            optimizer.zero_grad()
parameters = [number for one in model.parameters() for number in one.flatten().tolist()]
buffers = [number for one in model.buffers() for number in one.flatten().tolist()]
end = {"parameters": parameters, "buffers": buffers, "sizes": sorted(set(sizes)), "batches": len(sizes)}
sys.stdout.write("end " + json.dumps(end) + "\n")
