"""Corrections learnt from gangs of unlike shares: how far off estimates are, by workload and types. Pure.

Such a gang does not show the pace of any one GPU, so it is no evidence for a layer; but it shows how far
the estimate of the whole gang was off. All gangs of a workload on the same GPU types share one correction.
With x = measured / estimated, where the estimate has no correction in it:

    correction ← (1 − α) · correction + α · x        α = 0.3; the correction is 1 at first
"""

from collections.abc import Iterable

from schemas.ids import GpuType
from services.estimator.store.contract import Correction

WEIGHT = 0.3
"""α of the exponentially weighted mean (the weight is not given in JPS)"""
FACTOR_MOST = 3.0
"""largest measured / estimated that is believed; the smallest is 1 / FACTOR_MOST"""
NONE_YET = Correction(factor=1.0, observations=0)


def types_of(types: Iterable[GpuType]) -> str:
    """The key of a correction: the GPU types of a gang, each once, in alphabetical order."""
    return "+".join(sorted(set(types)))


def corrected(known: Correction, ratio: float) -> Correction:
    """The correction after one more gang. `ratio`: measured / estimated, with the known correction in it."""
    believed = min(max(ratio, 1.0 / FACTOR_MOST), FACTOR_MOST)
    factor = known.factor * (1.0 + WEIGHT * (believed - 1.0))
    return Correction(factor=float(f"{factor:.9g}"), observations=known.observations + 1)
