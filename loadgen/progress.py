"""The progress of a simulation, fact by fact."""

from collections.abc import Callable

import msgspec

from loadgen.stack import ENDINGS
from schemas.events import JobEvent
from schemas.ids import JobId
from shared.runtime.bus.contract import Record


class Progress(msgspec.Struct, frozen=True):
    at: float
    """cluster time"""
    ended: int
    total: int
    """number of jobs, with those that have not arrived"""

    @property
    def share(self) -> float:
        return self.ended / self.total if self.total else 1.0


Watch = Callable[[Progress], None]


def watched(total: int, watch: Watch) -> Callable[[Record], None]:
    """A sink of records that calls `watch` with the progress at each of them. `total`: number of jobs."""
    ended: set[JobId] = set()

    def hear(record: Record) -> None:
        fact = record.event
        if isinstance(fact, JobEvent) and type(fact) in ENDINGS:
            ended.add(fact.job_id)
        watch(Progress(fact.at, len(ended), total))

    return hear
