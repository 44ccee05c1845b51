"""Plans within a round: what calls for one, and what it may do."""

import numpy as np
import pytest

from schemas.base import Event
from schemas.events import NodeDrained, PlacementRefused
from schemas.ids import JobId, NodeId
from schemas.plans import PlanKind, Waiting
from schemas.settings import Settings
from services.planner.core.viewing import view_of
from services.planner.policies.contract.configurations import Configurations
from services.planner.policies.contract.estimates import Estimated
from services.planner.solver.effort import Effort
from tests.fact_builders import (
    completed,
    config,
    held,
    in_queue,
    joined,
    opened,
    profiled,
    queued,
    released,
    submitted,
    worker_stopped,
)
from tests.services.planner.planner_builders import Estimator, Stage, linear
from tests.services.planner.planner_stages import carried_out, cluster, kinds, places, two_jobs


def test_a_job_that_no_other_follows_starts_on_idle_gpus_at_once() -> None:
    stage = two_jobs()
    stage.tell(*in_queue("second", at=20.0, demand=(2, 4)))
    assert (stage.plan.at, places(stage.plan)) == (20.0, {"second": config(node_1=4)})


def test_a_job_that_another_follows_is_planned_after_facts_have_settled() -> None:
    stage = two_jobs()
    stage.tell(submitted("third", at=20.0), *in_queue("second", at=20.0, demand=(2, 4)))
    stage.until(20.9)
    assert len(stage.plans) == 1
    stage.until(21.0)
    assert (stage.plan.kind, places(stage.plan)) == (PlanKind.FRAGMENT, {"second": config(node_1=4)})


def test_a_job_on_hold_that_is_not_measured_is_not_waited_for() -> None:
    stage = two_jobs()
    stage.tell(submitted("third", at=20.0, on_hold=True), *in_queue("second", at=20.0, demand=(2, 4)))
    assert (stage.plan.at, places(stage.plan)) == (20.0, {"second": config(node_1=4)})


def test_a_fragment_plan_leaves_running_jobs_alone() -> None:
    stage = two_jobs()
    stage.tell(*in_queue("second", at=20.0, demand=(8,)))
    stage.until(100.0)
    assert kinds(stage) == [PlanKind.FIRST]


def test_a_job_on_hold_is_left_out_until_it_is_released() -> None:
    stage = two_jobs()
    stage.tell(submitted("second", at=20.0, demand=(2, 4)), held("second", at=20.0))
    stage.tell(profiled("second", at=20.0), queued("second", at=20.0))
    stage.until(350.0)
    assert kinds(stage) == [PlanKind.FIRST]
    stage.tell(opened(at=360.0, number=1))
    assert places(stage.plan) == {"first": config(node_1=4)}
    assert [(left.job_id, left.reason, left.held_by) for left in stage.plan.left_out] == [
        ("second", Waiting.ON_HOLD, ())
    ]
    stage.tell(released("second", at=400.0))
    assert (stage.plan.at, places(stage.plan)) == (400.0, {"second": config(node_1=4)})


def test_a_first_plan_leaves_out_a_running_job_on_hold() -> None:
    stage = two_jobs()
    stage.tell(held("first", at=20.0))
    stage.until(350.0)
    assert kinds(stage) == [PlanKind.FIRST]
    stage.tell(*in_queue("second", at=355.0, demand=(8,)), opened(at=360.0, number=1))
    assert places(stage.plan) == {"second": config(node_1=8)}
    assert [(left.job_id, left.reason) for left in stage.plan.left_out] == [("first", Waiting.ON_HOLD)]


def test_a_job_that_is_not_preemptible_keeps_its_place_though_it_is_on_hold() -> None:
    stage = cluster(*in_queue("first", demand=(4,), preemptible=False), opened())
    carried_out(stage, stage.plan)
    stage.tell(held("first", at=20.0), opened(at=360.0, number=1))
    assert places(stage.plan) == {"first": config(node_1=4)}
    view = view_of(
        stage.core.state,
        kind=PlanKind.FIRST,
        at=360.0,
        round_s=360.0,
        restart_s=10.0,
        policy="hops",
        effort=Effort(),
    )
    assert view.jobs_present == 1


