"""Nodes that come and go, and estimates that do not arrive."""

from itertools import pairwise

import msgspec
import numpy as np
import pytest

from schemas.events import NodeDrained, NodeRestored
from schemas.ids import NodeId
from schemas.plans import Layer, Waiting
from schemas.settings import Settings
from tests.fact_builders import (
    config,
    in_queue,
    joined,
    lost,
    opened,
    preempted,
    returned,
)
from tests.services.planner.planner_builders import Stage, linear, silent
from tests.services.planner.planner_stages import carried_out, cluster, places


def test_a_draining_node_offers_no_gpus_and_is_left_at_the_next_round() -> None:
    stage = cluster(*in_queue(demand=(4,)), opened())
    carried_out(stage, stage.plan)
    stage.tell(NodeDrained(at=5.0, node_id=NodeId("node-1")), joined("node-2", at=5.0))
    stage.until(300.0)
    assert len(stage.plans) == 1
    stage.until(400.0)
    assert places(stage.plan) == {"job-1": config(node_2=4)}


def test_a_restored_node_offers_its_gpus_again() -> None:
    stage = cluster(NodeDrained(at=0.0, node_id=NodeId("node-1")), *in_queue(demand=(4,)), opened())
    assert places(stage.plan) == {}
    stage.tell(NodeRestored(at=5.0, node_id=NodeId("node-1")))
    stage.until(10.0)
    assert places(stage.plan) == {"job-1": config(node_1=4)}


def test_a_lost_nodes_job_starts_elsewhere() -> None:
    stage = cluster(*in_queue(demand=(4,)), opened())
    carried_out(stage, stage.plan)
    place = stage.plan.placements[0].placement_id
    stage.tell(joined("node-2", at=5.0), lost(at=10.0), preempted(at=11.0, place=place))
    stage.until(20.0)
    assert places(stage.plan) == {"job-1": config(node_2=4)}


def test_a_node_that_returns_offers_its_unclaimed_gpus() -> None:
    stage = cluster(lost(at=0.5), *in_queue(at=1.0, demand=(4,)))
    stage.until(5.0)
    stage.tell(returned(at=10.0))
    stage.until(20.0)
    assert places(stage.plan) == {"job-1": config(node_1=4)}


def test_a_node_lost_while_a_plan_is_made_is_in_no_placement() -> None:
    stage = cluster(*in_queue(demand=(4,)))
    stage.work_s = 5.0
    stage.tell(opened(at=1.0), lost(at=3.0))
    stage.until(7.0)
    assert places(stage.plan) == {}
    assert [left.job_id for left in stage.plan.left_out] == ["job-1"]


def test_no_nodes_and_no_jobs_are_planned_too() -> None:
    stage = Stage()
    stage.tell(opened())
    assert (places(stage.plan), stage.plan.idle_gpus) == ({}, 0)


def test_without_any_estimate_a_first_plan_keeps_running_jobs() -> None:
    stage = cluster(*in_queue("runs", demand=(4,)), opened())
    carried_out(stage, stage.plan)
    kept = stage.plan.placements
    stage.estimator = silent
    stage.tell(*in_queue("waits", at=355.0, demand=(4,)))
    stage.until(365.0)
    first = next(made for made in stage.plans if made.round == 1)
    assert first.placements == kept
    assert [(left.job_id, left.reason) for left in first.left_out] == [("waits", Waiting.NO_ESTIMATE)]
    assert "no estimates" in first.notes[0]


def test_estimates_of_earlier_plans_are_named_in_the_placements() -> None:
    stage = cluster(*in_queue(demand=(4,)))
    stage.estimator = lambda wanted: msgspec.structs.replace(
        linear(wanted), layer=np.full(len(wanted), 3, dtype=np.uint8)
    )
    stage.tell(opened())
    assert stage.plan.placements[0].layer == Layer.CACHED


def test_work_that_fails_as_a_whole_is_tried_again_and_noted() -> None:
    stage = cluster(*in_queue(demand=(4,)))
    stage.fails = 1
    stage.tell(opened())
    assert stage.plans == []
    stage.until(5.0)
    assert places(stage.plan) == {"job-1": config(node_1=4)}
    assert "too long" in stage.plan.notes[0]


@pytest.mark.parametrize("policy", ["jps", "allox", "hops", "tiresias"])
def test_a_plan_is_made_again_where_the_estimator_did_not_answer(policy: str) -> None:
    """Also under policies that are not asked at rounds, and where nothing else happens."""
    stage = Stage(Settings(policy=policy, round_s=360.0))
    stage.estimator = silent
    stage.tell(joined(), *in_queue(demand=(1, 2)))
    stage.until(30.0)
    assert stage.plans
    assert not any(made.placements for made in stage.plans)
    assert len(stage.plans) < 12, "later each time"
    stage.estimator = linear
    stage.until(30.0 + 360.0)
    assert places(stage.plan)


def test_a_plan_in_place_of_one_without_an_answer_is_made_a_round_later_at_most() -> None:
    stage = Stage(Settings(policy="jps", round_s=360.0))
    stage.estimator = silent
    stage.tell(joined(), *in_queue(demand=(1, 2)))
    stage.until(100_000.0)
    apart = [later.at - made.at for made, later in pairwise(stage.plans)]
    assert max(apart) == pytest.approx(360.0)
    assert len(stage.plans) < 100_000.0 / 360.0 + 20
