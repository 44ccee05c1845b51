"""What restarts are learnt to take, and which running jobs a first plan leaves where they are."""

import msgspec
import pytest

from schemas.events import GpusWithheld, NodeDrained, NodeRestored
from schemas.ids import Fingerprint, GpuType, JobId, NodeId, PlacementId
from schemas.plans import Cause, PlanKind
from schemas.settings import Settings
from services.planner.core.restart_times import REMEMBERED, RestartTimes
from services.planner.policies.registry import names
from tests.fact_builders import (
    NODE,
    config,
    held,
    in_queue,
    joined,
    lost,
    opened,
    preempted,
    profiled,
    queued,
    released,
    start_ordered,
    started,
    stop_ordered,
    submitted,
    worker_started,
    worker_stopped,
)
from tests.services.planner.planner_builders import Stage

A, B = GpuType("a"), GpuType("b")
MODES = ("lockstep", "relaxed")
OURS = Fingerprint("ours")


def test_the_cost_of_a_restart_is_the_default_until_it_is_measured() -> None:
    times = RestartTimes()
    assert times.cost_s(OURS, [A], 15.0) == 15.0
    times.started(OURS, [A], 40.0)
    times.stopped(OURS, [A], 5.0)
    assert times.cost_s(OURS, [A], 15.0) == pytest.approx((10 + 40) / 2 + 5)
    assert times.cost_s(OURS, [B], 15.0) == 15.0
    assert times.expected_s(OURS, 15.0) == {A: pytest.approx(30.0)}
    assert times.expected_s(Fingerprint("theirs"), 15.0) == {}


def test_the_estimate_follows_a_change() -> None:
    times = RestartTimes()
    for _ in range(REMEMBERED):
        times.started(OURS, [A], 10.0)
    for _ in range(3 * REMEMBERED):
        times.started(OURS, [A], 100.0)
    assert times.cost_s(OURS, [A], 15.0) == pytest.approx(100.0, rel=0.15)


def up(stage: Stage, *, at: float, ordered_at: float) -> None:
    """The workers of the last plan, ordered to start, and started."""
    [placement] = stage.plan.placements
    where = placement.gang.configuration
    stage.tell(
        start_ordered(placement.job_id, at=ordered_at, place=placement.placement_id),
        *(
            worker_started(
                placement.job_id, at=at, place=placement.placement_id, node_id=node, gpu_indices=range(gpus)
            )
            for node, gpus in where.items()
        ),
        started(placement.job_id, at=at, place=placement.placement_id, on=placement.gang),
    )


def one_that_runs(settings: Settings, *, preemptible: bool = True) -> Stage:
    """`job-1` on all of the one node from 20 s on; its start took 18 s."""
    stage = Stage(settings)
    stage.tell(joined(modes=MODES), *in_queue(demand=(8,), samples=1e9, preemptible=preemptible), opened())
    up(stage, at=20.0, ordered_at=2.0)
    return stage


SRTF = Settings(policy="srtf", restart_share_max=1.0)
"""a first plan at every event"""


SHORT = (
    submitted("short", at=30.0, demand=(8,)),
    profiled("short", at=30.0),
    queued("short", at=30.0, age_s=1.0),
)
"""a job that SRTF puts first"""


def holder(stage: Stage) -> list[str]:
    return [placement.job_id for placement in stage.plan.placements]


def test_restart_times_are_learnt_from_orders_and_their_outcomes() -> None:
    stage = one_that_runs(SRTF)
    [placement] = stage.plan.placements
    workload = stage.core.state.jobs[JobId("job-1")].workload
    gpu_type = stage.core.state.nodes[NodeId(NODE)].node.gpu_type
    known = stage.core.state.restarts.known[workload][gpu_type]
    assert (known.start.seconds, known.start.count, known.stop.count) == (18.0, 1, 0)
    stage.tell(
        stop_ordered("job-1", at=500.0, place=placement.placement_id),
        worker_stopped("job-1", at=507.0, place=placement.placement_id),
        preempted("job-1", at=507.0, place=placement.placement_id),
    )
    assert stage.core.state.restarts.known[workload][gpu_type].stop.seconds == 7.0


def test_a_stop_that_a_lost_node_cuts_short_is_no_measurement() -> None:
    stage = one_that_runs(SRTF)
    [placement] = stage.plan.placements
    workload = stage.core.state.jobs[JobId("job-1")].workload
    stage.tell(
        stop_ordered("job-1", at=500.0, place=placement.placement_id),
        lost(at=500.2),
        preempted("job-1", at=500.2, place=placement.placement_id),
    )
    [known] = stage.core.state.restarts.known[workload].values()
    assert (known.start.count, known.stop.count) == (1, 0)


