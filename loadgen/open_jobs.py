"""When a simulation is over: by facts alone, so that both engines end at the same one. Pure."""

from loadgen.stack import ENDINGS
from schemas.base import Event
from schemas.events import JobEvent, JobPreempted, JobStarted
from schemas.ids import JobId

STUCK_S = 24 * 3600.0
"""of cluster time without any job running, or anything happening to one"""


class OpenJobs:
    """Jobs that were accepted and have not ended."""

    def __init__(self) -> None:
        self._open: set[JobId] = set()
        self._ended: set[JobId] = set()
        """some before admission's answer was heard"""
        self._running: set[JobId] = set()
        self._last_s = self._now_s = 0.0
        """when something last happened to a job; when anything did"""

    def accept(self, job_id: JobId) -> None:
        if job_id not in self._ended:
            self._open.add(job_id)

    def hear(self, fact: Event) -> None:
        self._now_s = fact.at
        if not isinstance(fact, JobEvent):
            return
        self._last_s = fact.at
        if isinstance(fact, JobStarted):
            self._running.add(fact.job_id)
        elif isinstance(fact, JobPreempted):
            self._running.discard(fact.job_id)
        elif type(fact) in ENDINGS:
            self._running.discard(fact.job_id)
            self._open.discard(fact.job_id)
            self._ended.add(fact.job_id)

    @property
    def over(self) -> bool:
        """All have ended, or those that wait are never placed. To be asked once all are submitted."""
        return not self._open or (not self._running and self._now_s - self._last_s > STUCK_S)
