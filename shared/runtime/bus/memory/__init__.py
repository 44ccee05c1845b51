"""The bus inside one process: for simulation, tests and debugging.

It keeps what the real one keeps: messages are encoded and decoded, order is the order of storing,
limits hold. It has no threads and reads no wall clock, so under the virtual loop a run repeats exactly.
"""

from shared.runtime.bus.memory.bus import MemoryBus, MemoryClient
from shared.runtime.bus.memory.log import Faults

__all__ = ["Faults", "MemoryBus", "MemoryClient"]
