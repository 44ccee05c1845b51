"""Decides by facts alone when a simulation is over, so that both engines end at the same fact. Pure."""

from loadgen.standstill import stuck_after_s
from schemas.base import Event
from schemas.events import JobEvent
from schemas.ids import JobId
from shared.domain.states import ENDED, MOVES, IllegalMove, JobState, next_state


class OpenJobs:
    """Jobs that were submitted and have not ended."""

    def __init__(self, round_s: float) -> None:
        self._stuck_after_s = stuck_after_s(round_s)
        self._open: dict[JobId, JobState] = {}
        self._heard: set[str] = set()
        """ids of the facts so far, since the stream may have a fact twice"""
        self._last_s = self._now_s = 0.0
        """time of the last fact about a job, and of the last fact"""

    def hear(self, fact: Event) -> None:
        self._now_s = max(self._now_s, fact.at)
        if not isinstance(fact, JobEvent) or fact.event_id in self._heard:
            return
        self._heard.add(fact.event_id)
        self._last_s = fact.at
        if type(fact) not in MOVES:
            return
        try:
            after = next_state(self._open.get(fact.job_id), fact)
        except IllegalMove:
            return
        if after in ENDED:
            del self._open[fact.job_id]
        else:
            self._open[fact.job_id] = after

    @property
    def left(self) -> list[JobId]:
        """In the order of their ids."""
        return sorted(self._open)

    @property
    def over(self) -> bool:
        """Whether all jobs have ended, or those left will never be placed. Valid once all are submitted."""
        quiet = self._now_s - self._last_s > self._stuck_after_s
        return not self._open or (quiet and JobState.RUNNING not in self._open.values())
