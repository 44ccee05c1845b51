"""From measured iterations to time modules (Hops section 3.5). Pure; `work.mixture` fits loading times."""

import math
from collections.abc import Sequence
from statistics import fmean, pstdev

import numpy as np

from schemas.measurements import DataMode, Measured, TimeModules
from shared.domain.iteration import IN_SEQUENCE, OURS, OVERLAPPED, Law, iteration_s
from shared.domain.sums import plain_sum

DIGITS = 6
"""significant digits kept: more than some tens of iterations support, and equal on every machine"""
SHORTEST_S, LONGEST_S = 1e-12, 1e12
"""what an iteration can take; far beyond, no throughput follows that a message can have"""


def fitted(measured: Measured, data: Sequence[DataMode], law: Law = OURS) -> TimeModules:
    """The modules: means of compute and update times, `data` for loading, and the overlap pattern.

    A measurement on one GPU does not show which part of the exchange the backward pass cannot hide, so the
    caller has to set `unhidden`.
    """
    return TimeModules(
        data=tuple(data),
        forward_s=rounded(fmean(measured.forward_s)),
        backward_s=rounded(fmean(measured.backward_s)),
        update_s=rounded(fmean(measured.update_s)),
        parameters=measured.parameters,
        pattern=overlap_pattern(measured, law),
        iterations=len(measured.iteration_s),
        memory_share=None if measured.memory_share is None else rounded(measured.memory_share),
        modes=measured.modes,
    )


def overlap_pattern(measured: Measured, law: Law = OURS) -> int:
    """The pattern of eq. 1 whose prediction is nearer to the measured iteration times.

    On one GPU there is no communication and no wait for other ranks: T_c = T_w = 0. The distance is the sum
    of absolute differences over the iterations. If both patterns predict the same, the result is pattern 1.
    """
    return min((OVERLAPPED, IN_SEQUENCE), key=lambda pattern: _distance_s(measured, pattern, law))


def one_mode(data_s: Sequence[float]) -> tuple[DataMode, ...]:
    """A stable loader: one normal distribution, seconds."""
    return (DataMode(probability=1.0, mean_s=rounded(fmean(data_s)), std_s=rounded(pstdev(data_s))),)


def objection(measured: Measured) -> str | None:
    """Why the numbers cannot be used, or None."""
    columns = (
        measured.data_s,
        measured.forward_s,
        measured.backward_s,
        measured.update_s,
        measured.iteration_s,
    )
    if not measured.iteration_s or len({len(column) for column in columns}) > 1:
        return "the columns of the measurement are empty or of unlike length"
    if not all(0 <= value < math.inf for column in columns for value in (*column, measured.parameters)):
        return "the measurement has a negative or non-finite number"
    if measured.memory_share is not None and not 0 <= measured.memory_share <= 1:
        return "the measurement's share of the GPU memory is not between 0 and 1"
    computed_s = plain_sum(measured.forward_s) + plain_sum(measured.backward_s)
    if not computed_s > 0:
        return "the measurement shows no computation"
    iterations, taken_s = len(measured.iteration_s), plain_sum(map(plain_sum, columns[:-1]))
    if computed_s < SHORTEST_S * iterations or taken_s > LONGEST_S * iterations:
        return "the measurement has times that no iteration takes"
    return None


def rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def _distance_s(measured: Measured, pattern: int, law: Law) -> float:
    predicted = iteration_s(
        data_s=np.array(measured.data_s),
        forward_s=np.array(measured.forward_s),
        backward_s=np.array(measured.backward_s),
        update_s=np.array(measured.update_s),
        pattern=float(pattern),
        law=law,
    )
    return math.fsum(np.abs(predicted - np.array(measured.iteration_s)))
