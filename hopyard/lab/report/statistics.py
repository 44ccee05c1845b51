"""Means, 95 % intervals and paired differences. Pure.

    x̄ ± t(0.975, n − 1) · s / √n        s: sample standard deviation, n: seeds

Jobs of one run wait for each other and are not independent, so an interval is always over seeds: a
paired difference is first averaged over the jobs of a seed, and the interval is over those averages.
"""

import math
from collections.abc import Mapping, Sequence

from scipy.special import stdtrit

from schemas.base import Message

CONFIDENCE = 0.95


class Summary(Message, frozen=True, kw_only=True):
    mean: float
    half_width: float | None
    """of the 95 % interval; None for a single value"""
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
    """Raises ValueError for none."""
    if not values:
        raise ValueError("no values")
    mean = math.fsum(values) / len(values)
    if len(values) == 1:
        return Summary(mean=mean, half_width=None, std=None, values=tuple(values))
    std = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
    factor = float(stdtrit(len(values) - 1, (1 + CONFIDENCE) / 2))
    return Summary(mean=mean, half_width=factor * std / math.sqrt(len(values)), std=std, values=tuple(values))


def paired(
    mine: Mapping[int, Mapping[str, float]], others: Mapping[int, Mapping[str, float]]
) -> Paired | None:
    """By seed and job. Jobs and seeds that only one side has are left out; None when nothing is left."""
    by_seed = [
        [mine[seed][job] - others[seed][job] for job in sorted(mine[seed].keys() & others[seed].keys())]
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
