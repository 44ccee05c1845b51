"""Synchronises all ranks about twice a second, after the same step, to agree on stops and saves.

Between two synchronisations a step costs one comparison. In a synchronisation each rank sends a row of 36
numbers over the CPU, in a separate process group: whether it was asked to stop, whether a checkpoint is due,
the seconds since the last synchronisation, and for at most 16 iterations how long it waited for data and for
the gradients of the others.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
import torch.distributed as dist

SYNC_EVERY_S = 0.5
PROBES = 16
"""largest number of iterations that are recorded between two synchronisations"""
GROWTH = 4
"""largest growth of an interval, in steps, from one to the next: iterations may become slower again"""
HEAD = 4


@dataclass(frozen=True)
class Probe:
    """One iteration of one rank."""

    data_s: float
    """T_d"""
    unhidden_s: float
    """seconds of the exchange after this rank's last gradient: what backward does not hide, and waiting"""


@dataclass(frozen=True)
class SyncResult:
    """What the ranks agreed on, the same on every rank. Outer lists are by rank, inner ones by iteration."""

    stop: bool
    save: bool
    seconds: float
    data_s: list[list[float]]
    wait_s: list[list[float]]
    """T_w: by how much each rank's exchange was longer than the shortest of the iteration"""
    unhidden_s: float
    """mean over the iterations of the shortest exchange"""


class RankSync:
    def __init__(self, ranks: int, group: object) -> None:
        """`group`: process group of all ranks on the CPU; None if there is only one rank."""
        self._ranks, self._group = ranks, group
        self.every = self.probe_every = 1
        self._steps = 0
        self._probes: list[Probe] = []
        self._since = time.perf_counter()

    def restart(self) -> None:
        """Begin a new interval. Time since the last one, such as a save's, does not count as training."""
        self._since = time.perf_counter()
        self._probes = []
        self._steps = 0

    def step(self) -> bool:
        """Count an iteration; returns whether the ranks synchronise now."""
        self._steps += 1
        return self._steps >= self.every

    @property
    def probing(self) -> bool:
        """Whether the iteration that just ended is to be recorded."""
        return self._steps % self.probe_every == 0

    def probe(self, probe: Probe) -> None:
        if len(self._probes) < PROBES:
            self._probes.append(probe)

    def exchange(self, *, stop: bool, save: bool) -> SyncResult:
        seconds = time.perf_counter() - self._since
        found = read(self._gathered([float(stop), float(save), seconds]), len(self._probes))
        longest = GROWTH * self.every
        self.every = max(1, min(longest, int(self.every * SYNC_EVERY_S / max(found.seconds, 1e-6))))
        self.probe_every = -(-self.every // PROBES)
        self.restart()
        return found

    def _gathered(self, head: list[float]) -> torch.Tensor:
        mine = torch.zeros(HEAD + 2 * PROBES, dtype=torch.float64)
        mine[: len(head)] = torch.tensor(head, dtype=torch.float64)
        for index, probe in enumerate(self._probes):
            mine[HEAD + index], mine[HEAD + PROBES + index] = probe.data_s, probe.unhidden_s
        if self._group is None:
            return mine[None]
        rows = [torch.empty_like(mine) for _ in range(self._ranks)]
        dist.all_gather(rows, mine, group=self._group)
        return torch.stack(rows)


def read(table: torch.Tensor, probes: int) -> SyncResult:
    """The result of a table with a row for each rank. Rank 0 decides whether to save, and the seconds."""
    data = table[:, HEAD : HEAD + probes]
    unhidden = table[:, HEAD + PROBES : HEAD + PROBES + probes]
    least = unhidden.min(0).values if probes else unhidden.sum(0)
    return SyncResult(
        stop=bool(table[:, 0].max()),
        save=bool(table[0, 1]),
        seconds=float(table[0, 2]),
        data_s=data.tolist(),
        wait_s=(unhidden - least).tolist(),
        unhidden_s=float(least.mean()) if probes else 0.0,
    )
