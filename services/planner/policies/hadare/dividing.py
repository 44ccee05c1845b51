"""Divides a job among its copies: the share of each, and how many copies it ends soonest with. Pure."""

from typing import Literal

import numpy as np

from services.planner.policies.hadare.forking import Forking
from shared.domain import gangs
from shared.domain.arrays import Flags, Floats

Division = Literal["given", "all"]


def shares(speeds: Floats, others: float, steps: int) -> tuple[float, ...]:
    """The shares of a job's remaining `steps`, by copy, in proportion to the speeds of its copies.

    `others`: the sum of the job's speeds on nodes without a copy. The paper divides among these nodes too,
    and their part waits for the next round. If that leaves no copy a whole step, only copies get shares.
    """
    among = np.append(speeds, others)
    if not sum(gangs.divided(steps, among.tolist())[:-1]):
        among = speeds
    return tuple((speeds / among.sum()).tolist())


def fastest(one: Forking, speeds: Floats, *, home: bool) -> int:
    """On how many of its nodes, the fastest first, the job's utility is largest.

    With several copies the overhead o passes in every round; with one it passes once, or not at all if the
    job stays. `home`: the fastest node is the one where it may stay.
    """
    copies = np.arange(1, len(speeds) + 1, dtype=np.int32)
    speed = np.sort(speeds)[::-1].cumsum()
    return int(np.argmax(one.value(speed, copies, home & (copies == 1)))) + 1


def trimmed(forking: Forking, on: Flags, round_s: float) -> tuple[Flags, Flags]:
    """The assignment with only as many copies of each job as it ends soonest with; and the satisfied jobs.

    A job is satisfied if it gave back a node, or ends within the round: it shall get no further copy.
    """
    kept, satisfied = on.copy(), np.zeros(len(on), dtype=np.bool_)
    for job in np.flatnonzero(on.any(axis=1)).tolist():
        nodes, one = np.flatnonzero(on[job]), forking.of(job)
        speeds = forking.speed[job, nodes]
        order = nodes[np.argsort(-speeds, kind="stable")]
        copies = fastest(one, speeds, home=bool(order[0] == one.home))
        kept[job, order[copies:]] = False
        ends_s = one.start_s + one.copy_s * len(nodes) + one.left / speeds.sum()
        satisfied[job] = copies < len(nodes) or ends_s <= round_s
    return kept, satisfied
