"""When the next plan is due. Volatile: after a restart it begins from scratch. Pure."""

import math
from enum import StrEnum

from schemas.plans import PlanKind
from schemas.settings import Settings
from shared.domain.cluster import round_at


class Call(StrEnum):
    """Kinds of call for a plan. Of those due at one time, the first in this list comes first."""

    FIRST = PlanKind.FIRST.value
    FRAGMENT = PlanKind.FRAGMENT.value
    HELP = "help"
    """for waiting jobs: a fragment plan if that serves all of them, else a first plan"""


class Schedule:
    def __init__(self, settings: Settings, grace_s: float) -> None:
        """`grace_s`: how long a round waits for the profiler; at most half of it."""
        self._round_s = settings.round_s
        self._settle_s = settings.fragment_settle_s
        self._grace_s = min(grace_s, settings.round_s / 2)
        self._due: dict[Call, float] = {}
        self._not_before = -math.inf

    def expect(self, call: Call, at: float) -> None:
        """Have a plan of this kind made at this time, or before."""
        self._due[call] = min(at, self._due.get(call, at))

    def settled(self, now: float) -> float:
        """The time at which facts have had `fragment_settle_s` to gather."""
        return now + self._settle_s

    def hold(self, now: float) -> None:
        """Put plans off for a little while."""
        self._not_before = self.settled(now)

    def begun(self, call: Call) -> None:
        """A plan is begun. It replaces a fragment plan that was due; a first plan replaces all that were."""
        for other in Call if call is Call.FIRST else (Call.FRAGMENT, call):
            self._due.pop(other, None)

    def skip(self, call: Call) -> None:
        self._due.pop(call, None)

    def opening(self, now: float, *, planned: int, opened: int) -> float | None:
        """When the present round's first plan is to be made; None: it has one.

        `planned`, `opened`: the last round with a first plan, and the last that the profiler opened.
        """
        present = round_at(now, self._round_s)
        if planned >= present:
            return None
        return max(now, self._not_before) if opened >= present else self._late_opening(present)

    def next(self, now: float, opening: float | None) -> tuple[float, Call]:
        """The next plan and its time, past or to come.

        While the round has no first plan, only that one counts.
        """
        boundary = self.boundary(now)
        if opening is not None and opening < boundary:
            return max(opening, self._not_before), Call.FIRST
        first = max(boundary if opening is None else opening, self._not_before), Call.FIRST
        if not self._due:
            return first
        return min([first, *((max(at, self._not_before), call) for call, at in self._due.items())])

    def boundary(self, now: float) -> float:
        """When the next round begins: after `now`, whichever way the division was rounded."""
        start = (round_at(now, self._round_s) + 1) * self._round_s
        return start if start > now else start + self._round_s

    def _late_opening(self, present: int) -> float:
        return max(present * self._round_s + self._grace_s, self._not_before)
