"""Utilities of completion: what it is worth to a job to complete, falling with its completion time. Pure.

All three are U_j(d) = u_j / d, d: completion time in seconds since submission (Hadar, section III-A, whose
own is `raw`: effective throughput). Samples a second of unlike models do not compare, so `normalised`
counts them in parts of what the job would have alone:

    t_iso = whole work / mean over the cluster's GPUs that it can use of what a gang of theirs does a second
"""

from typing import Literal

import numpy as np

from shared.domain.arrays import Floats

Utility = Literal["normalised", "raw", "inverse"]

SHORTEST_S = 1e-3
"""a completion time that divides nothing by zero"""


def scales(rule: Utility, samples: Floats, mean_speed: Floats) -> Floats:
    """By job: u. `samples`: its whole work; `mean_speed`: samples/s, above 0."""
    if rule == "normalised":
        return samples / mean_speed
    return samples if rule == "raw" else np.ones_like(samples)


def worth(scale: Floats, jct_s: Floats) -> Floats:
    """U; 0 for a job that never ends."""
    return scale / np.maximum(jct_s, SHORTEST_S)
