"""Whether a service that lives also works: when it last did, and since when it owes something.

Owed is what was begun and is not done: work outside, and facts that are stored and were not read. Work that
was given up counts as owed until some other is done. Times are real seconds, by a clock that cannot be set.
"""

import time
from collections.abc import Callable, Hashable


class Progress:
    def __init__(self, limit_s: float, now: Callable[[], float] = time.monotonic) -> None:
        """`limit_s`: how long something may be owed."""
        self._limit_s = limit_s
        self._now = now
        self._owed: dict[Hashable, tuple[str, float]] = {}
        self._given_up: tuple[str, float] | None = None
        self._read = 0
        self.worked_at: float | None = None
        """Unix time; None: not in this life"""
        self.last_activity: tuple[str, float | None] = "", None
        """of what it is there for: the type of its last own fact, or of what it judged, and when"""

    def begin(self, key: Hashable, what: str) -> None:
        self._owed[key] = what, self._now()

    def done(self, key: Hashable) -> None:
        self._owed.pop(key, None)
        self._given_up = None
        self.worked()

    def give_up(self, key: Hashable) -> None:
        owed = self._owed.pop(key, None)
        self._given_up = self._given_up or owed

    def worked(self) -> None:
        self.worked_at = time.time()

    def note(self, activity: str) -> None:
        self.worked()
        self.last_activity = activity, self.worked_at

    def read(self, seq: int, newest: int) -> None:
        """Facts up to `seq` are handled; `newest` is the last that concerns the service."""
        if seq > self._read or newest <= seq:
            self._owed.pop("facts", None)
        if newest > seq and "facts" not in self._owed:
            self.begin("facts", "reading the stream of facts")
        self._read = seq

    def excuse(self) -> None:
        """Count from now on: the service could not work, since the bus was away or this process asleep."""
        now = self._now()
        self._owed = {key: (what, now) for key, (what, _) in self._owed.items()}
        if self._given_up is not None:
            self._given_up = self._given_up[0], now

    def stalled(self) -> str:
        """Work that has been outstanding for too long, in words; empty if none has."""
        owed = [*self._owed.values(), *([self._given_up] if self._given_up else [])]
        if not owed:
            return ""
        what, since = min(owed, key=lambda each: each[1])
        late_s = self._now() - since
        return f"alive but idle: {what} is owed for {late_s:.0f} s" if late_s > self._limit_s else ""
