"""Times for people: as dates if the cluster's clock is the wall clock, else in cluster time.

Pure, but for the time zone of this machine.
"""

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime

import msgspec

from hopyard.show.units import brief, clock, duration, number
from schemas.views import ClockView
from shared.domain.quantities import seconds_in

UNIX = ClockView(now=0.0, origin=0.0, speed=1.0)
IN_UNIX_TIME = frozenset({"services"})
"""members of answers whose times are Unix seconds, at any speed of the cluster"""


class Times:
    """Shows times of one cluster. Without the cluster's clock neither dates nor ages are known."""

    def __init__(self, clock: ClockView | None) -> None:
        self._clock = clock

    @property
    def by_calendar(self) -> bool:
        return self._clock is not None and self._clock.speed == 1.0

    @property
    def now(self) -> float | None:
        """The cluster time when the clock was asked."""
        return None if self._clock is None else self._clock.now

    def moment(self, at: float | None) -> str:
        """`2026-11-22 09:15:02 CET (3m 08s ago)`, or `02:03:15.0 (3m 08s ago)`."""
        if at is None:
            return ""
        since = self._since(at)
        return self.date(at) if since is None else f"{self.date(at)} ({duration(since)} ago)"

    def date(self, at: float) -> str:
        local = self._local(at)
        return local.strftime("%Y-%m-%d %H:%M:%S %Z") if local else clock(at)

    def column(self, at: float) -> str:
        """A time of fixed width for lists, without its age."""
        local = self._local(at)
        return local.strftime("%Y-%m-%d %H:%M:%S%z") if local else f"{clock(at):>12}"

    def instant(self, text: str) -> float | None:
        """The cluster time of an age (30m, 2h) or a date; None: the text is neither, or no clock is known."""
        ago_s = seconds_in(text)
        if self._clock is None:
            return None
        if ago_s is not None:
            return self._clock.now - ago_s
        try:
            moment = datetime.fromisoformat(text).timestamp()
        except (ValueError, OverflowError):  # no date, or none that this machine's zone can have
            return None
        return moment - self._clock.origin if self.by_calendar else None

    def short(self, at: float | None) -> str:
        """`3m ago`, for a narrow column; in cluster time, like all durations."""
        if at is None:
            return ""
        since = self._since(at)
        return clock(at) if since is None else f"{brief(since)} ago"

    def iso(self, at: float) -> str | None:
        """ISO 8601 with the zone's offset; None if the moment has no date."""
        local = self._local(at)
        return local.isoformat(timespec="milliseconds") if local else None

    def note(self) -> str:
        """A note on how to read the times of an answer."""
        if self.by_calendar:
            return ""
        speed = f": {number(self._clock.speed)} cluster seconds a second" if self._clock else ""
        return f"times are cluster time{speed}"

    def _since(self, at: float) -> float | None:
        return None if self._clock is None else max(self._clock.now - at, 0.0)

    def _local(self, at: float) -> datetime | None:
        """The date; None: the cluster's clock is not the wall clock, or the calendar ends before.

        An agent whose clock is wrong states any time. A zone that is a day or more off counts as UTC.
        """
        if self._clock is None or not self.by_calendar:
            return None
        with suppress(ValueError, OverflowError):
            date = datetime.fromtimestamp(self._clock.origin + at, UTC)
            with suppress(ValueError, OverflowError):
                return date.astimezone()
            return date
        return None


def dated(answer: object, times: Times) -> object:
    """The answer as plain data; beside each time `at`, `since` or `…_at` stands its date, `…_iso`."""
    return _dated(msgspec.to_builtins(answer), times)


def _dated(value: object, times: Times) -> object:
    if isinstance(value, list | tuple):
        return [_dated(each, times) for each in value]
    if not isinstance(value, Mapping):
        return value
    found: dict[object, object] = {}
    for name, each in value.items():
        found[name] = _dated(each, Times(UNIX) if name in IN_UNIX_TIME else times)
        if isinstance(each, float | int) and _is_moment(name) and (date := times.iso(each)) is not None:
            found[f"{name}_iso"] = date
    return found


def _is_moment(name: object) -> bool:
    return isinstance(name, str) and (name in {"at", "since"} or name.endswith("_at"))
