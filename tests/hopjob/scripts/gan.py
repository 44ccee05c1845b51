"""Lightning trains two models, each with its own optimizer and schedule, on data that a collator disturbs."""

import os
import sys
import time
import warnings

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, default_collate

from hopjob.lightning import LightningCallback

warnings.filterwarnings("ignore")


class Two(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.first, self.second = nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.1))

    def training_step(self, batch: list[torch.Tensor], _: int) -> None:
        for net, optimizer in zip((self.first, self.second), self.optimizers(), strict=True):
            optimizer.zero_grad()
            self.manual_backward(net(batch[0]).pow(2).mean())
            optimizer.step()
        for schedule in self.lr_schedulers():
            schedule.step()
        rates = [optimizer.param_groups[0]["lr"] for optimizer in self.optimizers()]
        sys.stdout.write(f"rates {rates}\n")
        sys.stdout.flush()
        time.sleep(float(os.environ.get("PACE", "0")))

    def configure_optimizers(self) -> tuple[list[torch.optim.Optimizer], list[object]]:
        made = [torch.optim.Adam(net.parameters(), lr=rate) for net, rate in self.nets()]
        return made, [torch.optim.lr_scheduler.StepLR(one, 20, 0.5) for one in made]

    def nets(self) -> list[tuple[nn.Module, float]]:
        return [(self.first, 0.01), (self.second, 0.02)]


def disturbed(items: list[tuple[torch.Tensor]]) -> list[torch.Tensor]:
    [x] = default_collate(items)
    return [x + 0.1 * torch.rand_like(x)]


torch.manual_seed(0)
data = TensorDataset(torch.randn(400, 2))
callback = LightningCallback()
quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
trainer = lightning.Trainer(
    max_epochs=2, callbacks=[callback], enable_checkpointing=False, accelerator="cpu", **quiet
)
model = Two()
trainer.fit(model, DataLoader(data, batch_size=8, shuffle=True, collate_fn=disturbed))
sys.stdout.write(f"end {[one.tolist() for one in model.parameters()]}\n")
