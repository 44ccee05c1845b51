"""Decides by facts alone when a simulation is over, so that both engines end at the same fact. Pure."""

from loadgen.stack import ENDINGS
from loadgen.standstill import stuck_after_s
from schemas.base import Event
from schemas.events import JobCompleted, JobEvent, JobPreempted, JobStarted, JobSubmitted
from schemas.ids import JobId


class OpenJobs:
    """Jobs that were submitted and have not ended."""

    def __init__(self, round_s: float) -> None:
        self._stuck_after_s = stuck_after_s(round_s)
        self._open: set[JobId] = set()
        self._running: set[JobId] = set()
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
        if isinstance(fact, JobSubmitted):
            self._open.add(fact.job_id)
        elif isinstance(fact, JobStarted):
            self._running.add(fact.job_id)
        elif isinstance(fact, JobPreempted):
            self._running.discard(fact.job_id)
        elif type(fact) in ENDINGS and not self._void(fact):
            self._running.discard(fact.job_id)
            self._open.discard(fact.job_id)

    def _void(self, fact: JobEvent) -> bool:
        """Whether it is a completion published after a preemption: the job is in the queue again."""
        return isinstance(fact, JobCompleted) and fact.job_id not in self._running

    @property
    def left(self) -> list[JobId]:
        """In the order of their ids."""
        return sorted(self._open)

    @property
    def over(self) -> bool:
        """Whether all jobs have ended, or those left will never be placed. Valid once all are submitted."""
        return not self._open or (not self._running and self._now_s - self._last_s > self._stuck_after_s)
