"""Whether a service that lives also works: when it last did, and since when work is outstanding.

Outstanding is work that was begun and is not done, and facts that are stored and not handled. Work that was
given up counts as outstanding until other work is done. Times are real seconds, by a clock that cannot be
set.
"""

import time
from collections.abc import Callable, Hashable


class Progress:
    def __init__(self, limit_s: float, now: Callable[[], float] = time.monotonic) -> None:
        """`limit_s`: how long work may be outstanding."""
        self._limit_s = limit_s
        self._now = now
        self._outstanding: dict[Hashable, tuple[str, float]] = {}
        self._given_up: tuple[str, float] | None = None
        self._read = 0
        self.worked_at: float | None = None
        """Unix time; None: not in this life"""
        self.last_activity: tuple[str, float | None] = "", None
        """the type of the last fact that it published, or message that it judged, and when (Unix time)"""

    def begin(self, key: Hashable, what: str) -> None:
        self._outstanding[key] = what, self._now()

    def done(self, key: Hashable) -> None:
        self._outstanding.pop(key, None)
        self._given_up = None
        self.worked()

    def give_up(self, key: Hashable) -> None:
        work = self._outstanding.pop(key, None)
        self._given_up = self._given_up or work

    def worked(self) -> None:
        self.worked_at = time.time()

    def record_activity(self, activity: str) -> None:
        self.worked()
        self.last_activity = activity, self.worked_at

    def read(self, seq: int, newest: int) -> None:
        """Facts up to `seq` are handled; `newest` is the last that concerns the service."""
        if seq > self._read or newest <= seq:
            self._outstanding.pop("facts", None)
        if newest > seq and "facts" not in self._outstanding:
            self.begin("facts", "reading the stream of facts")
        self._read = seq

    def restart_limits(self) -> None:
        """Count from now on, since the service could not work: the bus was away, or this process asleep."""
        now = self._now()
        self._outstanding = {key: (what, now) for key, (what, _) in self._outstanding.items()}
        if self._given_up is not None:
            self._given_up = self._given_up[0], now

    def stalled(self) -> str:
        """Work that has been outstanding for too long, in words; empty if none has."""
        outstanding = [*self._outstanding.values(), *([self._given_up] if self._given_up else [])]
        if not outstanding:
            return ""
        what, since = min(outstanding, key=lambda each: each[1])
        late_s = self._now() - since
        return f"alive but idle: {what} is outstanding for {late_s:.0f} s" if late_s > self._limit_s else ""
