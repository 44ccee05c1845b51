"""How long jobs take on a gang, and how evenly that is spread (JPS, eq. 2 to 7, 32, 33). Pure.

Two laws say how often gradients are exchanged: `epoch` as in the paper's (7), once an epoch; `iteration` as
it is, once an iteration.
"""

from typing import Literal

import numpy as np

from shared.domain.arrays import Floats

Law = Literal["iteration", "epoch"]


def completion_s(left: float, speed: float, exchanges: float, each_s: float) -> float:
    """(7): `left` samples at `speed` samples/s, and so many exchanges of gradients."""
    return left / speed + exchanges * each_s


def isolated_s(left: float, rates: float, share: float, exchanges: float, each_s: float) -> float:
    """Λe: the job alone on every S-th part of each GPU. `rates`: Σ ρ over all GPUs; `share`: 1 / S."""
    return completion_s(left, share * rates, exchanges, each_s)


def jain(ratios: Floats) -> float:
    """F (32), where the paper divides by S what it has to multiply: (Σ x)² / (S · Σ x²)."""
    return float(ratios.sum() ** 2 / (len(ratios) * np.square(ratios).sum()))
