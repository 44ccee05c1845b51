"""Jobs as Hadar sees them, and the worth of their completion. Pure.

P1 maximises Σ_j U_j(f_j − a_j), where U_j never rises with the job completion time d = f_j − a_j. All
utilities here have the form U(d) = worth / d (see `kit.completion`).

With the stake `total` a job's value is V(d) = U(d). With `delay` it is what one slot of waiting costs,
V(d) = U(d) − U(d + L): a job that is not chosen is only put off.
"""

import math
from collections.abc import Sequence
from typing import Literal

import msgspec

from schemas.ids import JobId
from services.planner.policies.kit.completion import SHORTEST_S
from shared.domain.sums import plain_sum

Stake = Literal["total", "delay"]
GpusByNode = tuple[tuple[int, int], ...]
"""(node, GPUs) by position of the node, ascending"""
Paces = tuple[tuple[float, ...], ...]
"""[type][nodes − 1]: samples/s of one GPU in the job's gang on so many nodes; 0 where nothing is known"""

ROUNDING = 1e-9
"""of a slot, that dividing floats may add"""


class HadarJob(msgspec.Struct, frozen=True, kw_only=True):
    job_id: JobId
    submitted_at: float
    gpus: int
    """W: of the whole gang"""
    elapsed_s: float
    """since its submission"""
    left: float
    """samples still to do"""
    worth: float
    """utility of a job completion time of one second"""
    paces: Paces
    present: GpusByNode = ()
    """where it may stay; empty: nowhere"""

    @property
    def speeds(self) -> tuple[float, ...]:
        """X by type: samples/s of one GPU at its best; 0 where it cannot run."""
        return tuple(max(row, default=0.0) for row in self.paces)

    @property
    def known_paces(self) -> list[float]:
        return [pace for row in self.paces for pace in row if pace > 0]


def delay_at_stake(stake: Stake, round_s: float) -> float:
    """Seconds for which a job that is not chosen is put off; without end if all of it is at stake."""
    return round_s if stake == "delay" else math.inf


def value(worth: float, jct_s: float, delay_s: float) -> float:
    """V(d) = U(d) − U(d + delay) = worth / d · delay / (d + delay)."""
    jct_s = max(jct_s, SHORTEST_S)
    return worth / jct_s / (1.0 + jct_s / delay_s)


def slots(seconds: float, round_s: float) -> int:
    """Whole ones, at least one."""
    return max(math.ceil(seconds / round_s - ROUNDING), 1)


def mean_speed(speeds: Sequence[float], gpus: Sequence[int]) -> float:
    """Of one GPU over those that the job can use; both by type. 0: it can use none."""
    usable = [(speed, count) for speed, count in zip(speeds, gpus, strict=True) if speed > 0]
    total = sum(count for _, count in usable)
    return plain_sum(speed * count for speed, count in usable) / total if total else 0.0
