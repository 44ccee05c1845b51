"""The classical policies: who goes first, who is preempted, and how many GPUs a job asks for."""

from typing import Literal

import pytest

from schemas.plans import PlanKind, Waiting
from services.planner.policies.classical.yarn_cs import capacities
from services.planner.policies.contract.view import ViewJob
from tests.services.planner.planner_builders import (
    FAST,
    SLOW,
    chosen,
    decide,
    job,
    node,
    nodes,
    place_on,
    present,
    view,
)

HERE = "services.planner.policies.classical."
FIFO, SKIPPING = HERE + "fifo:Fifo", HERE + "fifo:FifoSkipping"
SJF, SRTF, SRSF, LAS, YARN = (
    HERE + name for name in ("sjf:Sjf", "srtf:Srtf", "srsf:Srsf", "las:Las", "yarn_cs:YarnCs")
)


def first(policy: str, *jobs: ViewJob) -> list[str]:
    """Which of several jobs of 8 GPUs gets the one node."""
    return list(chosen(decide(policy, view(jobs, nodes(8)))))


@pytest.mark.parametrize(
    ("policy", "ahead", "behind"),
    [
        (FIFO, {"submitted_at": 1.0}, {"submitted_at": 2.0}),
        (SJF, {"age_s": 10.0, "submitted_at": 2.0}, {"age_s": 20.0, "samples_done": 900.0}),
        (SRTF, {"age_s": 100.0, "samples_done": 900.0, "submitted_at": 2.0}, {"age_s": 20.0}),
        (LAS, {"attained_gpu_s": 5.0, "submitted_at": 2.0}, {"attained_gpu_s": 6.0}),
    ],
)
def test_each_order(policy: str, ahead: dict[str, float], behind: dict[str, float]) -> None:
    jobs = [job("behind", (8,), **behind), job("ahead", (8,), **ahead)]
    assert first(policy, *sorted(jobs, key=lambda one: one.submitted_at)) == ["ahead"]


def test_service_is_time_times_gpus() -> None:
    jobs = [job("wide", (8,), age_s=10.0), job("long", (5,), age_s=15.0)]
    assert first(SRSF, *jobs) == ["long"]
    assert first(SRTF, *jobs) == ["wide"]


def test_ties_within_a_millisecond_go_to_the_earlier_submission() -> None:
    jobs = [job("b", (8,), age_s=10.0004), job("c", (8,), age_s=10.0)]
    assert first(SJF, *jobs) == ["b"]


@pytest.mark.parametrize(
    ("policy", "runs"), [(FIFO, "old"), (SJF, "old"), (SRTF, "new"), (SRSF, "new"), (LAS, "new")]
)
def test_the_preemptive_ones_preempt(policy: str, runs: str) -> None:
    old = job("old", (8,), age_s=100.0, attained_gpu_s=80.0, present=present(a0=8))
    new = job("new", (8,), age_s=10.0, submitted_at=1.0)
    assert first(policy, old, new) == [runs]


def test_skipping_is_all_that_sets_the_two_fifos_apart() -> None:
    jobs = [job("big", (8,)), job("small", (1,))]
    seen = view(jobs, nodes(4))
    assert chosen(decide(FIFO, seen)) == {}
    assert chosen(decide(SKIPPING, seen)) == {"small": place_on(a0=1)}
    assert [left.detail for left in decide(FIFO, seen).left] == ["", "behind job big"]


@pytest.mark.parametrize(("rule", "gpus"), [("min", 1), ("median", 2), ("max", 4)])
def test_a_job_asks_for_one_count_of_those_that_fit_the_empty_cluster(
    rule: Literal["min", "median", "max"], gpus: int
) -> None:
    seen = view([job("x", (1, 2, 4, 16, 32))], nodes(8))
    assert chosen(decide(FIFO, seen, rigid_demand=rule)) == {"x": place_on(a0=gpus)}


def test_a_job_that_runs_keeps_the_count_that_another_policy_gave_it() -> None:
    seen = view([job("x", (1, 2, 4), present=present(a0=4))], nodes(8))
    for policy in (FIFO, LAS, YARN):
        assert chosen(decide(policy, seen)) == {"x": place_on(a0=4)}


def test_the_type_on_which_a_job_is_fastest_comes_first() -> None:
    cluster = [node("a0"), node("b0", gpu_type=SLOW)]
    either = job("x", (2,), gpu_types=(FAST, SLOW), single_gpu={FAST: 1.0, SLOW: 2.0})
    assert chosen(decide(FIFO, view([either], cluster))) == {"x": place_on(b0=2)}


# ---- yarn-cs


def test_the_project_that_uses_least_is_served_next() -> None:
    jobs = [
        job("a1", (4,), project="a", present=present(a0=4)),
        job("a2", (4,), project="a"),
        job("b1", (4,), project="b", submitted_at=1.0),
    ]
    assert set(chosen(decide(YARN, view(jobs, nodes(8))))) == {"a1", "b1"}


def test_capacity_is_relative() -> None:
    jobs = [
        job("a1", (4,), project="a", present=present(a0=4)),
        job("a2", (4,), project="a"),
        job("b1", (2,), project="b", present=present(a0=2)),
        job("b2", (4,), project="b", submitted_at=1.0),
    ]
    seen = view(jobs, nodes(12))
    assert set(chosen(decide(YARN, seen, capacities="a=3 b=1"))) == {"a1", "a2", "b1"}
    assert capacities("a=3 b=0.5") == {"a": 3.0, "b": 0.5}


def test_a_project_s_idle_share_is_used_and_kept_by_others() -> None:
    alone = [job(f"a{index}", (4,), project="a") for index in range(2)]
    assert set(chosen(decide(YARN, view(alone, nodes(8))))) == {"a0", "a1"}
    kept = [job(f"a{index}", (4,), project="a", present=present(**{f"a{index}": 4})) for index in range(2)]
    late = job("b", (4,), project="b", submitted_at=9.0)
    assert set(chosen(decide(YARN, view([*kept, late], nodes(4, 4))))) == {"a0", "a1"}


@pytest.mark.parametrize("counts", [(2, 64, 128), (2,)])
def test_a_project_is_charged_only_for_gpus_that_its_jobs_can_get(counts: tuple[int, ...]) -> None:
    """The median of counts that fit the cluster, and nothing for a job that fits nowhere."""
    huge = job("huge", (64,), project="a")
    a = [job(f"a{index}", counts, project="a", submitted_at=1.0) for index in range(4)]
    b = [job(f"b{index}", (2,), project="b", submitted_at=2.0) for index in range(4)]
    assert set(chosen(decide(YARN, view([huge, *a, *b], nodes(8))))) == {"a0", "a1", "b0", "b1"}


def test_a_job_that_does_not_fit_holds_up_its_own_project_only() -> None:
    jobs = [
        job("a1", (8,), project="a"),
        job("a2", (1,), project="a"),
        job("b1", (1,), project="b", submitted_at=1.0),
    ]
    decision = decide(YARN, view(jobs, nodes(4), kind=PlanKind.FIRST))
    assert chosen(decision) == {"b1": place_on(a0=1)}
    assert {left.job_id: left.reason for left in decision.left} == {
        "a1": Waiting.NO_CONFIGURATION,
        "a2": Waiting.OUTWEIGHED,
    }
