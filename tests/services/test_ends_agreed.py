"""Placer and monitor each judge from the same facts whether a job has come to its end: they must agree.

A job that the placer holds to be over, and of which the monitor says nothing, would wait for ever.
"""

import msgspec
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from schemas.base import Event
from schemas.events import JobCancelled, JobSubmitted, Outcome
from schemas.ids import JobId, NodeId
from schemas.plans import PlanKind
from services.monitor.core import Monitor
from shared.domain import gangs
from shared.domain.core import Publish
from tests.fact_builders import profiled, queued
from tests.services.placer.placer_bench import JOB, OTHER, A, B, place
from tests.services.placer.test_properties import A_STEP, Cluster, stopped

ENDS = [Outcome.COMPLETED, Outcome.FAILED, Outcome.INTERRUPTED, Outcome.CHECKPOINTED, Outcome.REFUSED]
RETRIED = JobId("job-3")
HALF = 5e5
"""of a job's samples"""
JOBS = [JOB, OTHER, RETRIED]
PLACES = [{"a": 4}, {"b": 3}, {"a": 2, "b": 2}]
Step = tuple[object, ...]
PLAN = st.tuples(
    st.just("plan"),
    st.just(PlanKind.FRAGMENT),
    st.tuples(st.sampled_from(JOBS), st.sampled_from(PLACES), st.booleans()).map(lambda one: [one]),
)
NEXT = st.one_of(
    st.tuples(st.just("answer"), st.booleans()),
    st.tuples(st.just("end"), st.sampled_from([A, B]), st.sampled_from(ENDS), st.booleans()),
    st.tuples(st.just("late")),
    st.tuples(st.just("hear")),
)
RUN = st.tuples(PLAN, st.lists(NEXT, max_size=5)).map(lambda run: [run[0], *run[1]])
"""a placement, and what comes of it"""
OF_COPIES = st.tuples(
    st.sampled_from(JOBS).map(lambda job: ("plan", PlanKind.FRAGMENT, [(job, {"a": 2, "b": 2}, True)])),
    st.lists(NEXT, max_size=4),
).map(lambda run: [run[0], ("answer", True), ("hear",), *run[1]])
"""two copies that train, of half of the samples each"""
BESIDES = st.one_of(A_STEP, st.tuples(st.just("cancel"), st.sampled_from(JOBS))).map(lambda step: [step])
STEPS = st.lists(st.one_of(RUN, OF_COPIES, BESIDES), max_size=12).map(
    lambda parts: [one for part in parts for one in part]
)


class Pair(Cluster):
    """The placer's cluster, and a monitor that hears its stream when it is let; one job has a retry."""

    def __init__(self, interruptions_max: int) -> None:
        super().__init__()
        self.bench.submit(RETRIED, retries=1)
        self.monitor = Monitor(
            lease_s=1e9, raqlr_window_s=3600.0, speed=1.0, interruptions_max=interruptions_max
        )
        self._heard = 0

    def step(self, step: Step) -> None:
        match step:
            case ("end", str() as name, Outcome() as outcome, bool() as saved):
                self.end(NodeId(name), outcome, saved=saved)
            case ("late",):
                self.bench.wake(1e6)
            case ("hear",):
                self.hear()
            case ("cancel", str() as job_id):
                self.bench.tell(JobCancelled(at=55.0, job_id=JobId(job_id)))
            case _:
                super().step(step)

    def end(self, node_id: NodeId, outcome: Outcome, *, saved: bool) -> None:
        """Let the first worker on the node end by itself; a copy may have `saved` its share before."""
        for placed in self.bench.core.state.placements.values():
            if node_id in placed.workers:
                placement = place(placed.placement_id, placed.job_id, **placed.gang.configuration)
                end = stopped(placement, node_id)
                leads = node_id in gangs.leaders(placed.gang)
                if gangs.merges(placed.gang) and outcome is Outcome.COMPLETED:
                    end = msgspec.structs.replace(end, outcome=Outcome.QUOTA, samples_done=HALF, leads=leads)
                else:
                    done = HALF if gangs.merges(placed.gang) and saved else 0.0
                    end = msgspec.structs.replace(end, outcome=outcome, leads=leads, samples_done=done)
                self.bench.tell(end)
                return

    def hear(self) -> None:
        while self._heard < len(self.bench.log):
            fact = self.bench.log[self._heard]
            self._heard += 1
            for heard in _with_its_queueing(fact):
                for effect in self.monitor.handle(heard, heard.at):
                    assert isinstance(effect, Publish)
                    self.bench.tell(effect.event)

    def rest(self) -> None:
        """Let workers that were ordered to stop do so, until there is nothing to be said."""
        before = -1
        while before < len(self.bench.log):
            before = len(self.bench.log)
            self.hear()
            self.answer(up=False)


def _with_its_queueing(fact: Event) -> list[Event]:
    if not isinstance(fact, JobSubmitted):
        return [fact]
    return [fact, profiled(fact.job_id), queued(fact.job_id)]


SAVED_AND_KILLED: list[Step] = [
    *(("plan", PlanKind.FRAGMENT, [(JOB, {"a": 2, "b": 2}, True)]), ("answer", True), ("hear",)),
    *(("end", A, Outcome.INTERRUPTED, True), ("hear",), ("end", B, Outcome.COMPLETED, False)),
]
"""one copy is killed between its last checkpoint and its last word: the job was over, and nobody said so"""


@example(SAVED_AND_KILLED, 3)
@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS, st.integers(1, 3))
def test_the_placer_and_the_monitor_agree_on_ended_jobs(steps: list[Step], interruptions_max: int) -> None:
    pair = Pair(interruptions_max)
    for step in steps:
        pair.step(step)
    pair.rest()
    jobs = pair.bench.core.state.jobs
    for job_id in JOBS:
        record = pair.monitor.state.ledger.jobs[job_id]
        assert record.ended == (job_id not in jobs), job_id
        assert job_id not in jobs or not jobs[job_id].ended, job_id
