"""Watches a rigid script while it trains: its progress, and how long it waits for data and for its peers.

Nothing here makes the ranks wait for one another, since the script decides what it does between exchanges.
Each rank puts its times into the store, by DDP's count of iterations, and a thread of rank 0 compares them.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import dataloader

from hopjob.agent.connection import Connection
from hopjob.agent.order import WITHOUT_ATTACH, Order
from hopjob.agent.rendezvous import Rendezvous
from hopjob.measure.rank_sync import PROBES, SYNC_EVERY_S
from hopjob.measure.timing import WARM, after_steps

Rows = Mapping[int, tuple[float, float]]
"""T_d and unhidden exchange by iteration, seconds"""


class Rigid:
    """`samples`: gives the samples of the job that are done, for the reports."""

    def __init__(
        self, order: Order, connection: Connection, rendezvous: Rendezvous, samples: Callable[[], float]
    ) -> None:
        self._order, self._connection, self._rendezvous = order, connection, rendezvous
        self._all_samples = samples
        self._over = False
        self._optimizer: torch.optim.Optimizer | None = None
        self._model: Any = None
        self._data_s = self._before_s = 0.0
        self._last = self._reported = (0, 0.0)
        """(number of updates, time of the newest): now, and at the last report"""
        self._probe_every = 1
        self._probes: deque[tuple[int, float, float]] = deque(maxlen=PROBES)

    def watch(self) -> None:
        self._around_loaders()
        self._around_models()
        after_steps(self._stepped)
        for rank in range(self._order.ranks if self._order.rank == 0 and self._rendezvous.store else 0):
            self._rendezvous.store.set(_key(rank), "{}")
        threading.Thread(target=self._compare, name="hopjob-rigid", daemon=True).start()

    def end(self) -> None:
        """Stop watching: the script has called `attach`, which measures by itself."""
        self._over = True

    @property
    def samples(self) -> float:
        return float(self._last[0] * self._batch)

    @property
    def _batch(self) -> int:
        """Samples of all ranks in one update, by the batch size of the job file."""
        return (self._order.batch_size or 0) * self._order.ranks

    def _around_loaders(self) -> None:
        fetch = dataloader._BaseDataLoaderIter.__next__  # noqa: SLF001 - what all loaders use

        def watched(iterator: object) -> object:
            begin = time.perf_counter()
            batch = fetch(iterator)
            if torch.is_grad_enabled():  # not in an evaluation
                self._data_s += time.perf_counter() - begin
            return batch

        dataloader._BaseDataLoaderIter.__next__ = watched  # noqa: SLF001

    def _around_models(self) -> None:
        make = DistributedDataParallel.__init__

        def watched(model: Any, *args: object, **options: object) -> None:  # noqa: ANN401 - a model of torch's
            make(model, *args, **options)
            if not self._over:
                self._model = self._model or model
                self._time_exchanges()

        DistributedDataParallel.__init__ = watched

    def _stepped(self, optimizer: torch.optim.Optimizer) -> None:
        if self._over:
            return
        if self._order.needs_attach:
            raise RuntimeError(WITHOUT_ATTACH)
        self._optimizer = self._optimizer or optimizer
        if optimizer is self._optimizer:
            updates = self._last[0] + 1
            self._last = updates, time.perf_counter()
            if updates > WARM and (updates - 1) % self._probe_every == 0:
                self._probe(updates - 1)
            self._before_s, self._data_s = self._data_s, 0.0

    def _probe(self, updates: int) -> None:
        """Record the times of the previous iteration, which DDP sums up when the next one begins."""
        times = self._model._get_ddp_logging_data() if self._model is not None else {}  # noqa: SLF001
        unhidden = times.get("backward_comm_time", 0) - times.get("backward_compute_comm_overlap_time", 0)
        self._probes.append((times.get("iteration", updates), self._before_s, max(0, unhidden) / 1e9))

    def _time_exchanges(self) -> None:
        on_a_gpu = next(self._model.parameters()).is_cuda  # where reading a timer waits for the GPU
        rate = self._probe_every if on_a_gpu else 1
        self._model._set_ddp_runtime_logging_sample_rate(rate)  # noqa: SLF001 - torch has no public way

    def _compare(self) -> None:
        while not self._over:
            time.sleep(SYNC_EVERY_S)
            rows = {which: (data_s, unhidden_s) for which, data_s, unhidden_s in list(self._probes)}
            if self._rendezvous.store is not None:
                try:
                    self._rendezvous.store.set(_key(self._order.rank), json.dumps(rows))
                except RuntimeError:
                    return  # rank 0 has ended before this rank, and its store with it
            if self._last[0] > WARM and not self._over:
                self._report(rows)

    def _report(self, mine: Rows) -> None:
        (updates, now), (before, since) = self._last, self._reported
        if updates == before:
            return
        self._reported = updates, now
        if not before:
            return
        iterations, seconds = updates - before, now - since
        if self._order.rank == 0:
            seen = compared([mine, *(self._of(rank) for rank in range(1, self._order.ranks))])
            done = {
                "samples": self._all_samples(),
                "seconds": seconds,
                "iterations": iterations,
                "batch": self._batch,
            }
            self._connection.send(observed={**done, **seen})
        per_probe = -(-iterations * SYNC_EVERY_S // max(seconds, 1e-6) // PROBES)
        every = 1 << max(0, int(per_probe) - 1).bit_length()  # powers of two: so ranks have some in common
        if every != self._probe_every:
            self._probe_every = every
            if self._model is not None:
                self._time_exchanges()

    def _of(self, rank: int) -> Rows:
        if self._rendezvous.store is None:
            return {}
        found = json.loads(self._rendezvous.store.get(_key(rank)))
        return {int(which): (row[0], row[1]) for which, row in found.items()}


def compared(ranks: list[Rows]) -> dict[str, Any]:
    """T_d, T_w and the shortest exchange, over the iterations that all ranks recorded."""
    common = sorted(set.intersection(*(set(rows) for rows in ranks)))
    least = {which: min(rows[which][1] for rows in ranks) for which in common}
    return {
        "data_s": [[rows[which][0] for which in common] for rows in ranks],
        "wait_s": [[rows[which][1] - least[which] for which in common] for rows in ranks],
        "unhidden_s": sum(least.values()) / len(least) if least else 0.0,
    }


def _key(rank: int) -> str:
    return f"hopjob/{rank}"
