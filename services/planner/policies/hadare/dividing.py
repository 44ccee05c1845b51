"""Who does how much of a job: its copies' shares, and how many of them its last round takes. Pure."""

from typing import Literal

import numpy as np

from services.planner.policies.hadare.forking import Forking
from shared.domain import gangs
from shared.domain.arrays import Flags, Floats

Division = Literal["given", "all"]


def shares(speeds: Floats, others: float, steps: int) -> tuple[float, ...]:
    """Of the steps left, by copy, in proportion to the speeds of its copies.

    `others`: speeds of nodes without a copy that take part in the division all the same, as printed: their
    part waits for the next round. Where that leaves nobody a whole step, only copies take part.
    """
    among = np.append(speeds, others)
    if not sum(gangs.divided(steps, among.tolist())[:-1]):
        among = speeds
    return tuple((speeds / among.sum()).tolist())


def fastest(speeds: Floats, left: float, start_s: float, copy_s: float) -> int:
    """k: on how many of its nodes, fastest first, a job ends soonest.

    On one it trains without exchange; on more o passes first.
    """
    copies = np.arange(1, len(speeds) + 1)
    overhead_s = np.where(copies > 1, start_s + copy_s * copies, 0.0)
    ends = overhead_s + left / np.sort(speeds)[::-1].cumsum()
    return int(np.argmin(ends)) + 1


def trimmed(forking: Forking, on: Flags, round_s: float) -> tuple[Flags, Flags]:
    """The assignment with only as many copies of jobs in their last round as they end soonest with.

    And which jobs those are: they want no more copies.
    """
    kept, last = on.copy(), np.zeros(len(on), dtype=np.bool_)
    for job in np.flatnonzero(on.any(axis=1)).tolist():
        nodes = np.flatnonzero(on[job])
        speeds, left = forking.speed[job, nodes], float(forking.left[job])
        start_s, copy_s = float(forking.start_s[job]), float(forking.copy_s[job])
        last[job] = start_s + copy_s * len(nodes) + left / speeds.sum() <= round_s
        if last[job]:
            order = nodes[np.argsort(-speeds, kind="stable")]
            kept[job, order[fastest(speeds, left, start_s, copy_s) :]] = False
    return kept, last
