"""Which GPUs the planner believes to be spoken for."""

import pytest

from schemas.base import Event
from schemas.events import PlacementRefused, ProfileFailed
from schemas.ids import GpuType, JobId, NodeId, PlacementId, PlanId
from schemas.plans import PlanKind
from services.planner.core.folds import fold
from services.planner.core.state import State
from services.planner.core.viewing import idle_gpus, view_of, waiting
from services.planner.policies.contract.view import ViewJob
from services.planner.solver.effort import Effort
from tests.fact_builders import (
    K80,
    cancelled,
    completed,
    config,
    in_queue,
    joined,
    lost,
    opened,
    placement,
    plan,
    preempted,
    profile_run,
    started,
    worker_started,
    worker_stopped,
)

TWO = config(node_1=2)


def after(*facts: Event) -> State:
    state = State()
    for fact in facts:
        fold(state, fact)
    return state


def running(*gpus: int) -> list[Event]:
    """Node-1 with 8 GPUs, and job-1 on two of them."""
    return [
        joined(),
        *in_queue(demand=(2,)),
        plan(placement(on=TWO)),
        worker_started(at=10.0, gpu_indices=gpus or (0, 1)),
        started(at=10.0, on=TWO),
    ]


def refused() -> PlacementRefused:
    return PlacementRefused(
        at=1.0, placement_id=PlacementId("pl-1"), plan_id=PlanId("plan-1"), job_id=JobId("job-1"), reason="so"
    )


def profile_over() -> ProfileFailed:
    return ProfileFailed(
        at=1.0,
        job_id=JobId("job-1"),
        placement_id=PlacementId("pf-1"),
        gpu_type=GpuType("v100"),
        node_id=NodeId("node-1"),
        reason="no",
        final=True,
    )


@pytest.mark.parametrize(
    ("facts", "idle"),
    [
        ([joined()], 8),
        (running(), 6),
        ([*running()[:5]], 6),  # planned, not started
        ([*running()[:5], refused()], 8),
        ([*running(), completed(at=20.0)], 6),  # the worker is still there
        ([*running(), completed(at=20.0), worker_stopped(at=21.0)], 8),
        ([*running(), cancelled(at=20.0), worker_stopped(at=21.0)], 8),
        ([*running(), worker_stopped(at=20.0), preempted(at=20.0)], 8),
        ([*running(), plan(plan_id=PlanId("plan-2"))], 6),  # superseded, still stopping
        ([*running(), lost(at=20.0)], 0),
        ([*running(), joined(at=20.0, life="2")], 8),  # a new life without the worker
        ([*running(), joined(at=20.0, life="2", workers=["pl-1"])], 6),
        ([joined(), opened(profile_run(), profile_run(place="pf-2"))], 6),
        ([joined(), opened(profile_run()), worker_started(place="pf-1")], 7),
        ([joined(), opened(profile_run()), profile_over()], 8),
        ([joined(), opened(profile_run()), worker_started(place="pf-1"), profile_over()], 7),
        ([joined(), opened(profile_run()), worker_stopped(place="pf-1")], 8),
    ],
)
def test_idle_gpus(facts: list[Event], idle: int) -> None:
    assert idle_gpus(after(*facts)) == idle


def test_a_plan_of_a_leader_that_was_replaced_counts_for_nothing() -> None:
    facts = [joined(), *in_queue(), plan(token=5), plan(placement(), plan_id=PlanId("old"), token=4)]
    assert idle_gpus(after(*facts)) == 8


def test_a_fragment_plan_adds_to_what_was_planned() -> None:
    more = plan(placement("job-2", place="pl-2"), plan_id=PlanId("plan-2"), kind=PlanKind.FRAGMENT)
    assert idle_gpus(after(*running(), *in_queue("job-2"), more)) == 5


def test_a_job_with_a_promise_of_gpus_waits_no_more() -> None:
    assert waiting(after(joined(), *in_queue())) == ["job-1"]
    assert waiting(after(*running()[:5])) == []
    assert waiting(after(*running()[:5], refused())) == ["job-1"]


def seen(state: State, at: float, kind: PlanKind = PlanKind.FIRST) -> ViewJob:
    [only] = view_of(
        state, kind=kind, at=at, round_s=360.0, restart_s=15.0, policy="hops", effort=Effort()
    ).jobs
    return only


def test_a_job_waits_from_its_submission_and_not_while_it_holds_gpus() -> None:
    state = after(*running())  # submitted at 0, started at 10
    assert seen(state, 50.0).wait_s == 10.0
    fold(state, preempted(at=60.0, samples_done=300.0))
    assert seen(state, 100.0).wait_s == 50.0


def test_attained_service_is_gpus_times_time_by_placement() -> None:
    state = after(*running())
    assert seen(state, 50.0).attained_gpu_s == 80.0
    fold(state, preempted(at=60.0))
    later = seen(state, 100.0)
    assert (later.attained_gpu_s, later.received_s, later.restarts) == (100.0, {"v100": 50.0}, 1)


def test_time_on_several_types_is_credited_by_their_shares_of_the_gang() -> None:
    """Three GPUs, one of them a K80, for 30 s and then for 60 s."""
    both = config(node_1=2, node_2=1)
    state = after(
        joined(),
        joined("node-2", gpu_type=K80),
        *in_queue(demand=(3,)),
        plan(placement(on=both)),
        *(worker_started(node_id=node, at=10.0) for node in ("node-1", "node-2")),
        started(at=10.0, on=both),
    )
    assert seen(state, 40.0).received_s == pytest.approx({"k80": 10.0, "v100": 20.0})
    fold(state, preempted(at=70.0))
    later = seen(state, 100.0)
    assert later.received_s == pytest.approx({"k80": 20.0, "v100": 40.0})
    assert sum(later.received_s.values()) * 3 == pytest.approx(later.attained_gpu_s)


def test_progress_is_what_was_reported_and_from_then_on_estimated() -> None:
    state = after(*running())
    assert seen(state, 20.0).samples_done == 100.0  # 10 samples/s since second 10
    fold(state, preempted(at=60.0, samples_done=300.0))
    assert seen(state, 100.0).samples_done == 300.0


def test_progress_never_passes_the_end() -> None:
    assert seen(after(*running()), 1e6).samples_done == 1000.0


def test_an_ended_job_is_forgotten_and_a_late_fact_about_it_is_void() -> None:
    state = after(*running(), completed(at=20.0), cancelled(at=21.0), preempted(at=22.0))
    assert state.jobs == {}


def test_a_job_sees_only_the_types_it_was_measured_on() -> None:
    state = after(joined(), joined("node-2", gpu_type="k80"), *in_queue())
    assert seen(state, 1.0).gpu_types == ("v100",)
