"""What Sched_Homo decides: who is in a batch, and where its jobs go."""

import msgspec
import pytest

from schemas.ids import GpuType, PlacementId
from schemas.placement import Gang
from schemas.plans import Layer
from services.planner.policies.contract.decision import Decision, fault
from services.planner.policies.contract.view import Present, View, ViewJob
from tests.services.planner.planner_builders import chosen, decide, job, node, place_on, view

RATES = {GpuType("slow"): 10.0, GpuType("fast"): 30.0}
MEAN_S = (1 / 10 + 1 / 30) / 2
"""of a task of one sample"""
CLUSTER = [node("f0", 2, gpus=2, gpu_type="fast"), node("s0", 2, gpus=2, gpu_type="slow")]


def trains(name: str, seconds: float, demand: tuple[int, ...] = (1,), **fields: object) -> ViewJob:
    """So long on GPUs of the mean speed."""
    types = tuple(sorted(RATES))
    samples = seconds / MEAN_S * demand[0]
    return job(name, demand, gpu_types=types, single_gpu=RATES, samples=samples, **fields)


def later(seen: View, decision: Decision, seconds: float, *, ended: tuple[str, ...] = ()) -> View:
    """What was started runs on, but for those that have ended."""
    gangs = {one.job_id: one for one in decision.choices}
    jobs = [
        msgspec.structs.replace(
            one,
            present=Present(
                placement_id=PlacementId(one.job_id),
                gang=gangs[one.job_id].gang,
                throughput=1.0,
                layer=Layer.THEORY,
            )
            if one.job_id in gangs
            else None,
        )
        for one in seen.jobs
        if one.job_id not in ended
    ]
    return msgspec.structs.replace(seen, at=seen.at + seconds, jobs=tuple(jobs), memory=decision.memory)


def test_gpus_are_taken_in_the_order_of_the_nodes_types_mixed() -> None:
    seen = view([trains("three", 50.0, (3,))], CLUSTER)
    decision = decide("sched-homo", seen)
    assert chosen(decision) == {"three": {"f0": 2, "s0": 1}}
    assert fault(seen, decision) is None


def test_a_batch_takes_the_jobs_of_most_weight_a_gpu_second_that_fit_it() -> None:
    """240 GPU-seconds: 60 s of four GPUs."""
    jobs = [trains(name, 50.0, (2,)) for name in ("a", "b")]
    heavy = trains("heavy", 55.0, (3,), priority=10.0)
    seen = view([*jobs, heavy, trains("long", 61.0)], CLUSTER)
    decision = decide("sched-homo", seen)
    assert chosen(decision) == {"heavy": {"f0": 2, "s0": 1}}
    assert [one.job_id for one in decision.left] == ["long", "a", "b"]
    assert {one.detail for one in decision.left} == {"it is left for a later batch"}
    assert decision.again_at == seen.at + 60.0


def test_the_next_batch_is_twice_as_long_and_comes_when_this_one_is_over() -> None:
    seen = view([trains("first", 50.0), trains("long", 100.0)], CLUSTER)
    first = decide("sched-homo", seen)
    assert set(chosen(first)) == {"first"}
    assert set(chosen(decide("sched-homo", later(seen, first, 59.0)))) == {"first"}
    second = decide("sched-homo", later(seen, first, 60.0))
    assert set(chosen(second)) == {"first", "long"}
    assert set(chosen(decide("sched-homo", later(seen, first, 20.0, ended=("first",))))) == {"long"}


def test_a_batch_too_short_for_every_job_is_skipped() -> None:
    seen = view([trains("long", 3_000.0)], CLUSTER)
    assert set(chosen(decide("sched-homo", seen))) == {"long"}


def test_a_running_job_stays_to_its_end() -> None:
    there = Present(
        placement_id=PlacementId("p"), gang=Gang.of(place_on(s0=1)), throughput=1.0, layer=Layer.THEORY
    )
    seen = view([trains("runs", 9_000.0, present=there), trains("new", 10.0, priority=99.0)], CLUSTER)
    assert chosen(decide("sched-homo", seen)) == {"runs": {"s0": 1}, "new": {"f0": 1}}


@pytest.mark.parametrize(("sizes", "first"), [("known", "short"), ("unit", "small")])
def test_jobs_of_unknown_size_count_as_one_round(sizes: str, first: str) -> None:
    one_gpu = [node("f0", 1, gpus=1, gpu_type="fast")]
    short, small = trains("short", 30.0, batch_size=64), trains("small", 40.0, batch_size=8)
    decision = decide("sched-homo", view([short, small], one_gpu), sizes=sizes)
    assert set(chosen(decision)) == {first}