def test_a_job_runs_its_minimum_and_a_plan_is_made_when_it_has() -> None:
    """A restart is believed to take 15 s, and was measured to take 18 s to start: (10 + 18) / 2 + 5."""
    stage = one_that_runs(msgspec.structs.replace(SRTF, minimum_run_restarts=4.0))
    stage.tell(*SHORT)
    stage.until(31.0)
    assert holder(stage) == ["job-1"]
    stage.until(20.0 + 4 * 19.0 - 0.1)
    assert holder(stage) == ["job-1"]
    stage.until(20.0 + 4 * 19.0 + 0.1)
    assert holder(stage) == ["short"]


@pytest.mark.parametrize("limits", [{"minimum_run_restarts": 9.0}, {"restart_share_max": 0.001}])
def test_a_job_on_hold_stops_whatever_it_ran_and_costs_the_budget_nothing(limits: dict[str, float]) -> None:
    stage = one_that_runs(msgspec.structs.replace(SRTF, **limits))
    stage.core.state.moves_from = before = 20.0 + 190.0
    stage.tell(held("job-1", at=21.0))
    stage.until(25.0)
    assert (holder(stage), stage.plan.kind) == ([], PlanKind.FIRST)
    assert stage.core.state.moves_from == before
    stage.until(300.0)
    assert len(stage.plans) == 2


@pytest.mark.parametrize("policy", ["srtf", "fifo", "sia", "allox", "hare", "yarn-cs", "jps", "tiresias"])
def test_a_job_that_is_released_while_it_is_stopped_is_planned_again(policy: str) -> None:
    """Even if nothing else happens."""
    stage = one_that_runs(msgspec.structs.replace(SRTF, policy=policy))
    place = stage.plan.placements[0].placement_id
    stage.tell(held("job-1", at=21.0))
    stage.until(400.0)
    assert holder(stage) == []
    stage.tell(stop_ordered(at=400.0, place=place), released("job-1", at=401.0))
    stopped = preempted("job-1", at=405.0, place=place, samples_done=5.0)
    cause = Cause(plan_id=stage.plan.plan_id, on_hold=True)
    stage.tell(msgspec.structs.replace(stopped, cause=cause), worker_stopped("job-1", at=405.0, place=place))
    stage.until(1200.0)
    assert holder(stage) == ["job-1"]


def test_a_drained_node_keeps_no_job() -> None:
    stage = one_that_runs(msgspec.structs.replace(SRTF, minimum_run_restarts=4.0))
    stage.tell(joined("node-2", at=21.0), NodeDrained(at=22.0, node_id=NodeId(NODE)))
    stage.tell(*SHORT)
    stage.until(31.0)
    assert NODE not in {node for placed in stage.plan.placements for node in placed.gang.nodes}


@pytest.mark.parametrize("policy", ["srtf", "hops"])
def test_moves_wait_until_those_before_are_made_up_for(policy: str) -> None:
    """152 GPU·s spent; a tenth of 8 GPUs makes up for them in 190 s."""
    settings = Settings(policy=policy, minimum_run_restarts=0.0, restart_share_max=0.1)
    stage = one_that_runs(settings)
    stage.core.state.moves_from = 20.0 + 190.0
    assert stage.plan.kind is PlanKind.FIRST
    stage.tell(*SHORT)
    stage.until(31.0)
    assert holder(stage) == ["job-1"]


def test_moves_are_charged_to_the_restart_budget() -> None:
    stage = one_that_runs(msgspec.structs.replace(SRTF, minimum_run_restarts=0.0, restart_share_max=0.1))
    stage.tell(*SHORT)
    assert holder(stage) == ["short"]
    assert stage.core.state.moves_from == pytest.approx(stage.plan.at + 8 * 19.0 / (0.1 * 8))


def test_a_policy_that_does_not_see_staying_jobs_plans_around_them() -> None:
    stage = Stage(Settings(policy="hops", minimum_run_restarts=100.0))
    stage.tell(joined(), *in_queue(demand=(4,)), opened())
    up(stage, at=20.0, ordered_at=2.0)
    stage.tell(*in_queue("other", at=359.0, demand=(8,)), opened(at=360.0, number=1))
    stage.until(362.0)
    assert (holder(stage), stage.plan.idle_gpus) == (["job-1"], 4)
    assert [left.job_id for left in stage.plan.left_out] == ["other"]
    assert stage.plan.placements[0].gang.configuration == config(node_1=4)
    assert stage.plan.placements[0].placement_id == PlacementId(stage.plans[0].placements[0].placement_id)


