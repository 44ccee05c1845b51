"""The bus inside one process: for simulation, tests and debugging.

As on JetStream, messages are encoded and decoded, facts come in the order in which they were stored, and the
limits of sizes hold. It has no threads and reads no wall clock, so a run on the virtual loop repeats exactly.
"""

from shared.runtime.bus.memory.bus import MemoryBus, MemoryClient
from shared.runtime.bus.memory.log import Faults

__all__ = ["Faults", "MemoryBus", "MemoryClient"]
