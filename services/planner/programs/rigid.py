"""The one GPU count of a job that a policy without elasticity asks for. Pure."""

from collections.abc import Sequence
from typing import Literal

Rigid = Literal["median", "min", "max"]


def rigid(demand: Sequence[int], rule: Rigid = "median") -> int:
    """One of the counts R_1 < … < R_n a job can run with.

    The median is what the Hops comparison gives to policies that cannot choose; of an even number of
    counts it is the lower middle one, since a mean of two need not be a count the job can run with.
    """
    place = {"min": 0, "median": (len(demand) - 1) // 2, "max": len(demand) - 1}
    return demand[place[rule]]