LIMITLESS = msgspec.structs.replace(SRTF, minimum_run_restarts=0.0)


def rounds(stage: Stage, count: int) -> None:
    """A short job a round, all older than it and dearer to any policy; the last GPU is taken."""
    for number in range(1, count + 1):
        at = 360.0 * number
        name = f"short-{number}"
        stage.tell(
            submitted(name, at=at - 1.0, demand=(8,), samples=1.0, priority=1000.0),
            profiled(name, at=at - 1.0),
            queued(name, at=at - 1.0, age_s=1.0),
            opened(at=at, number=number),
        )
        stage.until(at + 30.0)


@pytest.mark.parametrize("policy", [name for name in names() if name != "hops-literal"])  # leaves a GPU
def test_a_job_that_is_not_preemptible_keeps_its_place(policy: str) -> None:
    """Others may get turns beside it, on the same GPUs; no policy but Hare gives any."""
    stage = one_that_runs(msgspec.structs.replace(LIMITLESS, policy=policy), preemptible=False)
    rounds(stage, 3)
    first, *later = (plan.placements for plan in stage.plans if plan.kind is PlanKind.FIRST)
    assert len(later) >= 3
    assert [placed.job_id for placed in first] == ["job-1"]
    kept = (first[0].placement_id, first[0].gang.configuration)
    assert all(kept in ((p.placement_id, p.gang.configuration) for p in placements) for placements in later)
    assert policy == "hare" or all(first[0] in placements for placements in later)
    assert not any(plan.notes for plan in stage.plans)


@pytest.mark.parametrize("policy", ["gavel", "gavel-ftf", "sia", "hops", "hops+moving_cost_s=0", "hopyard"])
def test_others_are_planned_for_the_gpus_beside_a_job_that_is_not_preemptible(policy: str) -> None:
    """The large job needs 4 GPUs or more, and 2 are left: the small one gets them."""
    stage = Stage(msgspec.structs.replace(LIMITLESS, policy=policy))
    stage.tell(joined(), *in_queue(demand=(6,), samples=1e9, preemptible=False), opened())
    up(stage, at=20.0, ordered_at=2.0)
    stage.tell(
        *in_queue("large", at=21.0, demand=(4, 6, 8), samples=1e9),
        *in_queue("small", at=350.0, demand=(1, 2, 4, 6, 8), samples=1e9),
        opened(at=360.0, number=1),
    )
    stage.until(362.0)
    assert stage.plan.kind is PlanKind.FIRST
    assert sorted(holder(stage)) == ["job-1", "small"]
    assert [left.job_id for left in stage.plan.left_out] == ["large"]


@pytest.mark.parametrize("policy", [name for name in names() if name != "hops-literal"])  # leaves a GPU
def test_a_job_keeps_its_place_where_a_gpu_broke_and_the_node_is_restored(policy: str) -> None:
    """The job holds 8 GPUs of a node that has 7; the short ones fit another node."""
    stage = one_that_runs(msgspec.structs.replace(LIMITLESS, policy=policy), preemptible=False)
    [kept] = stage.plan.placements
    stage.tell(
        NodeDrained(at=22.0, node_id=NodeId(NODE)),
        GpusWithheld(at=22.0, node_id=NodeId(NODE), gpus={3: "broken"}),
        NodeRestored(at=23.0, node_id=NodeId(NODE)),
        joined("node-2", at=24.0, modes=MODES),
    )
    before = len(stage.plans)
    rounds(stage, 3)
    plans = [plan for plan in stage.plans[before:] if plan.kind is PlanKind.FIRST]
    assert len(plans) >= 3
    assert all(kept in plan.placements for plan in plans)
    assert not any(plan.notes for plan in plans)


def test_a_policy_that_moves_others_would_have_moved_it() -> None:
    stage = one_that_runs(LIMITLESS)
    rounds(stage, 1)
    assert holder(stage) == ["short-1"]


def test_a_drained_node_keeps_not_even_a_job_that_is_not_preemptible() -> None:
    stage = one_that_runs(LIMITLESS, preemptible=False)
    stage.tell(joined("node-2", at=21.0), NodeDrained(at=22.0, node_id=NodeId(NODE)))
    rounds(stage, 1)
    assert NODE not in {node for placed in stage.plan.placements for node in placed.gang.nodes}
