"""Means, 95 % intervals and paired differences. Pure.

    x̄ ± t(0.975, n − 1) · s / √n        s: sample standard deviation, n: seeds

Jobs of one run wait for each other and are not independent, so an interval is always over seeds: a
paired difference is first averaged over the jobs of a seed, and the interval is over those averages.
"""

import math
from collections.abc import Mapping, Sequence
from functools import cache

from schemas.base import Message

CONFIDENCE = 0.95
RESOLUTION = 1e-6
"""values that differ by less, in any unit or as a share of the larger, differ by rounding errors"""


class Summary(Message, frozen=True, kw_only=True):
    mean: float
    half_width: float | None
    """half width of the 95 % interval; None for a single value"""
    std: float | None
    values: tuple[float, ...]


class Paired(Message, frozen=True, kw_only=True):
    """How a policy differs from another on the same jobs: `it − other`."""

    difference: Summary
    """mean over the jobs of a seed, over seeds"""
    median: float
    """over all jobs of all seeds"""
    smaller: float
    """share of the jobs that are better off, ties counting half"""
    jobs: int


def summary(values: Sequence[float]) -> Summary:
    """Mean and interval. Raises ValueError if there are no values."""
    if not values:
        raise ValueError("no values")
    mean = math.fsum(values) / len(values)
    if len(values) == 1:
        return Summary(mean=mean, half_width=None, std=None, values=tuple(values))
    std = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
    half_width = student_quantile(len(values) - 1) * std / math.sqrt(len(values))
    return Summary(mean=mean, half_width=half_width, std=std, values=tuple(values))


def difference(value: float, other: float) -> float:
    """`value − other`; 0 if that is below the resolution."""
    found = value - other
    return 0.0 if abs(found) < RESOLUTION * max(1.0, abs(value), abs(other)) else found


@cache
def student_quantile(freedom: int) -> float:
    """The t that |T| stays below with probability `CONFIDENCE`, T with `freedom` degrees of freedom.

    By halving the angle θ = arctan(t / √freedom), of which the probability is a finite sum.
    """
    below, above = 0.0, math.pi / 2
    while below < (middle := (below + above) / 2) < above:
        below, above = (middle, above) if _within(middle, freedom) < CONFIDENCE else (below, middle)
    return math.sqrt(freedom) * math.tan(above)


def _within(angle: float, freedom: int) -> float:
    """P(|T| < √freedom · tan θ) (Abramowitz and Stegun 1964, 26.7.3 and 26.7.4).

    odd:   2/π · (θ + sin θ · (cos θ + 2/3 cos³ θ + … + (2 · 4 ⋯ (ν − 3)) / (3 · 5 ⋯ (ν − 2)) cos^(ν − 2) θ))
    even:  sin θ · (1 + 1/2 cos² θ + … + (1 · 3 ⋯ (ν − 3)) / (2 · 4 ⋯ (ν − 2)) cos^(ν − 2) θ)
    """
    odd = freedom % 2
    term, total = (math.cos(angle), 0.0) if odd else (1.0, 0.0)
    for power in range(odd + 2, freedom + 1, 2):
        total += term
        term *= math.cos(angle) ** 2 * (power - 1) / power
    return (angle + math.sin(angle) * total) * 2 / math.pi if odd else math.sin(angle) * total


def paired(
    mine: Mapping[int, Mapping[str, float]], others: Mapping[int, Mapping[str, float]]
) -> Paired | None:
    """By seed and job. Jobs and seeds that only one side has are left out; None when nothing is left."""
    by_seed = [
        [
            difference(mine[seed][job], others[seed][job])
            for job in sorted(mine[seed].keys() & others[seed].keys())
        ]
        for seed in sorted(mine.keys() & others.keys())
    ]
    by_seed = [differences for differences in by_seed if differences]
    if not by_seed:
        return None
    every = sorted(value for differences in by_seed for value in differences)
    return Paired(
        difference=summary([math.fsum(values) / len(values) for values in by_seed]),
        median=_median(every),
        smaller=sum(1.0 if value < 0 else 0.5 if value == 0 else 0.0 for value in every) / len(every),
        jobs=len(every),
    )


def _median(ranked: Sequence[float]) -> float:
    middle = len(ranked) // 2
    return ranked[middle] if len(ranked) % 2 else (ranked[middle - 1] + ranked[middle]) / 2
