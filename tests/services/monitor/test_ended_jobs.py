"""When a job is complete, and when it has failed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from schemas.base import Event
from schemas.events import JobCompleted, JobFailed, Outcome, PreemptReason
from schemas.ids import JobId, PlacementId
from services.monitor.core import Monitor
from shared.domain.core import Publish
from shared.domain.metrics import summary
from shared.domain.states import JobState
from tests.fact_builders import (
    JOB,
    cancelled,
    completed,
    in_queue,
    joined,
    opened,
    placement,
    plan,
    preempted,
    profile_run,
    start_ordered,
    started,
    submitted,
    worker_started,
    worker_stopped,
)
from tests.services.monitor.monitor_world import World


def running(job_id: str = JOB) -> World:
    return World(joined(), *in_queue(job_id), plan(placement(job_id)), start_ordered(job_id), started(job_id))


def test_a_job_is_complete_when_its_leader_is() -> None:
    world = running()
    assert world.tell(worker_stopped(at=90)) == [
        JobCompleted(at=90, job_id=JobId(JOB), placement_id=PlacementId("pl-1"), samples_done=1000)
    ]
    assert world.monitor.state.ending == {}


def test_a_job_is_not_complete_when_another_of_the_gang_is() -> None:
    assert running().tell(worker_stopped(leads=False)) == []


@pytest.mark.parametrize("outcome", [Outcome.COMPLETED, Outcome.FAILED])
def test_a_node_without_an_order_cannot_end_the_job(outcome: Outcome) -> None:
    """Its agent may say so of its own node; what it says of others' jobs is a lie."""
    world = running()
    world.tell(joined("another"))
    assert world.tell(worker_stopped(node_id="another", outcome=outcome, at=90)) == []
    record = world.monitor.state.ledger.jobs[JobId(JOB)]
    assert (record.failures, record.samples_done, record.present is None) == (0, 0.0, False)
    assert world.tell(worker_stopped(at=91)) != []


def test_a_worker_of_an_earlier_placement_does_not_complete_the_job() -> None:
    world = running()
    world.tell(preempted(), started(place="pl-2"))
    assert world.tell(worker_stopped(place="pl-1")) == []


@pytest.mark.parametrize("at", [60, 90])
def test_a_job_whose_worker_completed_before_its_node_was_lost_is_complete(at: float) -> None:
    """Its report comes after the preemption, even if it is older than that."""
    world = running()
    world.tell(preempted(at=70, reason=PreemptReason.NODE_LOST, samples_done=400))
    [fact] = world.tell(worker_stopped(at=at))
    assert isinstance(fact, JobCompleted)
    assert (fact.at, fact.samples_done) == (max(at, 70), 1000)
    record = world.monitor.state.ledger.jobs[JobId(JOB)]
    assert (record.state, record.samples_done) == (JobState.COMPLETED, 1000)
    assert world.monitor.state.ending == {}
    assert record.runs[-1].samples_to == 400
    summary(world.monitor.state.ledger)


def test_such_a_job_is_complete_while_its_next_placement_comes_up() -> None:
    world = running()
    world.tell(preempted(reason=PreemptReason.NODE_LOST), start_ordered(place="pl-2", node_id="another"))
    assert [type(fact) for fact in world.tell(worker_stopped())] == [JobCompleted]


def test_a_completion_that_crosses_a_preemption_ends_the_job() -> None:
    world = running()
    world.tell(preempted(at=91, reason=PreemptReason.NODE_LOST), completed(at=90))
    record = world.monitor.state.ledger.jobs[JobId(JOB)]
    assert (record.state, world.monitor.state.ledger.void) == (JobState.COMPLETED, 0)


def test_a_completion_that_a_preemption_crosses_stands() -> None:
    """Were it taken for void, it would not be published again where it had got lost."""
    world = running()
    [end] = world.monitor.handle(worker_stopped(at=90), 90)
    assert world.monitor.handle(preempted(at=91, reason=PreemptReason.NODE_LOST), 91) == []
    assert world.monitor.resume(92) == [end]


def test_a_job_of_a_lost_node_whose_script_ended_by_itself_says_so() -> None:
    world = running()
    early = replace(worker_stopped(reason="its script ended"), samples_trained=320.0)
    world.tell(preempted(reason=PreemptReason.NODE_LOST), early)
    record = world.monitor.state.ledger.jobs[JobId(JOB)]
    assert (record.state, record.reason) == (JobState.COMPLETED, "its script ended")


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.INTERRUPTED, Outcome.CHECKPOINTED])
def test_another_end_of_a_lost_worker_ends_no_job(outcome: Outcome) -> None:
    world = running()
    world.tell(preempted(reason=PreemptReason.NODE_LOST))
    assert world.tell(worker_stopped(outcome=outcome)) == []


def test_a_stop_on_order_ends_no_job() -> None:
    assert running().tell(worker_stopped(outcome=Outcome.CHECKPOINTED)) == []


