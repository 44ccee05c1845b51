"""The emulated world: the ground truth that only agents ask, and no scheduler ever reads.

It is richer than Hops eq. 1–5 on purpose. Compute times follow a roofline and differ by server; each
process draws its data times by itself, so that waiting emerges from the slowest of them; rings have
latency and saturate slowly; every iteration has noise. Parameters come from `loadgen.catalogue`.
"""

from loadgen.world.emulated import EmulatedWorld

__all__ = ["EmulatedWorld"]
