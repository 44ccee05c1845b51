"""When a simulation is over: once all its jobs have ended by the table of states, or wait for ever."""

from loadgen.open_jobs import OpenJobs
from loadgen.progress import Progress, watched
from loadgen.standstill import stuck_after_s
from schemas.base import Event
from shared.runtime.bus.contract import Record
from tests.fact_builders import completed, in_queue, preempted, started

ROUND_S = 360.0


def heard(*facts: Event) -> OpenJobs:
    jobs = OpenJobs(ROUND_S)
    for fact in [*in_queue(), *facts]:
        jobs.hear(fact)
    return jobs


def test_a_job_that_completed_as_its_node_was_lost_has_ended_for_good() -> None:
    late = completed(at=2.0, place="p-1")
    assert heard(started(place="p-1"), preempted(at=2.0, place="p-1"), late).over
    assert heard(started(place="p-1"), preempted(place="p-1"), late, started(at=3.0, place="p-2")).over


def test_a_job_that_runs_is_open_however_long_nothing_is_heard_of_it() -> None:
    long_s = 2 * stuck_after_s(ROUND_S)
    jobs = heard(started())
    jobs.hear(in_queue("other", at=long_s)[0])
    assert not jobs.over
    jobs.hear(completed(at=long_s))
    assert jobs.left == ["other"]


def test_a_job_that_completes_in_two_placements_counts_once() -> None:
    seen: list[Progress] = []
    hear = watched(1, seen.append)
    for seq, place in enumerate(("p-1", "p-2"), 1):
        hear(Record(seq, completed(place=place)))
    assert [one.share for one in seen] == [1.0, 1.0]
