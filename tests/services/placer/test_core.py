"""The placer's core: what it orders when plans, workers and nodes come and go."""

from collections.abc import Sequence
from typing import TypeVar

import msgspec
import pytest

from schemas.base import Event
from schemas.events import (
    GangFormed,
    GpusWithheld,
    JobCancelled,
    JobCompleted,
    JobPreempted,
    JobStarted,
    NodeJoined,
    NodeLost,
    NodeReturned,
    Outcome,
    PlacementRefused,
    PreemptReason,
    ProfileRun,
    ProfilingPlanned,
    StartOrdered,
    StopOrdered,
    WorkerCheckpointed,
    WorkerStopped,
)
from schemas.ids import GpuType, JobId, NodeId, PlacementId
from schemas.placement import Gang, Relaxed
from schemas.plans import Placement, PlanKind
from services.placer.core import Placer
from services.placer.state import State
from shared.domain.core import Effects, Publish
from tests.services.placer.placer_bench import JOB, OTHER, A, B, Bench, joined, node, place, worker_started

E = TypeVar("E", bound=Event)
THIRD, FOURTH = JobId("job-3"), JobId("job-4")


def only(kind: type[E], events: Sequence[Event]) -> E:
    found = [event for event in events if isinstance(event, kind)]
    assert len(found) == 1, f"{kind.__name__}: {found}"
    return found[0]


def refusal_of(events: Sequence[Event]) -> str:
    """The reason that is published first; any repetition is the same fact, by its id."""
    found = [event for event in events if isinstance(event, PlacementRefused)]
    assert len({event.event_id for event in found}) == 1
    return found[0].reason


def published(effects: Effects) -> list[PlacementRefused]:
    facts = [effect.event for effect in effects if isinstance(effect, Publish)]
    return [fact for fact in facts if isinstance(fact, PlacementRefused)]


def kinds(events: Sequence[Event]) -> list[type[Event]]:
    return [type(event) for event in events]


def test_a_plan_starts_a_worker_on_every_node_of_the_gang() -> None:
    facts = Bench().plan(place("p1", a=4, b=2))
    assert kinds(facts) == [StartOrdered, StartOrdered]


def test_a_job_starts_when_all_its_workers_are_up_and_the_leader_is_informed() -> None:
    bench = Bench()
    placement = place("p1", a=2, b=2)
    facts = bench.start(placement)
    started = only(JobStarted, facts)
    assert (started.learning_rate, started.global_batch) == (0.4, 128)
    assert only(GangFormed, facts).node_id == A


def test_the_gang_does_not_form_while_a_worker_is_missing() -> None:
    bench = Bench()
    placement = place("p1", a=2, b=2)
    bench.plan(placement)
    assert bench.tell(worker_started(placement, A, 2)) == []


def test_a_job_that_keeps_its_configuration_is_left_alone() -> None:
    bench = Bench()
    placement = place("p1", a=4)
    bench.start(placement)
    assert bench.plan(placement) == []


def test_a_move_stops_first_and_starts_from_the_checkpoint() -> None:
    bench = Bench()
    old, new = place("p1", a=4), place("p2", a=2, b=2)
    bench.start(old)
    assert kinds(bench.plan(new)) == [StopOrdered]
    facts = bench.stop(old, A, Outcome.CHECKPOINTED, samples=500.0)
    assert only(JobPreempted, facts).samples_done == 500.0
    assert {event.samples_done for event in facts if isinstance(event, StartOrdered)} == {500.0}


def test_a_start_waits_until_the_gpus_are_free() -> None:
    bench = Bench(nodes=(A,))
    old, new = place("p1", a=4), place("p2", OTHER, a=4)
    bench.start(old)
    assert kinds(bench.plan(new)) == [StopOrdered]
    assert StartOrdered in kinds(bench.stop(old, A, Outcome.CHECKPOINTED))


def test_gpus_that_came_free_go_to_one_of_those_that_wait_for_them() -> None:
    bench = Bench(nodes=(A,))
    first, second = place("p1", a=2), place("p2", OTHER, a=2)
    bench.submit(THIRD)
    bench.submit(FOURTH)
    bench.start(first)
    bench.start(second)
    bench.plan(place("p3", THIRD, a=2), place("p4", FOURTH, a=2))
    assert only(StartOrdered, bench.stop(second, A, Outcome.CHECKPOINTED)).placement_id == "p3"
    assert only(StartOrdered, bench.stop(first, A, Outcome.CHECKPOINTED)).placement_id == "p4"


def test_a_fragment_plan_leaves_running_jobs_alone() -> None:
    bench = Bench()
    bench.start(place("p1", a=4))
    assert kinds(bench.plan(place("p2", OTHER, b=4), kind=PlanKind.FRAGMENT)) == [StartOrdered]


