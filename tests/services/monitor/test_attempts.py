"""How often and how long a job may be tried: interruptions, retries, its time limit; what is shown of it."""

from typing import Any

import pytest

from schemas.base import Event
from schemas.events import JobCompleted, JobFailed, Outcome, PreemptReason, WorkerStopped
from schemas.ids import JobId
from schemas.questions import ShowJob
from schemas.views import JobView
from tests.fact_builders import (
    JOB,
    NODE,
    checkpointed,
    in_queue,
    joined,
    lost,
    preempted,
    refused,
    start_ordered,
    started,
    worker_started,
    worker_stopped,
)
from tests.services.monitor.monitor_world import World


def a_job(**spec: Any) -> World:  # noqa: ANN401 - any field of JobSpec
    """In the queue of a cluster whose node is lost: who is silent is no part of this."""
    return World(joined(), *in_queue(**spec), lost())


def run(
    world: World,
    number: int,
    *ends: Event,
    reason: PreemptReason = PreemptReason.INTERRUPTED,
    saved: float = 0.0,
) -> list[Event]:
    """One run of the job, from 100 s × its number on, for 50 s; the job goes back to the queue."""
    place, at = f"pl-{number}", 100.0 * number
    last = preempted(at=at + 50, place=place, reason=reason, samples_done=saved)
    return world.tell(start_ordered(at=at, place=place), started(at=at, place=place), *ends, last)


def interrupted(number: int, reason: str = "killed", signal: int | None = None) -> WorkerStopped:
    return worker_stopped(
        at=100.0 * number + 50,
        place=f"pl-{number}",
        outcome=Outcome.INTERRUPTED,
        samples_done=0.0,
        reason=reason,
        signal=signal,
    )


def failed(number: int, *, leads: bool = True, exit_code: int = 3) -> WorkerStopped:
    return worker_stopped(
        place=f"pl-{number}",
        outcome=Outcome.FAILED,
        leads=leads,
        reason=f"exit {exit_code}",
        exit_code=exit_code,
    )


def shown(world: World) -> JobView:
    view = world.ask(ShowJob(job_id=JobId(JOB)))
    assert isinstance(view, JobView)
    return view


# ---- interruptions


def test_interruptions_without_progress_fail_the_job_with_the_last_reason() -> None:
    world = a_job()
    assert run(world, 1, interrupted(1)) == []
    assert run(world, 2, interrupted(2)) == []
    [fact] = run(world, 3, interrupted(3, "a peer was lost"))
    assert isinstance(fact, JobFailed)
    assert fact.reason == "interrupted 3 times without a new checkpoint in between, at last: a peer was lost"


def test_a_new_checkpoint_in_between_begins_the_count_again() -> None:
    world = a_job()
    for number, saved in enumerate([0.0, 0.0, 10.0, 10.0, 20.0, 30.0], start=1):
        assert run(world, number, interrupted(number), saved=saved) == []


def test_work_repeated_after_a_lost_checkpoint_is_progress() -> None:
    world = a_job()
    run(world, 1, interrupted(1), saved=500.0)
    run(world, 2, interrupted(2), saved=500.0)
    world.tell(start_ordered(place="pl-3"), worker_started(place="pl-3", samples_restored=100.0))
    assert run(world, 3, interrupted(3), saved=200.0) == []


def test_preemptions_by_plans_and_lost_nodes_are_no_failed_attempts() -> None:
    world = a_job()
    for number in range(1, 9):
        assert run(world, number, reason=PreemptReason.PLAN) == []
        assert run(world, number + 10, reason=PreemptReason.NODE_LOST) == []


def test_interruptions_on_the_way_up_count_too() -> None:
    world = a_job()
    for number in (1, 2):
        world.tell(start_ordered(place=f"pl-{number}"), interrupted(number))
        assert world.tell(refused(place=f"pl-{number}")) == []
    world.tell(start_ordered(place="pl-3"), interrupted(3))
    assert [type(fact) for fact in world.tell(refused(place="pl-3"))] == [JobFailed]


def test_a_job_that_never_comes_up_in_time_fails() -> None:
    world = a_job()
    for number in (1, 2):
        world.tell(start_ordered(place=f"pl-{number}"))
        assert world.tell(refused(place=f"pl-{number}", late=True)) == []
    world.tell(start_ordered(place="pl-3"))
    [fact] = world.tell(refused(place="pl-3", late=True))
    assert isinstance(fact, JobFailed)
    assert fact.reason.endswith("at last: not up within 60 s")


# ---- failures


