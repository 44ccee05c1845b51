"""A classifier with Lightning: one callback makes it elastic."""

import os

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from hopjob.lightning import LightningCallback


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2)
        )

    def training_step(self, batch, index):
        points, sides = batch
        loss = nn.functional.cross_entropy(self.layers(points), sides)
        if index % 20 == 0 and self.global_rank == 0:
            print(f"loss {loss.item():.4f}")
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.005)


def spirals(count):
    """Two of them, wound into each other."""
    numbers = torch.Generator().manual_seed(0)
    sides = torch.randint(0, 2, (count,), generator=numbers)
    way = torch.rand(count, generator=numbers) * 2 + 0.2
    angle = 4 * way + sides * torch.pi
    return TensorDataset(torch.stack([way * angle.cos(), way * angle.sin()], 1), sides)


lightning.seed_everything(1)
local, ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1")), int(os.environ.get("WORLD_SIZE", "1"))
trainer = lightning.Trainer(
    max_epochs=20,
    devices=local,
    num_nodes=ranks // local,
    strategy="ddp" if ranks > 1 else "auto",
    accelerator="auto",
    callbacks=[LightningCallback()],
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    logger=False,
)
trainer.fit(Classifier(), DataLoader(spirals(2048), batch_size=32, shuffle=True))
