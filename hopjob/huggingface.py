"""Hugging Face's Trainer: `Trainer(..., callbacks=[HuggingFaceCallback()])`, and the job is elastic.

The Trainer's own checkpoints are not needed (`save_strategy="no"`). Its loop always ends after
`num_train_epochs`; if a number of samples is ordered, training ends earlier once it has reached them. After a
restart the schedule of learning rates goes on at the share of the samples that is done.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import TrainerCallback

from hopjob.trainers import Stream, TrainerSession, measuring, scaler_of

Given = Any
"""transformers' training arguments, trainer state and trainer control"""


class HuggingFaceCallback(TrainerCallback):
    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._session: TrainerSession | None = None
        self._stream: Stream | None = None

    def on_train_begin(self, args: Given, state: Given, control: Given, **made: Any) -> None:  # noqa: ANN401, ARG002
        if measuring():
            return
        loader, schedule = made["train_dataloader"], made["lr_scheduler"]
        optimizer = getattr(made["optimizer"], "optimizer", made["optimizer"])
        schedule = getattr(schedule, "scheduler", schedule)
        self._stream = Stream(loader, seed=self._seed)
        more = scaler_of(made["optimizer"])
        self._session = TrainerSession(made["model"], optimizer, schedule, seed=self._seed, more=more)
        self._stream.begin(self._session.progress, length=len(loader))
        loader.base_dataloader = self._stream
        done = self._session.progress.trained / self._session.total
        if done and isinstance(schedule, torch.optim.lr_scheduler.LambdaLR):
            schedule.last_epoch = round(done * state.max_steps) - 1
            schedule.step()

    def on_substep_end(self, args: Given, state: Given, control: Given, **made: Any) -> None:  # noqa: ANN401, ARG002
        if self._stream is not None:
            self._stream.consumed()

    def on_step_end(self, args: Given, state: Given, control: Given, **made: Any) -> None:  # noqa: ANN401, ARG002
        if self._stream is not None and self._session is not None:
            self._stream.consumed()
            control.should_training_stop |= self._session.updated()

    def on_prediction_step(self, args: Given, state: Given, control: Given, **made: Any) -> None:  # noqa: ANN401, ARG002
        if self._session is not None:
            self._session.check()

    def on_train_end(self, args: Given, state: Given, control: Given, **made: Any) -> None:  # noqa: ANN401, ARG002
        if self._session is not None:
            self._session.end()