def test_a_plan_of_an_older_leader_is_refused() -> None:
    bench = Bench()
    bench.plan(token=7)
    refused = only(PlacementRefused, bench.plan(place("p1", a=1), token=6))
    assert refused.reason == "its plan is by an older leader of the planner"


def test_a_plan_of_an_older_leader_leaves_running_jobs_alone() -> None:
    bench = Bench()
    running = place("p1", a=4)
    bench.start(running)
    bench.plan(running, token=7)
    facts = bench.plan(running, place("p2", OTHER, b=4), token=6)
    assert only(PlacementRefused, facts).placement_id == "p2"
    assert bench.core.state.placements[running.placement_id].wanted


@pytest.mark.parametrize(
    ("placement", "reason"),
    [
        (place("p1", JobId("gone"), a=1), "the job has ended, or was cancelled"),
        (place("p1", c=1), "node c is lost"),
        (place("p1", a=5), "node a has fewer than 5 GPUs that no other placement has or waits for"),
    ],
)
def test_an_impossible_placement_is_refused_with_the_reason(placement: Placement, reason: str) -> None:
    assert only(PlacementRefused, Bench().plan(placement)).reason == reason


def test_a_fragment_plan_that_would_double_own_gpus_is_refused() -> None:
    bench = Bench()
    bench.start(place("p1", a=3))
    facts = bench.plan(place("p2", OTHER, a=2), kind=PlanKind.FRAGMENT)
    assert kinds(facts) == [PlacementRefused]


def test_a_job_whose_last_worker_completed_is_not_placed_again() -> None:
    bench = Bench()
    bench.start(place("p1", a=4))
    bench.stop(place("p1", a=4), A, Outcome.COMPLETED, samples=1e6)
    refused = only(PlacementRefused, bench.plan(place("p2", b=4)))
    assert refused.reason == "the job's last worker has ended it"


def test_a_move_that_crosses_the_job_s_end_starts_no_worker() -> None:
    bench = Bench()
    old = place("p1", a=4)
    bench.start(old)
    bench.plan(place("p2", b=4))
    assert bench.stop(old, A, Outcome.COMPLETED, samples=1e6) == []


def test_a_placement_never_starts_again_though_a_plan_keeps_it() -> None:
    bench = Bench()
    bench.start(place("p1", a=4))
    bench.tell(NodeJoined(at=60.0, node_id=A, node=node(A), life="2"))
    refused = [only(PlacementRefused, bench.plan(place("p1", a=4))) for _ in range(2)]
    assert refused[0].reason == "the placement has ended since the plan was made"
    assert refused[0].event_id != refused[1].event_id  # each plan is answered


def test_a_lost_node_ends_its_gangs_with_the_last_checkpoint() -> None:
    bench = Bench()
    placement = place("p1", a=2, b=2)
    bench.start(placement)
    bench.tell(
        WorkerCheckpointed(
            at=40.0, node_id=A, placement_id=placement.placement_id, job_id=JOB, samples_done=300.0
        )
    )
    facts = bench.tell(NodeLost(at=45.0, node_id=A))
    assert {event.node_id for event in facts if isinstance(event, StopOrdered)} == {A, B}
    preempted = only(JobPreempted, bench.stop(placement, B, Outcome.CHECKPOINTED))
    assert (preempted.reason, preempted.samples_done) == (PreemptReason.NODE_LOST, 300.0)


def test_a_returned_node_starts_no_worker_before_its_stale_ones_have_stopped() -> None:
    bench = Bench(nodes=(A,))
    stale, new = place("p1", a=4), place("p2", a=4)
    bench.start(stale)
    bench.tell(NodeLost(at=45.0, node_id=A))
    bench.tell(NodeReturned(at=60.0, node_id=A))
    assert bench.plan(new) == []
    assert kinds(bench.stop(stale, A, Outcome.CHECKPOINTED)) == [StartOrdered]


def test_an_agent_that_begins_a_new_life_has_lost_its_workers() -> None:
    bench = Bench()
    bench.start(place("p1", a=4))
    facts = bench.tell(NodeJoined(at=60.0, node_id=A, node=node(A), life="2"))
    assert only(JobPreempted, facts).reason is PreemptReason.AGENT_RESTARTED


def test_a_worker_without_a_placement_is_stopped_and_holds_its_gpus_until_then() -> None:
    bench = Bench(nodes=(A,))
    ghost, new = place("ghost", a=4), place("p1", OTHER, a=4)
    assert kinds(bench.tell(worker_started(ghost, A, 4))) == [StopOrdered]
    assert bench.plan(new) == []
    assert kinds(bench.stop(ghost, A, Outcome.CHECKPOINTED)) == [StartOrdered]


