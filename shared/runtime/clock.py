"""Cluster time: wall time, wall time scaled, or the virtual loop's."""

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from schemas.settings import Settings

SLOWED = 0.5
"""pace of a cluster time that is ahead, as a share of its usual one"""


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
    the machine's clock does not change it; `set_right` does. Once it was read, cluster time never goes back:
    where it is ahead it goes slower until the difference is gone.
    """

    def __init__(
        self, *, origin: float = 0.0, speed: float = 1.0, since_boot: Callable[[], float] = _since_boot
    ) -> None:
        if not speed > 0:
            raise ValueError(f"speed must be above 0, not {speed}")
        self._origin = origin
        self._speed = speed
        self._since_boot = since_boot
        self._began = time.time() - since_boot()
        self._was_read = False
        self._ahead = 0.0, 0.0
        """by how many real seconds cluster time was ahead of Unix time, and when (seconds since boot)"""

    def unix(self) -> float:
        """Unix time by this clock."""
        return self._began + self._since_boot()

    def set_right(self, ahead_s: float) -> None:
        """Set the clock back by `ahead_s` real seconds, by which it was found to be ahead.

        Unix time is right at once, and cluster time too, unless it would go back.
        """
        self._began -= ahead_s
        if self._was_read:
            self._be_ahead(self.ahead_s() + ahead_s)

    def go_on_from(self, reached: float) -> None:
        """Go on from a cluster time that was reached before, if that is ahead of now."""
        self._be_ahead(max(reached / self._speed - (self.unix() - self._origin), self.ahead_s()))

    def ahead_s(self) -> float:
        """Real seconds by which cluster time is still ahead of Unix time."""
        ahead_s, since = self._ahead
        return max(ahead_s - (1.0 - SLOWED) * (self._since_boot() - since), 0.0)

    def _be_ahead(self, ahead_s: float) -> None:
        self._ahead = max(ahead_s, 0.0), self._since_boot()

    def now(self) -> float:
        self._was_read = True
        return (self.unix() + self.ahead_s() - self._origin) * self._speed

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
