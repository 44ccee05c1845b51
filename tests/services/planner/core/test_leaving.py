"""Nodes that go away at a known time: whatever the policy, nothing is placed there that would not pay."""

import msgspec
import pytest

from schemas.events import GpusWithheld, NodeDrained, NodeJoined, NodeRestored
from schemas.ids import JobId, NodeId
from schemas.plans import PlanKind
from schemas.settings import Settings
from services.planner.core.leaving import closed
from services.planner.policies.registry import names
from tests.fact_builders import (
    in_queue,
    joined,
    opened,
    start_ordered,
    started,
    worker_started,
)
from tests.services.planner.planner_builders import Stage

SETTINGS = Settings(minimum_run_restarts=4.0, restart_prior_s=15.0, leave_before_end_s=100.0)
NEEDED_S = 15.0 * (1 + 4)
GOES, STAYS = NodeId("goes"), NodeId("stays")
CLOSED = SETTINGS.leave_before_end_s + NEEDED_S - 1.0
"""the end of a node that is closed from the beginning"""
MODES = ("lockstep", "relaxed")
every_policy = pytest.mark.parametrize("policy", names())


def going(until: float, node_id: str = GOES, *, gpus: int = 8) -> NodeJoined:
    fact = joined(node_id, gpus=gpus, modes=MODES)
    return msgspec.structs.replace(fact, node=msgspec.structs.replace(fact.node, until=until))


def stage(policy: str = "fifo", **more: float) -> Stage:
    return Stage(msgspec.structs.replace(SETTINGS, policy=policy, **more))


def places(stage: Stage) -> dict[str, tuple[str, ...]]:
    return {placed.job_id: placed.gang.nodes for placed in stage.plan.placements}


def run(stage: Stage, *, at: float) -> None:
    """What the last plan places is up, and trains."""
    for placement in stage.plan.placements:
        place, where = placement.placement_id, placement.gang.configuration
        stage.tell(
            start_ordered(placement.job_id, at=at, place=place),
            *(
                worker_started(placement.job_id, at=at, place=place, node_id=node, gpu_indices=range(gpus))
                for node, gpus in where.items()
            ),
            started(placement.job_id, at=at, place=place, on=placement.gang),
        )


def closes_at(until: float) -> float:
    return until - SETTINGS.leave_before_end_s - NEEDED_S


def test_a_node_closes_once_no_start_is_worthwhile() -> None:
    one = stage()
    one.tell(going(1_000.0), joined(STAYS, modes=MODES))
    state = one.core.state
    assert closed(state, closes_at(1_000.0) - 1.0, SETTINGS) == frozenset()
    assert closed(state, closes_at(1_000.0), SETTINGS) == frozenset()
    assert closed(state, closes_at(1_000.0) + 1.0, SETTINGS) == {GOES}
    one.tell(NodeDrained(at=900.0, node_id=GOES, life="1"))
    assert closed(state, 900.0, SETTINGS) == frozenset()
    assert not state.nodes[GOES].usable
    one.tell(msgspec.structs.replace(going(2_000.0), life="2"))
    assert state.nodes[GOES].usable


def test_a_leaving_node_closes_earlier_if_restarts_were_seen_to_take_longer() -> None:
    one = stage()
    one.tell(going(10_000.0), *in_queue(demand=(8,), samples=1e9))
    job, gpu_type = one.core.state.jobs[JobId("job-1")], one.core.state.nodes[GOES].node.gpu_type
    for _ in range(20):
        one.core.state.restarts.started(job.workload, [gpu_type], 100.0)
    at = closes_at(10_000.0) - 100.0
    assert closed(one.core.state, at, SETTINGS) == {GOES}
    assert closed(one.core.state, at - 400.0, SETTINGS) == frozenset()


@every_policy
@pytest.mark.parametrize("arrives_at", [0.0, 10.0])
def test_a_job_that_waits_is_placed_elsewhere(policy: str, arrives_at: float) -> None:
    """Both nodes would do, and the one that goes away has more room; by first and by fragment plans."""
    one = stage(policy)
    one.tell(going(CLOSED, gpus=8), joined(STAYS, modes=MODES, gpus=2))
    if arrives_at:
        one.tell(opened())
        one.until(5.0)
    one.tell(*in_queue(demand=(1, 2), samples=1e6, at=arrives_at), opened(at=arrives_at))
    one.until(355.0)
    one.tell(opened(number=1, at=361.0))
    one.until(370.0)
    assert {each.gang.nodes for plan in one.plans for each in plan.placements} == {(STAYS,)}


@every_policy
def test_a_job_waits_where_nothing_else_would_do(policy: str) -> None:
    one = stage(policy)
    one.tell(going(CLOSED), *in_queue(demand=(8,), samples=1e6), opened())
    one.until(400.0)
    assert one.plans
    assert all(not plan.placements for plan in one.plans)


@every_policy
@pytest.mark.parametrize("broken", [0, 5])
def test_a_job_that_runs_there_stays_to_the_last(policy: str, broken: int) -> None:
    """Its restart is due anyway; until then nobody else gets the GPUs, nor is it moved to the idle node.

    Nor, if it is not preemptible, where GPUs break and the node has fewer than it holds.
    """
    one = stage(policy, restart_share_max=1.0, minimum_run_restarts=1.0)
    one.tell(going(100.0 + 400.0), *in_queue(demand=(4,), samples=1e9, preemptible=not broken), opened())
    one.until(5.0)
    assert places(one) == {"job-1": (GOES,)}
    run(one, at=10.0)
    if broken:
        withheld = dict.fromkeys(range(broken), "broken")
        one.tell(
            NodeDrained(at=20.0, node_id=GOES),
            GpusWithheld(at=20.0, node_id=GOES, gpus=withheld),
            NodeRestored(at=21.0, node_id=GOES),
        )
    one.tell(*in_queue("job-2", demand=(4,), samples=1e3, at=385.0), joined(STAYS, modes=MODES, at=386.0))
    one.tell(opened(number=1, at=386.0))
    one.until(395.0)
    last = [plan for plan in one.plans if plan.kind is PlanKind.FIRST][-1]
    assert last.round == 1
    assert not last.notes
    assert "job-1" in {each.job_id for each in last.placements}
    placed = {(each.job_id, each.gang.nodes) for plan in one.plans[1:] for each in plan.placements}
    assert placed <= {("job-1", (GOES,)), ("job-2", (STAYS,))}


@every_policy
def test_when_an_agent_leaves_its_job_is_placed_on_another_node(policy: str) -> None:
    one = stage(policy, restart_share_max=1.0)
    one.tell(going(600.0), *in_queue(demand=(4,), samples=1e9), opened())
    one.until(5.0)
    assert places(one) == {"job-1": (GOES,)}
    run(one, at=10.0)
    one.tell(
        joined(STAYS, modes=MODES, at=20.0),
        NodeDrained(at=355.0, node_id=GOES, life="1"),
        opened(number=1, at=361.0),
    )
    one.until(370.0)
    assert places(one) == {"job-1": (STAYS,)}
