"""Time limits of things that only facts or samples tell of, such as a node's silence. Volatile.

What arrived while the service could not listen says nothing in time, so after such a while all limits begin
again.
"""

from collections.abc import Iterable
from typing import Generic, TypeVar

K = TypeVar("K")


def overslept(due: float | None, limit_s: float, now: float) -> bool:
    """Whether a service is woken so late that it, not what it watches, may have been stopped."""
    return due is not None and now - due > limit_s / 2


class Timeouts(Generic[K]):
    """`limit_s`: seconds after its beginning at which a thing is late."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._began: dict[K, float] = {}
        """when the limit of each thing that is watched began, mostly the oldest first"""

    def begin(self, key: K, now: float) -> None:
        """Watch it, or begin its limit again."""
        self._began.pop(key, None)
        self._began[key] = now

    def restart(self, keys: Iterable[K], now: float) -> None:
        """Watch exactly these, and begin their limits now."""
        self._began = dict.fromkeys(keys, now)

    def drop(self, key: K) -> None:
        self._began.pop(key, None)

    def first(self) -> float | None:
        """When the first is late, if it does not begin again before; None: nothing is watched."""
        oldest = next(iter(self._began.values()), None)
        return None if oldest is None else oldest + self._limit_s

    def take_late(self, now: float) -> list[K]:
        """Return those that are late, and stop watching them."""
        late = [key for key, began in self._began.items() if began + self._limit_s <= now]
        for key in late:
            del self._began[key]
        return late

    def age_s(self, key: K, now: float) -> float | None:
        """Seconds since its limit began; None: it is not watched."""
        began = self._began.get(key)
        return None if began is None else max(now - began, 0.0)
