"""Builds the integer program that chooses among configurations, from their gains. Pure."""

import numpy as np

from services.planner.policies.contract.configurations import Configurations
from services.planner.solver.problem import NO_ROWS, Problem, restricted
from shared.domain.arrays import Floats, Ints


def problem_of(
    wanted: Configurations, capacity: Ints, weight: Floats, gain: Floats, present: Ints = NO_ROWS
) -> tuple[Problem, Ints]:
    """The program over the configurations whose gain is known, and the row of each in `wanted`.

    `weight` is by job of `wanted`; `gain` by configuration, NaN where nothing is known; `present` in rows of
    `wanted`.
    """
    assert (capacity >= 0).all(), "idle GPUs are counted from 0"
    assert (weight >= 0).all(), "a larger gain is never worth less"
    whole = Problem(
        capacity=capacity,
        weight=weight,
        job=wanted.job,
        start=wanted.start,
        node=wanted.node,
        gpus=wanted.gpus,
        gain=gain,
        present=present,
    )
    rows = np.flatnonzero(gain > 0).astype(np.int32)
    return (whole if len(rows) == len(whole) else restricted(whole, rows)), rows
