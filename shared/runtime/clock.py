"""Cluster time: wall time, wall time scaled, or the virtual loop's."""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Where every time in the system comes from. Cluster seconds are floats."""

    def now(self) -> float:
        """Cluster time, seconds."""
        ...

    async def sleep(self, cluster_s: float) -> None: ...

    def cluster_s(self, real_s: float) -> float:
        """How many cluster seconds pass in some real ones: for limits that are about processes."""
        ...


class ScaledClock:
    """Wall time that runs `speed` times as fast, counted from `origin` (Unix seconds).

    Every process with the same two numbers reads the same time. Origin 0 at speed 1 is Unix time.
    """

    def __init__(self, *, origin: float = 0.0, speed: float = 1.0) -> None:
        if not speed > 0:
            raise ValueError(f"speed must be above 0, not {speed}")
        self._origin = origin
        self._speed = speed

    def now(self) -> float:
        return (time.time() - self._origin) * self._speed

    async def sleep(self, cluster_s: float) -> None:
        await asyncio.sleep(max(cluster_s, 0.0) / self._speed)

    def cluster_s(self, real_s: float) -> float:
        return real_s * self._speed


class LoopClock:
    """The running event loop's own time: virtual under `shared.runtime.virtual`, starting at 0."""

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, cluster_s: float) -> None:
        await asyncio.sleep(max(cluster_s, 0.0))

    def cluster_s(self, real_s: float) -> float:
        return real_s