def test_gpus_of_a_worker_without_a_placement_are_free_once_its_node_joins_without_it() -> None:
    bench = Bench(nodes=(A,))
    bench.tell(worker_started(place("ghost", a=4), A, 4))
    bench.plan(place("p1", OTHER, a=4))
    facts = bench.tell(joined(A, node(A), life="2", at=60.0))
    assert only(StartOrdered, facts).placement_id == "p1"


def test_a_measurement_that_waits_for_a_withheld_gpu_starts_once_it_is_released() -> None:
    bench = Bench(nodes=(A,))
    old = place("p1", a=4)
    bench.start(old)
    run = ProfileRun(placement_id=PlacementId("pf"), job_id=OTHER, gpu_type=GpuType("t4"), node_id=A)
    bench.tell(ProfilingPlanned(at=30.0, round=1, runs=(run,)))
    bench.tell(GpusWithheld(at=40.0, node_id=A, gpus=dict.fromkeys(range(4), "it fell off the bus")))
    assert StartOrdered not in kinds(bench.stop(old, A, Outcome.CHECKPOINTED))
    facts = bench.tell(GpusWithheld(at=60.0, node_id=A, gpus={}))
    assert only(StartOrdered, facts).placement_id == "pf"


def test_a_cancelled_job_is_stopped_and_not_preempted() -> None:
    bench = Bench()
    placement = place("p1", a=4)
    bench.start(placement)
    assert kinds(bench.tell(JobCancelled(at=30.0, job_id=JOB))) == [StopOrdered]
    assert bench.stop(placement, A, Outcome.CHECKPOINTED) == []


def test_a_job_that_completed_is_placed_no_more() -> None:
    bench = Bench()
    placement = place("p1", a=4)
    bench.start(placement)
    end = JobCompleted(at=50.0, job_id=JOB, placement_id=placement.placement_id, samples_done=1e6)
    assert kinds(bench.tell(end)) == [StopOrdered]
    assert bench.stop(placement, A, Outcome.COMPLETED, samples=1e6) == []
    refused = only(PlacementRefused, bench.plan(place("p2", b=4)))
    assert refused.reason == "the job has ended, or was cancelled"
    assert bench.tell(end) == []


def test_the_completion_of_a_job_that_never_started_is_void() -> None:
    bench = Bench()
    end = JobCompleted(at=50.0, job_id=JOB, placement_id=PlacementId("p1"), samples_done=1e6)
    assert bench.tell(end) == []
    assert kinds(bench.plan(place("p1", a=4))) == [StartOrdered]


def test_placements_that_end_together_are_stopped_in_the_order_of_their_plans() -> None:
    """Whatever the order of the facts about them."""
    bench = Bench()
    bench.submit(THIRD)
    for placement in (place("p1", a=1), place("p2", OTHER, a=1), place("p3", THIRD, a=1)):
        bench.plan(placement, kind=PlanKind.FRAGMENT)
    placements = list(bench.core.state.placements.values())
    for placed in reversed(placements):
        bench.core.state.stop(placed, PreemptReason.PLAN)
    assert bench.core.state.take_changed() == placements


def test_when_the_leader_is_done_the_others_are_stopped() -> None:
    bench = Bench()
    placement = place("p1", a=2, b=2)
    bench.start(placement)
    facts = bench.stop(placement, A, Outcome.COMPLETED, samples=1e6)
    assert only(StopOrdered, facts).node_id == B


def test_a_node_that_refuses_sends_the_job_back_to_the_queue() -> None:
    bench = Bench()
    placement = place("p1", a=4)
    bench.plan(placement)
    facts = bench.stop(placement, A, Outcome.REFUSED)
    assert refusal_of(facts) == "node a refused it"
    assert bench.core.state.placements == {}


def test_a_refusal_has_the_reason_that_the_node_gave() -> None:
    bench = Bench()
    placement = place("p1", a=4)
    bench.plan(placement)
    stopped = WorkerStopped(
        at=50.0,
        node_id=A,
        placement_id=placement.placement_id,
        job_id=JOB,
        outcome=Outcome.REFUSED,
        samples_done=0.0,
        leads=True,
        reason="its disk is full",
    )
    assert refusal_of(bench.tell(stopped)) == "its disk is full"


def test_a_worker_that_comes_up_once_its_stop_is_ordered_is_not_ordered_to_stop_again() -> None:
    bench = Bench()
    placement = place("p1", a=4)
    bench.plan(placement)
    assert kinds(bench.plan()) == [StopOrdered]
    assert bench.come_up(placement) == []
    assert kinds(bench.stop(placement, A, Outcome.CHECKPOINTED)) == [PlacementRefused]


