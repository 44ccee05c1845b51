"""How long a job takes on a gang, and how fair completion times are (JPS, eq. 2 to 7, 32, 33). Pure.

Gradients are exchanged by one of two laws: `epoch`, once an epoch, as in the paper's (7); `iteration`, once
an iteration, as training does.
"""

from typing import Literal

import numpy as np

from shared.domain.arrays import Floats

Law = Literal["iteration", "epoch"]


def completion_s(left: float, speed: float, exchanges: float, each_s: float) -> float:
    """Λ (7): seconds for `left` samples at `speed` samples/s, and for `exchanges` of `each_s` seconds."""
    return left / speed + exchanges * each_s


def isolated_s(left: float, rates: float, share: float, exchanges: float, each_s: float) -> float:
    """Λe: the job alone with 1/S of each GPU. `rates`: Σ ρ over all GPUs; `share`: 1 / S."""
    return completion_s(left, share * rates, exchanges, each_s)


def jain(ratios: Floats) -> float:
    """F (32), Jain's index of S ratios: (Σ x)² / (S · Σ x²). The paper prints S in the wrong place."""
    return float(ratios.sum() ** 2 / (len(ratios) * np.square(ratios).sum()))
