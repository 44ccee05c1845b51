"""Lightning: `Trainer(callbacks=[LightningCallback()], ...)`, and the job is elastic.

Lightning's own checkpoints are not needed (`enable_checkpointing=False`). `max_epochs` or `max_steps` ends
the training only if no number of samples is ordered. For several ranks set `strategy="ddp"`, `devices` to
LOCAL_WORLD_SIZE and `num_nodes` to WORLD_SIZE / LOCAL_WORLD_SIZE: Lightning assumes that all nodes have the
same number of GPUs.
"""

from __future__ import annotations

from typing import Any

import lightning

from hopjob.measure.timing import after_steps_of
from hopjob.trainers import Stream, TrainerSession, measuring, scaler_of

UNLIMITED = -1
"""Lightning's value for no limit"""


class LightningCallback(lightning.Callback):
    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._session: TrainerSession | None = None
        self._stream: Stream | None = None
        self._updated = False

    def on_fit_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:  # noqa: ARG002
        if not measuring():
            source = trainer.fit_loop._data_source  # noqa: SLF001 - before Lightning replaces the sampler
            self._stream = Stream(source.dataloader(), seed=self._seed)
            source.instance = self._stream

    def on_train_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        if self._stream is not None:
            optimizer, *others = trainer.optimizers
            schedule, *further = [config.scheduler for config in trainer.lr_scheduler_configs] or [None]
            more = {
                **{f"optimizer {number}": one for number, one in enumerate(others, 1)},
                **{f"schedule {number}": one for number, one in enumerate(further, 1)},
                **scaler_of(trainer.precision_plugin),
            }
            self._session = TrainerSession(pl_module, optimizer, schedule, seed=self._seed, more=more)
            self._stream.begin(self._session.progress)
            after_steps_of(optimizer, self._stepped)
            if self._session.ordered:  # the ordered number of samples ends the training
                trainer.fit_loop.max_epochs = trainer.fit_loop.epoch_loop.max_steps = UNLIMITED

    def on_train_batch_end(self, trainer: lightning.Trainer, *_: Any) -> None:  # noqa: ANN401
        if self._stream is not None and self._session is not None:
            self._stream.consumed()
            if self._updated:
                self._updated = False
                trainer.should_stop |= self._session.updated()

    def on_validation_batch_end(self, *_: Any) -> None:  # noqa: ANN401
        if self._session is not None:
            self._session.check()

    def on_train_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:  # noqa: ARG002
        if self._session is not None:
            self._session.end()

    def _stepped(self) -> None:
        self._updated = True
