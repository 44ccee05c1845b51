"""Which jobs are warm on which nodes, as the planner knows from facts, and what a switch takes."""

import msgspec
import pytest

from schemas.events import Outcome, StartOrdered
from schemas.ids import Fingerprint, GpuType, JobId, NodeId, PlacementId
from schemas.placement import Gang, Relaxed
from schemas.plans import Layer, Placement, PlanKind
from schemas.settings import Settings
from services.planner.core.restart_times import SWITCH_S, RestartTimes
from services.planner.core.staying import charge
from services.planner.core.viewing import view_of
from services.planner.policies.contract.view import ViewJob
from tests.fact_builders import (
    NODE,
    in_queue,
    joined,
    opened,
    preempted,
    start_ordered,
    started,
    worker_started,
    worker_stopped,
)
from tests.services.planner.planner_builders import MODELLED, Stage

A = GpuType("a")
OURS = Fingerprint("ours")
JOB = JobId("job-1")
BUDGET = Settings(policy="hare", restart_share_max=0.1)


def gang(gpus: int, node: str = NODE) -> Gang:
    return Gang.of({NodeId(node): gpus}, Relaxed(tasks=((1,) * gpus,)))


def order(at: float, place: str, on: Gang) -> StartOrdered:
    one = start_ordered(JOB, at=at, place=place)
    return msgspec.structs.replace(one, gang=on)


def stage_of(residents_max: int = 16) -> Stage:
    stage = Stage(BUDGET)
    there = joined(modes=("lockstep", "relaxed"))
    stage.tell(msgspec.structs.replace(there, residents_max=residents_max))
    stage.tell(*in_queue(JOB, demand=(4,), samples=1e9), opened())
    return stage


def ran(stage: Stage, place: str, at: float, *, took_s: float, gpus: int = 2) -> None:
    """From the order to start until it was stopped."""
    on = gang(gpus)
    stage.tell(
        order(at, place, on),
        worker_started(JOB, at=at + took_s, place=place, gpu_indices=range(gpus)),
        started(JOB, at=at + took_s, place=place, on=on),
        worker_stopped(JOB, at=at + 100.0, place=place, outcome=Outcome.CHECKPOINTED, samples_done=1.0),
        preempted(JOB, at=at + 100.0, place=place),
    )


def seen(stage: Stage) -> ViewJob:
    view = view_of(
        stage.core.state,
        kind=PlanKind.FIRST,
        at=stage.now,
        round_s=60.0,
        restart_s=15.0,
        policy="hare",
        effort=MODELLED,
    )
    [job] = view.jobs
    return job


def test_a_job_is_warm_where_it_ran_and_its_next_start_there_is_a_switch() -> None:
    stage = stage_of()
    ran(stage, "first", 10.0, took_s=10.0)
    assert seen(stage).warm == {NODE: 2}
    ran(stage, "second", 200.0, took_s=0.5)
    [known] = stage.core.state.restarts.known[stage.core.state.jobs[JOB].workload].values()
    assert (known.start.count, known.start.seconds) == (1, 10.0)
    assert (known.switch.count, known.switch.seconds) == (1, 0.5)
    ran(stage, "third", 400.0, took_s=9.0, gpus=3)
    [known] = stage.core.state.restarts.known[stage.core.state.jobs[JOB].workload].values()
    assert (known.start.count, known.switch.count) == (2, 1), "on more GPUs than it had it starts anew"


def test_no_job_is_warm_on_a_node_that_keeps_no_processes() -> None:
    stage = stage_of(residents_max=0)
    ran(stage, "first", 10.0, took_s=10.0)
    assert not seen(stage).warm


def test_no_job_is_warm_on_a_node_after_its_agent_restarted() -> None:
    stage = stage_of()
    ran(stage, "first", 10.0, took_s=10.0)
    again = joined(at=150.0, life="2", modes=("lockstep", "relaxed"))
    stage.tell(msgspec.structs.replace(again, residents_max=16))
    assert not seen(stage).warm


def test_the_time_of_a_switch_is_the_papers_mean_until_it_is_measured() -> None:
    times = RestartTimes()
    assert times.switch_cost_s(OURS, [A], SWITCH_S["hare"]) == SWITCH_S["hare"]
    times.switched(OURS, [A], 2.0)
    times.stopped(OURS, [A], 4.0)
    assert times.switch_cost_s(OURS, [A], 0.0) == pytest.approx(2.0 / 2 + 4.0 / 2)
    assert times.expected_s(OURS, 15.0) == {A: pytest.approx(10.0 + (5.0 + 4.0) / 2)}, "a start is another"


@pytest.mark.parametrize(("gpus", "spent"), [(2, False), (3, True)])
def test_a_move_to_where_it_is_warm_takes_next_to_nothing_of_the_budget(gpus: int, spent: bool) -> None:  # noqa: FBT001
    """On two GPUs its processes stand by, on a third there is none."""
    stage = stage_of()
    ran(stage, "first", 10.0, took_s=10.0)
    on = gang(1)
    moved = Placement(
        placement_id=PlacementId("next"), job_id=JOB, gang=gang(gpus), throughput=1.0, layer=Layer.THEORY
    )
    present = msgspec.structs.replace(moved, placement_id=PlacementId("now"), gang=on)
    stage.core.state.claims.plan(PlanKind.FRAGMENT, [present])
    stage.tell(
        order(200.0, "now", on),
        worker_started(JOB, at=200.0, place="now", gpu_indices=range(1)),
        started(JOB, at=200.0, place="now", on=on),
    )
    plan = msgspec.structs.replace(
        stage.plan, at=300.0, kind=PlanKind.FIRST, token=stage.core.state.token, placements=(moved,)
    )
    charge(stage.core.state, plan, BUDGET)
    assert (stage.core.state.moves_from > 301.0) == spent
