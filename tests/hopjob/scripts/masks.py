"""Hugging Face's Trainer with dropout, and a collator that masks at random."""

import os
import sys
import time

import torch
from torch import nn
from transformers import Trainer, TrainingArguments

from hopjob.huggingface import HuggingFaceCallback


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Dropout(0.1), nn.Linear(4, 4))

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        time.sleep(float(os.environ.get("PACE", "0")))
        found = self.inner(x)
        return {"loss": (found - labels).pow(2).mean(), "logits": found}


def masked(items: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    x = torch.stack([item["x"] for item in items])
    return {"x": x * (torch.rand_like(x) > 0.3), "labels": x}


torch.manual_seed(0)
data = [{"x": torch.randn(4)} for _ in range(400)]
model = Model()
arguments = TrainingArguments(
    output_dir="unused",
    num_train_epochs=2,
    per_device_train_batch_size=8,
    learning_rate=0.01,
    lr_scheduler_type="constant",
    save_strategy="no",
    logging_strategy="no",
    report_to=[],
    disable_tqdm=True,
    use_cpu=True,
    remove_unused_columns=False,
)
Trainer(
    model=model, args=arguments, train_dataset=data, data_collator=masked, callbacks=[HuggingFaceCallback()]
).train()
sys.stdout.write(f"end {[one.tolist() for one in model.parameters()]}\n")
