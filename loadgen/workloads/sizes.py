"""Sizes of drawn jobs: each inside its class, with the mean that was asked for.

A job at position u ∈ [0, 1) of its class [a, b] has a·(b/a)^(u^k) GPU-hours: log-uniform for k = 1. One k for
all jobs is found by bisection so that the mean comes as close to the wanted one as the classes allow.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from schemas.catalogue import SizeClass

BEND_MOST = 32.0
"""k lies between 1/32 and 32: beyond, all jobs of a class have one size"""
STEPS = 60


def gpu_hours(
    classes: Sequence[SizeClass], positions: NDArray[np.float64], mean: float | None
) -> NDArray[np.float64]:
    """GPU-hours of each job. `positions`: its u; `mean`: the wanted mean, None for k = 1."""
    low = np.array([size.hours[0] for size in classes])
    high = np.array([size.hours[1] for size in classes])

    def bent(log_k: float) -> NDArray[np.float64]:
        return np.asarray(low * (high / low) ** (positions ** np.exp(log_k)))

    if mean is None:
        return bent(0.0)
    least, most = -np.log(BEND_MOST), np.log(BEND_MOST)  # the mean falls as k grows
    for _ in range(STEPS):
        middle = (least + most) / 2
        least, most = (middle, most) if bent(middle).mean() > mean else (least, middle)
    return bent((least + most) / 2)
