"""Sums of floats that every version of Python rounds alike. Pure."""

from collections.abc import Iterable
from functools import reduce
from operator import add


def plain_sum(values: Iterable[float]) -> float:
    """The sum of the values, added one after another, with each step rounded.

    The built-in `sum` does so up to Python 3.11; from 3.12 on it carries the rounding errors along, so a
    simulation in which a decision hangs on the last digit would be another run there.
    """
    return reduce(add, values, 0.0)
