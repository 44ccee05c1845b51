"""What ranks do between two updates: synchronise, decide together, and report to the agent."""

from __future__ import annotations

import time
from typing import Any

import torch
import torch.distributed as dist

from hopjob.measure.rank_sync import Probe, RankSync, SyncResult
from hopjob.measure.timing import WARM
from hopjob.process import Process
from hopjob.training_state import TrainingState

PATIENCE_S = 2.0
"""seconds that an order to stop waits for the ranks to synchronise; after that rank 0 stops alone"""


class Steps:
    def __init__(self, process: Process, state: TrainingState, model: torch.nn.Module | None) -> None:
        """`model`: the model that the script calls, with DDP around it if there are several ranks.

        None: nothing is measured here, as within a trainer.
        """
        self._process, self._state = process, state
        self._model: Any = model
        self._ranks = process.order.ranks
        self._sync = RankSync(self._ranks, state.group)
        self._data_s = 0.0
        self._updates = self._samples = state.progress.updates
        self._timed = -1
        self._on_a_gpu = model is not None and next(model.parameters()).is_cuda
        if self._ranks > 1 and model is not None:
            self._time_exchanges()

    def updated(self, data_s: float, *, over: bool) -> None:
        """Called after an update; `data_s`: seconds that it waited for its data.

        `over`: it was the last one. Then an order to stop comes too late: the job would start again elsewhere
        and train on nothing.
        """
        self._state.rate.updated()
        due = self._sync.step()
        if self._sync.probing and self._model is not None:
            self._probe()
        self._data_s = data_s
        if due:
            self._synchronise(over=over)
        elif self._overdue() and not over:
            self.stop_alone()

    def stop_alone(self) -> None:
        """In rank 0: save a checkpoint and end. The other ranks' exchanges then fail, and they end too."""
        if self._process.order.rank == 0:
            self._state.save("stop", alone=True)
            self._process.ending.stopped()

    def _overdue(self) -> bool:
        """Whether an order to stop has waited too long for a synchronisation, as iterations became slow."""
        asked = self._process.connection.stop_asked
        return asked is not None and time.monotonic() - asked > PATIENCE_S

    def _synchronise(self, *, over: bool) -> None:
        asked = self._process.connection.stop_asked is not None
        found = self._sync.exchange(stop=asked, save=self._state.checkpoint_due())
        if self._model is not None:
            self._observed(found)
        if found.stop and not over:
            self._save("stop")
            self._process.ending.stopped()
        if found.save:
            self._save("interval")
            self._sync.restart()
        if self._ranks > 1 and self._on_a_gpu:
            self._time_exchanges()

    def _save(self, why: str) -> None:
        """Save a checkpoint, and wait for rank 0 to have written it.

        Otherwise the others would wait in their next exchange, which counts as waiting for a slow peer.
        """
        self._state.save(why)
        if self._state.group is not None:
            dist.barrier(group=self._state.group)

    def _observed(self, found: SyncResult) -> None:
        """Report how the gang ran, but not in the first updates, in which memory is allocated."""
        progress = self._state.progress
        iterations, samples = progress.updates - self._updates, progress.computed - self._samples
        warm = self._updates >= WARM
        self._updates, self._samples = progress.updates, progress.computed
        if warm and self._process.order.rank == 0:
            self._process.connection.send(
                observed={
                    "samples": progress.trained,
                    "seconds": found.seconds,
                    "iterations": iterations,
                    "batch": samples / iterations,
                    "data_s": found.data_s,
                    "wait_s": found.wait_s,
                    "unhidden_s": found.unhidden_s,
                }
            )

    def _time_exchanges(self) -> None:
        """Switch DDP's timers on: for every iteration on a CPU, for few on a GPU, where reading one waits."""
        rate = self._sync.probe_every if self._on_a_gpu else 1
        self._model._set_ddp_runtime_logging_sample_rate(rate)  # noqa: SLF001 - torch has no public way

    def _probe(self) -> None:
        """Record the previous iteration: DDP computes its times when the next one begins."""
        if self._ranks == 1:
            self._sync.probe(Probe(self._data_s, 0.0))
            return
        times: dict[str, Any] = self._model._get_ddp_logging_data()  # noqa: SLF001
        if times.get("iteration", -1) != self._timed:
            self._timed = times.get("iteration", -1)
            unhidden = times.get("backward_comm_time", 0) - times.get("backward_compute_comm_overlap_time", 0)
            self._sync.probe(Probe(self._data_s, max(0, unhidden) / 1e9))
