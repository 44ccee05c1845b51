"""Tiresias as a policy: preemption by queue, triggers, skew, memory; and when the planner plans with it."""

from typing import Any

import msgspec

from schemas.events import PreemptReason
from schemas.plans import PlanKind
from schemas.settings import Settings
from services.planner.policies.contract.decision import Decision
from services.planner.policies.contract.view import ViewJob
from tests.fact_builders import (
    completed,
    in_queue,
    joined,
    lost,
    opened,
    preempted,
    started,
    worker_started,
    worker_stopped,
)
from tests.services.planner.planner_builders import (
    Stage,
    chosen,
    decide,
    job,
    node,
    nodes,
    place_on,
    present,
    view,
)

POLICY = "services.planner.policies.tiresias.policy:Tiresias"
THRESHOLDS = "100 300"
SETTINGS = Settings(
    minimum_run_restarts=0.0, restart_share_max=1.0, policy=f"{POLICY}+thresholds={THRESHOLDS}"
)


def ran(name: str, gpu_s: float, gpus: int = 8, *, runs: bool = True, **fields: Any) -> ViewJob:  # noqa: ANN401
    """A job submitted at 0 that has held its GPUs ever since."""
    where = present(a0=gpus) if runs else None
    return job(name, (gpus,), attained_gpu_s=gpu_s, wait_s=0.0, present=where, **fields)


def planned(*jobs: ViewJob, idle: tuple[int, ...] = (8,), memory: bytes = b"", **fields: Any) -> Decision:  # noqa: ANN401
    seen = msgspec.structs.replace(view(jobs, nodes(*idle), **fields), memory=memory)
    return decide(POLICY, seen, thresholds=THRESHOLDS)


def test_a_newcomer_preempts_a_job_of_a_lower_queue() -> None:
    assert set(chosen(planned(ran("old", 100.0), job("new", (8,), submitted_at=90.0)))) == {"new"}


def test_in_the_same_queue_the_one_that_started_stays() -> None:
    first = planned(job("a", (8,)), job("b", (8,)))
    again = planned(ran("a", 99.0), job("b", (8,)), memory=first.memory)
    assert set(chosen(first)) == set(chosen(again)) == {"a"}


def test_tiresias_asks_to_be_called_when_a_running_job_passes_its_threshold() -> None:
    assert planned(ran("x", 40.0, gpus=4), at=10.0).again_at == 10.0 + 60.0 / 4
    assert planned(ran("x", 300.0, gpus=4)).again_at is None  # the last queue has no end


def test_tiresias_never_asks_to_be_called_at_once() -> None:
    assert planned(ran("x", 99.9), at=10.0).again_at == 11.0


def test_a_sensitive_job_waits_for_a_node_and_another_takes_fragments() -> None:
    sensitive = planned(job("x", (8,), sensitivity=2.0), idle=(5, 5))
    other = planned(job("x", (8,), sensitivity=1.1), idle=(7, 3))
    assert chosen(sensitive) == {}
    assert chosen(other) == {"x": place_on(a1=3, a0=5)}


def test_a_fragment_plan_leaves_the_queues_as_they_are() -> None:
    first = planned(job("a", (8,)), job("b", (1,)))
    fragment = planned(job("b", (1,)), memory=first.memory, kind=PlanKind.FRAGMENT)
    assert chosen(fragment) == {"b": place_on(a0=1)}
    assert fragment.memory == first.memory


def test_memory_of_something_else_is_no_memory() -> None:
    jobs = [ran("a", 50.0), job("b", (8,))]
    fresh = planned(*jobs)
    twice = msgspec.msgpack.encode([[["a", 0, 0, 0], ["a", 0, 0, 0]], [], []])
    for memory in (b"\xff\x00", b"{}", msgspec.msgpack.encode([1, 2]), twice):
        assert planned(*jobs, memory=memory) == fresh


def test_expected_services_of_the_jobs_present_give_the_gittins_order() -> None:
    jobs = [
        job("half", (8,), age_s=50.0, attained_gpu_s=0.0),
        job("nearly", (8,), age_s=10.0, attained_gpu_s=79.0, submitted_at=1.0),
    ]
    decision = decide(POLICY, view(jobs, [node("a0")]), thresholds=THRESHOLDS, order="gittins")
    assert set(chosen(decision)) == {"nearly"}  # of 80 and 400 GPU·s, 79 is close to an end


# ---- with the planner


def stage() -> Stage:
    one = Stage(SETTINGS)
    one.tell(joined(), *in_queue("job-1", demand=(8,)), opened())
    return one


def test_an_arrival_calls_for_a_first_plan_and_the_plan_for_no_other() -> None:
    one = stage()
    one.tell(*in_queue("job-2", at=10.0, demand=(8,)))
    one.until(12.0)
    assert [(made.kind, made.at) for made in one.plans] == [(PlanKind.FIRST, 0.0), (PlanKind.FIRST, 10.0)]


def carried_out(one: Stage) -> str:
    """The gang of the last plan comes up at once."""
    placement = one.plan.placements[0]
    place, on = placement.placement_id, placement.gang.configuration
    one.tell(
        worker_started(placement.job_id, at=one.now, place=place, gpu_indices=range(8)),
        started(placement.job_id, at=one.now, place=place, on=on),
    )
    return place


def running(one: Stage) -> list[str]:
    return [placement.job_id for placement in one.plan.placements]


def test_a_demotion_calls_for_a_first_plan() -> None:
    """8 GPUs reach 100 GPU·s after 12.5 s of running; the job that waits has none."""
    one = stage()
    place = carried_out(one)
    one.tell(*in_queue("job-2", at=2.0, demand=(8,)))
    one.until(12.4)
    assert (running(one), len(one.plans)) == (["job-1"], 2)
    one.until(12.6)
    assert (running(one), len(one.plans)) == (["job-2"], 3)
    one.tell(worker_stopped("job-1", at=20.0, place=place), preempted("job-1", at=20.0, place=place))
    carried_out(one)
    one.until(24.0)
    assert len(one.plans) == 3  # that a plan is carried out is no news


def test_a_lost_node_calls_for_a_first_plan() -> None:
    one = stage()
    place = carried_out(one)
    one.tell(lost(at=5.0), preempted("job-1", at=5.0, place=place, reason=PreemptReason.NODE_LOST))
    one.until(6.1)
    assert (running(one), len(one.plans)) == ([], 2)


def test_a_completion_calls_for_a_plan_for_waiting_jobs() -> None:
    one = stage()
    place = carried_out(one)
    one.tell(*in_queue("job-2", at=2.0, demand=(8,)))
    one.tell(worker_stopped("job-1", at=9.0, place=place), completed("job-1", at=9.0, place=place))
    one.until(10.1)
    assert [made.kind for made in one.plans] == [PlanKind.FIRST, PlanKind.FIRST, PlanKind.FRAGMENT]
    assert running(one) == ["job-2"]


def test_a_demotion_calls_for_no_plan_while_no_job_waits() -> None:
    one = stage()
    carried_out(one)
    one.until(100.0)
    assert len(one.plans) == 1
