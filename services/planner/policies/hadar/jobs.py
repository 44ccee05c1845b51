"""Jobs as Hadar sees them, and the value of their completion. Pure.

The paper's program P1 maximises Σ_j U_j(f_j − a_j) over jobs that arrive at a_j and end at f_j; U_j does not
rise with the completion time d = f_j − a_j. All utilities here are U(d) = worth / d (see `kit.completion`).

With the stake `total` a job's value is V(d) = U(d). With `delay` it is what the job loses if it is not chosen
and so ends one slot of L seconds later: V(d) = U(d) − U(d + L).
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
"""pairs (position of a node, GPUs there), in ascending order"""
Paces = tuple[tuple[float, ...], ...]
"""[type][nodes − 1]: samples/s of one GPU in the job's gang on so many nodes; 0 where nothing is known"""

ROUNDING = 1e-9
"""part of a slot that floating-point division may add"""


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
    """the place that it has and may keep; empty: none"""

    @property
    def speeds(self) -> tuple[float, ...]:
        """X by type: samples/s of one GPU at its best; 0 where it cannot run."""
        return tuple(max(row, default=0.0) for row in self.paces)

    @property
    def known_paces(self) -> list[float]:
        return [pace for row in self.paces for pace in row if pace > 0]


def delay_at_stake(stake: Stake, round_s: float) -> float:
    """Seconds by which a job that is not chosen ends later; infinite if its whole utility is at stake."""
    return round_s if stake == "delay" else math.inf


def value(worth: float, jct_s: float, delay_s: float) -> float:
    """V(d) = U(d) − U(d + delay) = worth / d · delay / (d + delay)."""
    jct_s = max(jct_s, SHORTEST_S)
    return worth / jct_s / (1.0 + jct_s / delay_s)


def slots(seconds: float, round_s: float) -> int:
    """The number of whole slots that `seconds` take, at least one."""
    return max(math.ceil(seconds / round_s - ROUNDING), 1)


def mean_speed(speeds: Sequence[float], gpus: Sequence[int]) -> float:
    """The mean speed of the GPUs that a job can use, from speeds and GPUs by type. 0: it can use none."""
    usable = [(speed, count) for speed, count in zip(speeds, gpus, strict=True) if speed > 0]
    total = sum(count for _, count in usable)
    return plain_sum(speed * count for speed, count in usable) / total if total else 0.0