def test_a_failure_stands_out_from_the_interruptions_that_it_caused() -> None:
    """A peer that lost the failed worker may report first."""
    world = a_job(retries=1)
    assert run(world, 1, interrupted(1), failed(1), reason=PreemptReason.FAILED) == []
    view = shown(world)
    assert (view.failures, view.interruptions, view.exit_code) == (1, 0, 3)
    [move] = view.preemptions
    assert (move.reason, move.detail, move.exit_code) == (PreemptReason.FAILED, "exit 3", 3)


def test_a_job_fails_when_its_retries_are_used_up() -> None:
    world = a_job(retries=1)
    assert run(world, 1, failed(1), failed(1, leads=False), reason=PreemptReason.FAILED) == []
    world.tell(start_ordered(place="pl-2"), started(place="pl-2"))
    assert [type(fact) for fact in world.tell(failed(2))] == [JobFailed]


def test_a_job_done_before_its_start_is_reported_completes_at_the_report() -> None:
    world = World(joined(), *in_queue(), start_ordered(), worker_started())
    assert world.tell(worker_stopped(at=9.0)) == []
    assert [type(fact) for fact in world.tell(started(at=8.0))] == [JobCompleted]


# ---- the time limit


def test_a_job_fails_at_its_time_limit_over_all_of_its_runs() -> None:
    world = a_job(time_limit_s=120.0)
    run(world, 1, reason=PreemptReason.PLAN)
    run(world, 2, reason=PreemptReason.PLAN)
    world.tell(start_ordered(at=1000.0, place="pl-3"), started(at=1000.0, place="pl-3"))
    assert world.until(1019.0) == []
    [fact] = world.until(1021.0)
    assert isinstance(fact, JobFailed)
    assert (fact.at, fact.placement_id) == (1020.0, "pl-3")
    assert fact.reason == "its time limit of 120 s of running is over"
    assert world.monitor.next_wakeup() is None


@pytest.mark.parametrize("snapshot", [True, False])
def test_a_time_limit_outlives_the_monitor(snapshot: bool) -> None:  # noqa: FBT001 - a case of the test
    world = a_job(time_limit_s=120.0)
    world.tell(start_ordered(at=10.0), started(at=10.0))
    world.restart(at=20.0, snapshot=snapshot)
    assert world.monitor.next_wakeup() == 130.0


def test_a_job_that_ends_in_time_has_no_limit_any_more() -> None:
    world = a_job(time_limit_s=120.0)
    world.tell(start_ordered(at=10.0), started(at=10.0), worker_stopped(at=60.0))
    assert world.monitor.next_wakeup() is None


# ---- what is shown


def test_a_job_s_view_counts_its_checkpoints_and_how_long_it_ran() -> None:
    world = a_job()
    run(world, 1, checkpointed(place="pl-1", samples_done=5.0), interrupted(1, signal=9), saved=5.0)
    run(world, 2, checkpointed(place="pl-2", samples_done=9.0), reason=PreemptReason.PLAN, saved=9.0)
    world.now = 500.0
    view = shown(world)
    assert (view.checkpoints, view.running_s, view.signal, view.interruptions) == (2, 100.0, 9, 1)
    assert [move.signal for move in view.preemptions] == [9, None]
    assert view.nodes == (NODE,)


def stopped_with(samples: float, *, at: float, place: str) -> WorkerStopped:
    return worker_stopped(at=at, place=place, outcome=Outcome.CHECKPOINTED, samples_done=samples)


def test_a_checkpoint_that_a_worker_stops_with_is_counted_once() -> None:
    world = a_job()
    world.tell(started(place="pl-1"), checkpointed(place="pl-1", at=40.0, samples_done=400.0))
    world.tell(
        stopped_with(400.0, at=90.0, place="pl-1"), preempted(at=90.0, place="pl-1", samples_done=400.0)
    )
    view = shown(world)
    assert (view.checkpoints, view.samples_saved, view.saved_at) == (1, 400.0, 90.0)

    world.tell(started(at=100.0, place="pl-2"))
    assert shown(world).saved_at == 90.0, "a run that saved nothing yet has no newer one"
    world.tell(stopped_with(700.0, at=150.0, place="pl-2"))
    view = shown(world)
    assert (view.checkpoints, view.samples_saved, view.saved_at) == (2, 700.0, 150.0)


def test_a_job_that_saved_nothing_has_no_checkpoint() -> None:
    world = a_job()
    world.tell(started(), worker_stopped(samples_done=1000.0))
    view = shown(world)
    assert (view.checkpoints, view.samples_saved, view.saved_at) == (0, 0.0, None)
