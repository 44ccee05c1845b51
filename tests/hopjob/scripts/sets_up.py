"""A Lightning module makes its data set in `setup`, and its loader (`LOADER`) in `train_dataloader`."""

import os
import sys
import warnings
from collections.abc import Iterator

import lightning
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from hopjob.lightning import LightningCallback

warnings.filterwarnings("ignore")


class Endless(IterableDataset[list[torch.Tensor]]):
    def __iter__(self) -> Iterator[list[torch.Tensor]]:
        while True:
            yield [torch.zeros(2)]


class Module(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(2, 1)

    def setup(self, stage: str) -> None:
        assert stage == "fit"
        self.data = TensorDataset(torch.randn(64, 2))

    def train_dataloader(self) -> object:
        plain = DataLoader(self.data, batch_size=8)
        return {
            "one": plain,
            "two": {"a": plain, "b": plain},
            "endless": DataLoader(Endless(), batch_size=8),
            "unbatched": DataLoader(self.data, batch_size=None),
            "sampled": DataLoader(self.data, batch_sampler=[[0, 1], [2, 3]]),
        }[os.environ["LOADER"]]

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        loss: torch.Tensor = self.inner(batch[0]).pow(2).mean()
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
trainer = lightning.Trainer(
    max_epochs=1, callbacks=[LightningCallback()], enable_checkpointing=False, accelerator="cpu", **quiet
)
trainer.fit(Module())
sys.stdout.write(f"trained in {trainer.global_step} updates\n")