def test_a_job_on_hold_that_is_not_preemptible_does_not_move_when_its_node_drains() -> None:
    stage = cluster(*in_queue("first", demand=(4,), preemptible=False), opened())
    carried_out(stage, stage.plan)
    stage.tell(held("first", at=20.0), joined("node-2", at=21.0, gpus=8))
    stage.tell(NodeDrained(at=22.0, node_id=NodeId("node-1")), opened(at=360.0, number=1))
    assert places(stage.plan) == {}
    assert [(left.job_id, left.reason) for left in stage.plan.left_out] == [("first", Waiting.ON_HOLD)]


def test_a_job_that_is_put_on_hold_while_a_plan_is_made_is_not_in_it() -> None:
    stage = two_jobs()
    stage.work_s = 5.0
    stage.tell(*in_queue("second", at=20.0, demand=(2, 4)), held("second", at=21.0))
    stage.until(30.0)
    assert (places(stage.plan), [left.reason for left in stage.plan.left_out]) == ({}, [Waiting.ON_HOLD])


def test_a_first_plan_mentions_a_job_that_is_released_while_it_is_made() -> None:
    stage = two_jobs()
    stage.tell(*in_queue("second", at=20.0, demand=(8,)), held("second", at=21.0))
    stage.work_s = 5.0
    stage.tell(opened(at=360.0, number=1), released("second", at=361.0))
    stage.until(366.0)
    assert [left.job_id for left in stage.plan.left_out] == ["second"]


def test_gpus_that_come_free_are_planned_again() -> None:
    stage = two_jobs()
    stage.tell(*in_queue("second", at=20.0, demand=(8,)))
    place = stage.plan.placements[0].placement_id
    stage.tell(completed("first", at=50.0, place=place), worker_stopped("first", at=50.0, place=place))
    stage.until(60.0)
    assert places(stage.plan) == {"second": config(node_1=8)}


def test_without_a_change_there_is_no_plan() -> None:
    stage = two_jobs()
    stage.estimator = _unknown_to("elsewhere")
    stage.tell(*in_queue("elsewhere", at=20.0, demand=(1,)))
    stage.until(350.0)
    assert kinds(stage) == [PlanKind.FIRST, PlanKind.FRAGMENT]
    assert stage.plan.left_out[0].reason == Waiting.NO_ESTIMATE


def _unknown_to(job_id: str) -> Estimator:
    def estimator(wanted: Configurations) -> Estimated:
        known = linear(wanted)
        mine = np.array([name == job_id for name in wanted.jobs])[wanted.job]
        return Estimated(throughput=np.where(mine, np.nan, known.throughput), layer=known.layer)

    return estimator


def test_a_refused_placement_is_planned_again() -> None:
    stage = cluster(*in_queue(demand=(8,)), opened())
    made = stage.plan
    stage.tell(
        PlacementRefused(
            at=5.0,
            placement_id=made.placements[0].placement_id,
            plan_id=made.plan_id,
            job_id=JobId("job-1"),
            reason="node busy",
        )
    )
    stage.until(10.0)
    assert stage.plan.kind == PlanKind.FRAGMENT
    assert stage.plan.placements[0].placement_id != made.placements[0].placement_id


def test_a_fragment_left_by_the_first_plan_is_filled() -> None:
    jobs = [
        *in_queue("a", demand=(6,)),
        *in_queue("b", demand=(2,), at=1.0),
        *in_queue("c", demand=(2,), at=2.0),
    ]
    stage = cluster(*jobs)
    stage.tell(joined("node-2", gpus=2, at=3.0), opened(at=100.0))
    stage.until(110.0)
    assert sum(placement.gpus for made in stage.plans for placement in made.placements) == 10


def test_no_plan_follows_one_that_considered_every_job() -> None:
    stage = cluster(*in_queue("a", demand=(6,)), *in_queue("b", demand=(1,), at=1.0))
    stage.estimator = _unknown_to("b")
    stage.tell(opened(at=2.0))
    stage.until(350.0)
    assert (kinds(stage), stage.plan.idle_gpus) == ([PlanKind.FIRST], 2)
    assert {job.job_id: job.reason for job in stage.plan.left_out} == {"b": Waiting.NO_ESTIMATE}


def test_a_plan_follows_one_that_left_a_job_outside_its_window() -> None:
    jobs = [
        *in_queue("a", demand=(4,)),
        *in_queue("b", demand=(4,), at=0.5),
        *in_queue("c", demand=(1,), at=1.0),
    ]
    stage = cluster(*jobs)
    stage.estimator = _unknown_to("b")
    stage.tell(opened(at=1.5))
    stage.until(10.0)
    assert {job.job_id: job.reason for job in stage.plans[0].left_out} == {
        "b": Waiting.NO_ESTIMATE,
        "c": Waiting.OUTSIDE_WINDOW,
    }
    assert kinds(stage)[:2] == [PlanKind.FIRST, PlanKind.FRAGMENT]


