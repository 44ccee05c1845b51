"""Utilities: what a job's completion is worth, which falls with its completion time (Hadar, III-A). Pure.

All three are U_j(d) = u_j / d, where d is the seconds from submission to completion:

    raw         u_j = samples of the whole job: U is its effective throughput, as in the paper
    normalised  u_j = t_iso, samples / the throughput of its gang on mean GPUs that it can use
    inverse     u_j = 1

`raw` compares samples/s of unlike models with one another; `normalised` does not.
"""

from typing import Literal

import numpy as np

from shared.domain.arrays import Floats

Utility = Literal["normalised", "raw", "inverse"]

SHORTEST_S = 1e-3
"""the least completion time that is used, so that nothing is divided by zero"""


def scales(rule: Utility, samples: Floats, mean_speed: Floats) -> Floats:
    """The factor u by job. `samples`: of the whole job; `mean_speed` > 0: samples/s of it on mean GPUs."""
    if rule == "normalised":
        return samples / mean_speed
    return samples if rule == "raw" else np.ones_like(samples)


def worth(scale: Floats, jct_s: Floats) -> Floats:
    """U by job for these completion times; 0 for an infinite one."""
    return scale / np.maximum(jct_s, SHORTEST_S)
