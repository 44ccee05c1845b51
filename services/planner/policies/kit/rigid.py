"""The one GPU count that a policy gives a job, if it does not choose among the counts itself. Pure."""

from collections.abc import Sequence
from typing import Literal

import msgspec

Rigid = Literal["median", "min", "max"]


class RigidOptions(msgspec.Struct, frozen=True, kw_only=True):
    rigid_demand: Rigid = "median"
    """which of a job's GPU counts it gets; of two medians the smaller"""


def rigid(demand: Sequence[int], rule: Rigid = "median") -> int:
    """One of the counts R_1 < … < R_n a job can run with.

    The median is what the Hops comparison gives to policies that cannot choose; of an even number of
    counts it is the lower middle one, since a mean of two need not be a count the job can run with.
    """
    place = {"min": 0, "median": (len(demand) - 1) // 2, "max": len(demand) - 1}
    return demand[place[rule]]