@pytest.mark.parametrize("leads", [True, False])
def test_one_failed_worker_fails_the_job(leads: bool) -> None:  # noqa: FBT001 - a case of the test
    [fact] = running().tell(worker_stopped(outcome=Outcome.FAILED, leads=leads, reason="exit 3"))
    assert isinstance(fact, JobFailed)
    assert fact.reason == "exit 3"


def test_a_job_with_several_failed_workers_fails_once() -> None:
    world = running()
    world.tell(worker_stopped(outcome=Outcome.FAILED), worker_stopped(outcome=Outcome.FAILED, leads=False))
    assert [type(fact) for fact in world.published] == [JobFailed]


def test_a_gang_that_fails_while_it_comes_up_fails_the_job() -> None:
    world = World(joined(), *in_queue(), start_ordered())
    assert len(world.tell(worker_stopped(outcome=Outcome.FAILED))) == 1


def test_a_preempted_placement_can_no_longer_fail_the_job() -> None:
    world = running()
    world.tell(preempted())
    assert world.tell(worker_stopped(outcome=Outcome.FAILED)) == []


def test_a_refusal_by_a_node_does_not_fail_the_job() -> None:
    world = World(joined(), *in_queue(), start_ordered())
    assert world.tell(worker_stopped(outcome=Outcome.REFUSED)) == []


@pytest.mark.parametrize("outcome", [Outcome.COMPLETED, Outcome.FAILED])
def test_the_end_of_a_measurement_is_no_end_of_its_job(outcome: Outcome) -> None:
    world = World(
        joined(),
        submitted(),
        opened(profile_run(place="pf-1")),
        start_ordered(place="pf-1", profile_iterations=30),
        worker_started(place="pf-1"),
    )
    assert world.tell(worker_stopped(place="pf-1", outcome=outcome)) == []


def test_a_cancelled_job_ends_no_second_time() -> None:
    world = running()
    world.tell(cancelled())
    assert world.tell(worker_stopped()) == []


@pytest.mark.parametrize("snapshot", [True, False])
def test_an_end_not_seen_in_the_stream_is_published_again_after_a_restart(snapshot: bool) -> None:  # noqa: FBT001
    world = running()
    stopped = worker_stopped(at=90)
    [effect] = world.monitor.handle(stopped, 90)
    assert isinstance(effect, Publish)
    world.log.append(stopped)  # the monitor dies here, before its own fact is stored
    assert world.restart(at=100, snapshot=snapshot) == [effect.event]


def test_an_end_that_a_preemption_overtook_is_published_no_more() -> None:
    world = running()
    world.monitor.handle(worker_stopped(at=90, outcome=Outcome.FAILED), 90)
    assert world.monitor.state.ending
    world.monitor.handle(preempted(at=90), 90)
    assert world.monitor.state.ending == {}
    assert world.monitor.resume(100) == []


def test_an_end_that_was_void_does_not_hide_the_one_that_counts() -> None:
    assert completed(place="pl-1").event_id != completed(place="pl-2").event_id


def test_the_runs_of_jobs_that_ended_long_ago_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.monitor.history.JOBS_WITH_RUNS_KEPT", 1)
    world = running()
    world.tell(worker_stopped(at=90))
    record = world.monitor.state.ledger.jobs[JobId(JOB)]
    assert (len(record.runs), record.run_s, record.wait_s(1000)) == (1, 90, 0)
    world.tell(*in_queue("job-2", at=100), cancelled("job-2", at=110))
    assert (record.runs, record.run_s, record.wait_s(1000)) == ([], 90, 0)


def test_switches_of_jobs_whose_runs_are_not_kept_count_as_their_restarts_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("services.monitor.history.JOBS_WITH_RUNS_KEPT", 0)
    world = running()
    world.tell(preempted(at=50), start_ordered(at=60, place="pl-2"), started(at=64, place="pl-2"))
    world.tell(worker_stopped(at=90, place="pl-2"))
    found = summary(world.monitor.state.ledger)
    assert (found["restarts"], found["switch_s_mean"]) == (1, 4)


ANY: list[Event] = [
    joined(),
    *in_queue(),
    plan(placement()),
    start_ordered(),
    worker_started(),
    started(),
    worker_stopped(at=5),
    worker_stopped(at=5, outcome=Outcome.FAILED),
    preempted(),
    start_ordered(place="pl-2"),
    started(place="pl-2"),
    cancelled(),
    completed(),
]


@given(st.lists(st.sampled_from(ANY), max_size=30), st.integers(0, 30))
def test_a_replay_from_any_snapshot_gives_the_same_state(facts: list[Event], length: int) -> None:
    world = World(*facts[:length])
    world.restart(at=10, snapshot=True)
    world.tell(*facts[length:])
    fresh = Monitor(lease_s=6, interruptions_max=3, raqlr_window_s=3600, speed=1.0)
    for fact in world.log:
        fresh.handle(fact, fact.at)
    assert fresh.state == world.monitor.state
