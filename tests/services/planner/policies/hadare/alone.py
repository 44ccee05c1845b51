"""A job that is alone on nodes of its own: how long it takes as copies, and how busy they are. Pure.

Theorem 3 of Hadar says that a job which takes ρ rounds on one node takes ⌈ρ / x⌉ as x copies. That holds
for nodes that are alike; on others it is the sum of their speeds that counts. Merging takes no time here.
"""

import math
from collections.abc import Sequence

import msgspec

from tests.services.planner.policies.hadare.forking_builders import forking, shared


class Alone(msgspec.Struct, frozen=True, kw_only=True):
    ends_s: float
    rounds: int
    cru_slots: float
    """busy time of nodes over n · slot · rounds: the paper's cluster resource utilisation"""


def alone(left: float, speeds: Sequence[float], nodes: int, slot_s: float) -> Alone:
    """`left`: samples; `speeds`: samples/s of its copies, on so many of the `nodes`.

    When it ends is what its utility as copies says.
    """
    of = forking([speeds], [left])
    ends_s = float(of.scale[0] / of.values(shared(of, [0] * len(speeds)))[0])
    rounds = math.ceil(ends_s / slot_s)
    return Alone(ends_s=ends_s, rounds=rounds, cru_slots=ends_s * len(speeds) / (nodes * slot_s * rounds))


def printed_rounds(left: float, speeds: Sequence[float], slot_s: float) -> int:
    """What theorem 3 says: ρ is of the first node."""
    return math.ceil(math.ceil(left / speeds[0] / slot_s) / len(speeds))