def test_no_two_plans_are_in_the_making() -> None:
    stage = cluster(*in_queue("first", demand=(2,)))
    stage.work_s = 30.0
    stage.tell(opened(at=1.0))
    stage.tell(*in_queue("second", at=2.0, demand=(2,)))
    stage.until(20.0)
    assert len(stage.at_work) == 1
    stage.until(100.0)
    assert [places(made) for made in stage.plans] == [
        {"first": config(node_1=2)},
        {"second": config(node_1=2)},
    ]


def test_a_fragment_plan_that_outlives_its_round_is_dropped() -> None:
    stage = two_jobs()
    stage.work_s = 20.0
    stage.tell(*in_queue("second", at=350.0, demand=(2,)))
    stage.until(375.0)
    stage.work_s = 0.0
    stage.until(400.0)
    assert kinds(stage) == [PlanKind.FIRST, PlanKind.FIRST]


SRTF = Settings(policy="srtf", restart_share_max=1.0, minimum_run_restarts=0.0)


def expected_to_run(age_s: float, job_id: str, gpus: int, *, at: float = 0.0) -> list[Event]:
    return [
        submitted(job_id, at=at, demand=(gpus,)),
        profiled(job_id, at=at),
        queued(job_id, at=at, age_s=age_s),
    ]


def with_a_long_job(gpus: int) -> Stage:
    """It runs on so many GPUs of the one node with 8."""
    stage = cluster(*expected_to_run(1e6, "job-1", gpus), opened(), settings=SRTF)
    carried_out(stage, stage.plan)
    return stage


def test_while_no_job_waits_no_event_calls_for_a_plan() -> None:
    stage = with_a_long_job(4)
    stage.tell(*expected_to_run(1.0, "job-2", 4, at=10.0))
    carried_out(stage, stage.plan)
    place = stage.plan.placements[0].placement_id
    stage.tell(worker_stopped("job-2", at=20.0, place=place), completed("job-2", at=20.0, place=place))
    stage.until(300.0)
    assert kinds(stage) == [PlanKind.FIRST, PlanKind.FRAGMENT]
    stage.until(400.0)
    assert kinds(stage)[2:] == [PlanKind.FIRST]  # of the next round


def test_a_job_that_fits_the_idle_gpus_is_placed_by_a_fragment_plan() -> None:
    stage = with_a_long_job(4)
    stage.tell(*expected_to_run(1.0, "job-2", 4, at=10.0))
    assert (stage.plan.kind, list(places(stage.plan))) == (PlanKind.FRAGMENT, ["job-2"])


@pytest.mark.parametrize("gpus", [8, 5])
def test_for_one_that_does_not_fit_there_is_a_first_plan_at_once(gpus: int) -> None:
    stage = with_a_long_job(4)
    stage.tell(*expected_to_run(1.0, "job-2", gpus, at=10.0))
    stage.until(12.0)
    assert [(made.kind, made.at) for made in stage.plans[1:]] == [(PlanKind.FIRST, 10.0)]
    assert list(places(stage.plan)) == ["job-2"]


def test_a_job_that_a_fragment_plan_failed_to_place_gets_a_first_plan_at_once() -> None:
    """Beside 6 of 8 GPUs 4 are idle, of two types."""
    stage = with_a_long_job(6)
    stage.tell(joined("node-2", at=1.0, gpu_type="b", gpus=2))
    stage.until(5.0)
    before = len(stage.plans)
    stage.tell(*expected_to_run(1.0, "job-2", 4, at=10.0))
    assert [(made.kind, made.at) for made in stage.plans[before:]] == [(PlanKind.FIRST, 10.0)]
    assert list(places(stage.plan)) == ["job-2"]


def test_one_idle_gpu_is_room_for_a_policy_that_plans_waves() -> None:
    stage = Stage(Settings(policy="tests.simulation.mode_policies:Waves"))
    stage.tell(joined(gpus=4, modes=("lockstep", "relaxed")), *in_queue("first", demand=(4,)), opened())
    carried_out(stage, stage.plan)
    stage.until(10.0)
    stage.tell(*in_queue("second", at=20.0, demand=(4,)))
    assert places(stage.plan) == {"second": config(node_1=1)}
