"""Cluster time: wall time, wall time scaled, or the virtual loop's."""

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from schemas.settings import Settings


class Alarm(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    """The source of every time in the system. Cluster seconds are floats."""

    def now(self) -> float:
        """Cluster time, seconds."""
        ...

    async def sleep(self, cluster_s: float) -> None:
        """Sleep; an infinite time ends only by cancellation."""
        ...

    def at(self, then: float, do: Callable[[], None]) -> Alarm:
        """Call `do` at cluster time `then`, or soon if that is past, unless the alarm is cancelled first."""
        ...

    def within(self, real_s: float) -> AbstractAsyncContextManager[object]:
        """A context that raises TimeoutError if its block takes longer than some real seconds."""
        ...

    def cluster_s(self, real_s: float) -> float:
        """The cluster seconds that pass in `real_s`: for limits that concern processes."""
        ...


def _since_boot() -> float:
    """Seconds by a clock that cannot be set; on systems that have one, it goes on during a suspension."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class ScaledClock:
    """Wall time that runs `speed` times as fast, counted from `origin` (Unix seconds).

    Every process with the same two numbers reads the same time. Origin 0 at speed 1 is Unix time. Setting
    the machine's clock does not change it; `set_right` does.
    """

    def __init__(self, *, origin: float = 0.0, speed: float = 1.0) -> None:
        if not speed > 0:
            raise ValueError(f"speed must be above 0, not {speed}")
        self._origin = origin
        self._speed = speed
        self._began = time.time() - _since_boot()

    def unix(self) -> float:
        """Unix time by this clock."""
        return self._began + _since_boot()

    def set_right(self, ahead_s: float) -> None:
        """Set the clock back by `ahead_s` real seconds, by which it was found to be ahead."""
        self._began -= ahead_s

    def now(self) -> float:
        return (self.unix() - self._origin) * self._speed

    async def sleep(self, cluster_s: float) -> None:
        await asyncio.sleep(max(cluster_s, 0.0) / self._speed)

    def at(self, then: float, do: Callable[[], None]) -> Alarm:
        return asyncio.get_running_loop().call_later(max(then - self.now(), 0.0) / self._speed, do)

    def within(self, real_s: float) -> AbstractAsyncContextManager[object]:
        return asyncio.timeout(real_s)

    def cluster_s(self, real_s: float) -> float:
        return real_s * self._speed


class LoopClock:
    """The running event loop's own time: virtual under `shared.runtime.shell.virtual`, starting at 0."""

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, cluster_s: float) -> None:
        await asyncio.sleep(max(cluster_s, 0.0))

    def at(self, then: float, do: Callable[[], None]) -> Alarm:
        return asyncio.get_running_loop().call_at(max(then, self.now()), do)

    def within(self, real_s: float) -> AbstractAsyncContextManager[object]:
        return asyncio.timeout(real_s)

    def cluster_s(self, real_s: float) -> float:
        return real_s


def unix_by(clock: Clock, settings: Settings) -> Callable[[], float]:
    """Unix time by a clock that counts from the origin of the settings."""
    return lambda: settings.clock_origin + clock.now() / clock.cluster_s(1.0)