def test_a_gang_that_does_not_come_up_in_time_is_taken_back() -> None:
    bench = Bench()
    bench.plan(place("p1", a=2, b=2), at=10.0)
    assert bench.core.next_wakeup() == 70.0
    facts = bench.wake(70.0)
    assert kinds(facts) == [PlacementRefused, StopOrdered, StopOrdered]
    refusal = facts[0]
    assert isinstance(refusal, PlacementRefused)
    assert refusal.reason == "its workers on a, b were not up within start_timeout_real_s (60 s)"
    assert bench.core.next_wakeup() is None


def test_a_late_start_names_some_nodes_and_the_limit_in_real_seconds() -> None:
    bench = Bench(nodes=[NodeId(name) for name in "abcde"], speed=30.0)
    bench.plan(place("p1", a=1, b=1, c=1, d=1, e=1), at=10.0)
    refusal = bench.wake(70.0)[0]
    assert isinstance(refusal, PlacementRefused)
    assert refusal.reason == (
        "its workers on a, b, c and 2 other nodes were not up within start_timeout_real_s (2 s)"
    )


@pytest.mark.parametrize("at", [70.0, 71.0, 100.0])
def test_a_gang_is_late_from_its_time_limit_on_and_refused_once(at: float) -> None:
    bench = Bench()
    bench.plan(place("p1", a=2), kind=PlanKind.FRAGMENT, at=10.0)
    bench.plan(place("p2", OTHER, a=2), kind=PlanKind.FRAGMENT, at=at)
    assert bench.wake(69.9) == []
    assert bench.core.next_wakeup() == 70.0
    refused = bench.core.wake(at)
    assert [(fact.placement_id, fact.late) for fact in published(refused)] == [("p1", True)]
    assert bench.core.wake(at) == []  # it is not back from the stream yet
    assert bench.core.next_wakeup() == at + 60.0


def test_a_measurement_comes_before_training_and_keeps_its_place() -> None:
    bench = Bench(nodes=(A,))
    old, new = place("p1", a=4), place("p2", OTHER, a=3)
    bench.start(old)
    run = ProfileRun(placement_id=PlacementId("profile"), job_id=OTHER, gpu_type=GpuType("t4"), node_id=A)
    assert bench.tell(ProfilingPlanned(at=30.0, round=1, runs=(run,))) == []
    bench.plan(new)
    facts = bench.stop(old, A, Outcome.CHECKPOINTED)
    starts = [event for event in facts if isinstance(event, StartOrdered)]
    assert [(start.placement_id, start.profile_iterations) for start in starts] == [
        ("profile", 20),
        ("p2", 0),
    ]


def test_a_measurement_that_found_no_gpu_is_given_back_at_the_next_round() -> None:
    bench = Bench(nodes=(A,))
    bench.start(place("p1", a=4))
    run = ProfileRun(placement_id=PlacementId("profile"), job_id=OTHER, gpu_type=GpuType("t4"), node_id=A)
    bench.tell(ProfilingPlanned(at=30.0, round=1, runs=(run,)))
    facts = bench.tell(ProfilingPlanned(at=390.0, round=2, runs=()))
    assert only(PlacementRefused, facts).placement_id == "profile"


@pytest.mark.parametrize(
    ("job", "node", "reason"),
    [
        (JobId("gone"), A, "the job has ended, or was cancelled"),
        (OTHER, NodeId("absent"), "node absent is lost"),
    ],
)
def test_a_planned_measurement_is_given_back_with_the_reason(job: JobId, node: NodeId, reason: str) -> None:
    run = ProfileRun(placement_id=PlacementId("profile"), job_id=job, gpu_type=GpuType("t4"), node_id=node)
    facts = Bench().tell(ProfilingPlanned(at=30.0, round=1, runs=(run,)))
    assert only(PlacementRefused, facts).reason == reason


def test_a_replay_gives_the_same_state_and_resume_publishes_no_fact() -> None:
    bench = Bench()
    old = place("p1", a=4)
    bench.start(old)
    bench.plan(place("p2", a=2, b=2), place("p3", OTHER, b=2))
    again = Placer(start_timeout_s=60.0, profile_iterations=20)
    for event in bench.log:
        again.handle(event, event.at)
    assert again.state == bench.core.state
    assert again.resume(100.0) == []
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(again.state), type=State) == again.state


def test_a_mode_that_a_node_does_not_run_is_refused() -> None:
    bench = Bench()
    members = place("p1", a=1).gang.members
    [refused] = bench.plan(
        msgspec.structs.replace(place("p1", a=1), gang=Gang(members, Relaxed(tasks=((1,),))))
    )
    assert isinstance(refused, PlacementRefused)
    assert refused.reason == "node a runs no relaxed gangs"
