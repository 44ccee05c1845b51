"""First plans: when a round is planned, from what, and what is published."""

import pytest

from schemas.plans import PlanKind
from schemas.plans import Stage as Made
from schemas.settings import Settings
from tests.fact_builders import (
    config,
    in_queue,
    joined,
    opened,
    profile_run,
    worker_stopped,
)
from tests.services.planner.planner_builders import Stage
from tests.services.planner.planner_stages import carried_out, cluster, kinds, places


def test_a_round_is_planned_when_the_profiler_opens_it() -> None:
    stage = cluster(*in_queue(demand=(4,)))
    assert stage.plans == []
    stage.tell(opened(at=0.5))
    assert (stage.plan.kind, stage.plan.round, places(stage.plan)) == (
        PlanKind.FIRST, 0, {"job-1": config(node_1=4)},
    )  # fmt: skip


def test_a_round_is_planned_without_the_profiler_when_it_is_late() -> None:
    stage = cluster(*in_queue())
    stage.until(1.9)
    assert stage.plans == []
    stage.until(2.0)
    assert stage.plan.kind == PlanKind.FIRST


def test_every_round_has_one_first_plan_at_its_boundary_and_grace() -> None:
    stage = cluster(*in_queue(demand=(8,)))
    stage.until(1000.0)
    firsts = [(made.at, made.round) for made in stage.plans if made.kind == PlanKind.FIRST]
    assert firsts == [(2.0, 0), (362.0, 1), (722.0, 2)]


def test_a_late_opening_does_not_plan_the_round_again() -> None:
    stage = cluster(*in_queue(demand=(8,)))
    stage.until(2.0)
    stage.tell(opened(at=3.0))
    assert kinds(stage) == [PlanKind.FIRST]


def test_gpus_promised_to_profiling_are_left_out() -> None:
    stage = cluster(*in_queue(demand=(4, 8)))
    stage.tell(opened(profile_run()))
    assert places(stage.plan) == {"job-1": config(node_1=4)}
    assert stage.plan.idle_gpus == 3


def test_a_grace_longer_than_the_round_does_not_stop_planning() -> None:
    stage = Stage(grace_s=1e6)
    stage.tell(joined(), *in_queue())
    stage.until(1000.0)
    assert [made.round for made in stage.plans if made.kind == PlanKind.FIRST] == [0, 1, 2]


def test_a_plan_records_its_policy_leader_source_and_quality() -> None:
    stage = cluster(*in_queue(demand=(4,)), opened())
    made = stage.plan
    assert (made.policy, made.token, made.made_from, made.stage) == ("hops", 1, 5, Made.OPTIMAL)
    assert (made.gap, made.configurations, made.idle_gpus, made.notes) == (0.0, 1, 4, ())


def test_decision_time_runs_from_the_first_look() -> None:
    stage = cluster(*in_queue())
    stage.work_s = 3.0
    stage.tell(opened(at=1.0))
    stage.until(10.0)
    assert (stage.plans[0].at, stage.plans[0].decision_s) == (4.0, 3.0)


def test_a_job_that_keeps_its_configuration_keeps_its_placement_id() -> None:
    stage = cluster(*in_queue(demand=(8,)), opened())
    carried_out(stage, stage.plan)
    stage.until(400.0)
    first, second = stage.plans
    assert first.placements[0].placement_id == second.placements[0].placement_id


def test_a_job_that_moves_gets_a_new_placement_id() -> None:
    stage = cluster(*in_queue(demand=(4, 8)), opened(profile_run()))
    carried_out(stage, stage.plan)
    stage.tell(worker_stopped(place="pf-1", at=10.0))
    stage.until(400.0)
    assert places(stage.plan) == {"job-1": config(node_1=8)}
    ids = {placement.placement_id for made in stage.plans for placement in made.placements}
    assert len(ids) == 2
    assert not any("." in name for name in ids)  # they become parts of subjects


def test_a_job_left_out_names_the_holders_of_the_gpus() -> None:
    stage = cluster(*in_queue("old", demand=(8,)), *in_queue("new", demand=(8,), at=1.0))
    stage.tell(opened(at=100.0))
    [left] = stage.plan.left_out
    assert (left.job_id, left.held_by) == ("new", ("old",))


def test_a_first_plan_that_outlasts_its_round_is_published_and_the_present_round_is_next() -> None:
    stage = cluster(*in_queue(demand=(8,)))
    stage.work_s = 800.0
    stage.until(1700.0)
    assert [(made.at, made.round) for made in stage.plans] == [(802.0, 0), (1602.0, 2)]


@pytest.mark.parametrize("round_s", [720.0, 180.0, 250.0])
def test_rounds_are_planned_after_a_restart_with_rounds_of_another_length(round_s: float) -> None:
    stage = cluster(*in_queue(demand=(8,)))
    stage.until(100 * 360.0 + 5.0)
    stage.restart(Settings(round_s=round_s))
    begun, known = stage.now, len(stage.plans)
    stage.until(begun + 10 * round_s)
    firsts = [made.at for made in stage.plans[known:] if made.kind == PlanKind.FIRST]
    at_boundaries = [at for at in firsts if at > begun + 5.0]
    assert [at % round_s for at in at_boundaries] == pytest.approx([2.0] * len(at_boundaries))
    assert 9 <= len(at_boundaries) <= 10
    assert len(firsts) - len(at_boundaries) <= 1


def test_the_profiler_s_numbers_of_shorter_rounds_do_not_open_the_longer_ones_that_follow() -> None:
    """After the change it numbers rounds on from the last, so as not to use a number twice."""
    stage = cluster(*in_queue(demand=(8,)), opened(number=100, at=36_000.0))
    stage.restart(Settings(round_s=720.0))
    boundary = 51 * 720.0
    stage.until(boundary + 1.0)
    assert stage.plan.at < boundary
    stage.tell(opened(number=101, at=boundary + 1.0))
    assert stage.plan.at == boundary + 1.0
