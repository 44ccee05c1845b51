"""Divides a job among its copies: their shares, and the number with which it ends soonest. Pure."""

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


def fastest(one: Forking, speeds: Floats, *, home: bool) -> int:
    """k: on how many of its nodes, fastest first, a job ends soonest, by what U counts.

    On more than one o passes in every round; on one once, and not where it stays. `home`: the fastest is
    where it may stay.
    """
    copies = np.arange(1, len(speeds) + 1, dtype=np.int32)
    speed = np.sort(speeds)[::-1].cumsum()
    return int(np.argmax(one.value(speed, copies, home & (copies == 1)))) + 1


def trimmed(forking: Forking, on: Flags, round_s: float) -> tuple[Flags, Flags]:
    """The assignment with only as many copies of each job as it ends soonest with.

    And which jobs want no more: those that gave a node back, or that end within the round.
    """
    kept, content = on.copy(), np.zeros(len(on), dtype=np.bool_)
    for job in np.flatnonzero(on.any(axis=1)).tolist():
        nodes, one = np.flatnonzero(on[job]), forking.of(job)
        speeds = forking.speed[job, nodes]
        order = nodes[np.argsort(-speeds, kind="stable")]
        copies = fastest(one, speeds, home=bool(order[0] == one.home))
        kept[job, order[copies:]] = False
        ends_s = one.start_s + one.copy_s * len(nodes) + one.left / speeds.sum()
        content[job] = copies < len(nodes) or ends_s <= round_s
    return kept, content
