"""What distinguishes servers of one model: lasting factors of a few per cent.

No message has them; the estimator's entity layer is there to learn them.
"""

from functools import lru_cache

import msgspec
import numpy as np

from loadgen.draws import generator

SPREAD = 0.03
"""standard deviation: cooling, memory population, silicon, age"""
AT_MOST = 0.08


class Traits(msgspec.Struct, frozen=True):
    """Factors on the nominal speed of one server: above 1 is faster."""

    gpu: float
    host: float
    disk: float
    network: float


@lru_cache(maxsize=16_384)
def traits(seed: int, node_id: str) -> Traits:
    deviations = generator(seed, "server", node_id).normal(0.0, SPREAD, size=4)
    gpu, host, disk, network = (1.0 + np.clip(deviations, -AT_MOST, AT_MOST)).tolist()
    return Traits(gpu, host, disk, network)
