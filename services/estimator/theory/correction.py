"""Corrections learnt from gangs of unlike shares: how far off estimates are, by workload and types. Pure.

Such a gang shows no GPU's own pace, so it is no evidence for any layer; but it shows how far the whole
estimate was off. With x = measured / estimated, the estimate without a correction, and one correction for
all gangs of a workload on the same types of GPUs:

    correction ← (1 − α) · correction + α · x        α = 0.3, at first 1
"""

from collections.abc import Iterable

from schemas.ids import GpuType
from services.estimator.store.contract import Correction

WEIGHT = 0.3
"""α of the exponentially weighted mean (the weight is not given in JPS)"""
FACTOR_MOST = 3.0
"""largest factor on what was estimated, or 1 / it: a measurement beyond is not believed"""
NONE_YET = Correction(factor=1.0, observations=0)


def types_of(types: Iterable[GpuType]) -> str:
    """Of a gang: each once, in alphabetical order."""
    return "+".join(sorted(set(types)))


def corrected(known: Correction, ratio: float) -> Correction:
    """`ratio`: measured / estimated, where the estimate has the known correction in it."""
    believed = min(max(ratio, 1.0 / FACTOR_MOST), FACTOR_MOST)
    factor = known.factor * (1.0 + WEIGHT * (believed - 1.0))
    return Correction(factor=float(f"{factor:.9g}"), observations=known.observations + 1)
