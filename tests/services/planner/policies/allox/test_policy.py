"""What AlloX decides: who starts where, who waits, and that nothing that runs is moved."""

from typing import Any

import msgspec
import pytest

from schemas.ids import GpuType, PlacementId, RotaId
from schemas.placement import Gang, Lockstep, Relaxed
from schemas.plans import Layer, Waiting
from services.planner.policies.contract.decision import Decision, Trigger, fault
from services.planner.policies.contract.view import Present, ViewJob, ViewNode
from services.planner.policies.registry import Registry
from tests.services.planner.planner_builders import chosen, decide, job, node, place_on, silent, view

SPEEDS = {GpuType("slow"): 10.0, GpuType("fast"): 40.0}
BOTH = pytest.mark.parametrize("policy", ["allox", "allox-gang"])


def gpus(name: str, count: int, gpu_type: str) -> ViewNode:
    one = node(name, count, gpus=count, gpu_type=gpu_type)
    return msgspec.structs.replace(one, modes=("lockstep", "relaxed"))


def trains(name: str, samples: float, demand: tuple[int, ...] = (1,), **fields: Any) -> ViewJob:  # noqa: ANN401 - fields of ViewJob
    return job(name, demand, gpu_types=tuple(sorted(SPEEDS)), single_gpu=SPEEDS, samples=samples, **fields)


def here(seconds: float, **place: int) -> Present:
    """Where a job of a thousand samples runs for so long."""
    return Present(
        placement_id=PlacementId("there"),
        gang=Gang.of(place_on(**place)),
        throughput=1000.0 / seconds,
        layer=Layer.ENTITY,
    )


def in_turn(place: int, seconds: float) -> Present:
    """As one of a rota on both GPUs of a node."""
    sync = Relaxed(tasks=((1, 1),), rota=RotaId("r"), turns=1, place=place)
    gang = Gang.of(place_on(f0=2), sync)
    return msgspec.structs.replace(here(seconds, f0=2), gang=gang, share=0.5)


def waiting(decision: Decision) -> dict[str, Waiting]:
    return {one.job_id: one.reason for one in decision.left}


@BOTH
def test_allox_is_called_when_jobs_arrive_and_gpus_come_free(policy: str) -> None:
    calls = Registry().find(policy).calls
    assert set(calls) == {Trigger.ARRIVAL, Trigger.FREED, Trigger.NODE}


def test_a_job_waits_for_a_fast_gpu_rather_than_take_a_slow_one() -> None:
    """10 s on the fast one, after 5 s; 40 s on the idle one."""
    running = trains("runs", 1000.0, present=here(5.0, f0=1))
    seen = view([running, trains("waits", 400.0)], [gpus("f0", 1, "fast"), gpus("s0", 1, "slow")])
    decision = decide("allox", seen, estimator=silent)
    assert chosen(decision) == {"runs": {"f0": 1}}
    assert waiting(decision) == {"waits": Waiting.OUTWEIGHED}
    assert decision.left[0].detail == "it waits for fast, with 0 behind it"
    later = msgspec.structs.replace(running, present=here(50.0, f0=1))
    moved = decide("allox", msgspec.structs.replace(seen, jobs=(later, seen.jobs[1])), estimator=silent)
    assert chosen(moved) == {"runs": {"f0": 1}, "waits": {"s0": 1}}


def test_the_shortest_job_is_first_on_a_machine() -> None:
    seen = view([trains("long", 4000.0), trains("short", 400.0)], [gpus("f0", 1, "fast")])
    assert chosen(decide("allox", seen, estimator=silent)) == {"short": {"f0": 1}}


@BOTH
def test_gpus_of_a_rota_are_counted_once(policy: str) -> None:
    rota = [trains(f"turn{place}", 1000.0, (2,), present=in_turn(place, 50.0)) for place in range(2)]
    seen = view([*rota, trains("wide", 400.0, (4,))], [gpus("f0", 2, "fast")])
    decision = decide(policy, seen)
    assert chosen(decision) == {"turn0": {"f0": 2}, "turn1": {"f0": 2}}
    assert fault(seen, decision) is None
    one_gpu_computes_it = policy == "allox"
    reason = Waiting.OUTWEIGHED if one_gpu_computes_it else Waiting.NO_CONFIGURATION
    assert waiting(decision) == {"wide": reason}


@pytest.mark.parametrize(("last_s", "waits"), [(5.0, True), (50.0, False)])
def test_gpus_of_a_rota_are_free_when_its_last_job_has_ended(last_s: float, waits: bool) -> None:  # noqa: FBT001
    """10 s on a fast GPU, after that; 40 s on the idle one."""
    rota = [
        trains(f"turn{place}", 1000.0, (2,), present=in_turn(place, s))
        for place, s in enumerate((last_s, 5.0))
    ]
    seen = view([*rota, trains("new", 400.0)], [gpus("f0", 2, "fast"), gpus("s0", 1, "slow")])
    assert ("new" in waiting(decide("allox", seen, estimator=silent))) is waits


@BOTH
def test_a_running_job_is_never_moved(policy: str) -> None:
    running = trains("runs", 1000.0, (2,), present=here(9_000.0, s0=2))
    seen = view([running, trains("new", 40.0, (2,))], [gpus("s0", 2, "slow"), gpus("f0", 2, "fast")])
    decision = decide(policy, seen)
    assert chosen(decision)["runs"] == {"s0": 2}
    assert fault(seen, decision) is None


def test_one_gpu_computes_all_tasks_of_a_round() -> None:
    seen = view([trains("pair", 400.0, (2,))], [gpus("f0", 4, "fast")])
    [choice] = decide("allox", seen, estimator=silent).choices
    assert choice.gang == Gang.of(place_on(f0=1), Relaxed(tasks=((2,),)))
    assert choice.throughput == 40.0


def test_a_gang_has_a_gpu_for_every_task() -> None:
    seen = view([trains("pair", 400.0, (2,))], [gpus("f0", 4, "fast"), gpus("s0", 4, "slow")])
    [choice] = decide("allox-gang", seen).choices
    assert choice.gang.sync == Lockstep()
    assert choice.gang.gpus == 2


def test_where_no_node_lets_tasks_follow_one_another_jobs_run_in_gangs() -> None:
    plain = node("f0", 4, gpus=4, gpu_type="fast")
    pair = trains("pair", 400.0, (2,))
    assert chosen(decide("allox", view([pair], [plain]))) == {"pair": {"f0": 2}}
    beside = view([pair, trains("one", 400.0)], [plain, gpus("s0", 1, "slow")])
    assert chosen(decide("allox", beside, estimator=silent)) == {"pair": {"s0": 1}, "one": {"f0": 1}}


def test_a_job_that_runs_no_relaxed_gangs_gets_one_gpu_where_that_is_enough() -> None:
    one = trains("one", 400.0, (1, 2, 4), modes=("lockstep",))
    pair = trains("pair", 400.0, (2,), modes=("lockstep",))
    decision = decide("allox", view([one, pair], [gpus("f0", 4, "fast")]), estimator=silent)
    [choice] = decision.choices
    assert (choice.job_id, choice.gang) == ("one", Gang.of(place_on(f0=1)))
    [waits] = decision.left
    assert (waits.job_id, waits.reason) == ("pair", Waiting.NO_CONFIGURATION)
    assert waits.detail == "it runs no relaxed gangs"


def test_it_is_not_said_to_lack_relaxed_gangs_where_its_gpus_are_away_or_used_for_measurements() -> None:
    one = trains("one", 400.0, (1,), modes=("lockstep",))
    away = msgspec.structs.replace(one, gpu_types=(GpuType("gone"),))
    [waits] = decide("allox", view([away], [gpus("f0", 2, "fast")]), estimator=silent).left
    assert (waits.reason, waits.detail) == (Waiting.NO_CONFIGURATION, "")
    measured = msgspec.structs.replace(gpus("f0", 2, "fast"), idle=0)
    [waits] = decide("allox", view([one], [measured]), estimator=silent).left
    assert (waits.reason, waits.detail) == (Waiting.OUTWEIGHED, "its GPUs are used for measurements")


def test_a_gang_whose_turn_it_is_is_not_overtaken_on_its_type() -> None:
    running = trains("runs", 1000.0, present=here(10.0, f0=1))
    seen = view([running, trains("pair", 400.0, (2,)), trains("long", 40_000.0)], [gpus("f0", 2, "fast")])
    decision = decide("allox-gang", seen)
    assert chosen(decision) == {"runs": {"f0": 1}}
    assert [one.job_id for one in decision.left] == ["pair", "long"]


def test_jobs_of_unknown_size_count_as_one_round() -> None:
    """By rounds, the one of the smaller batch comes first; by samples, the other."""
    jobs = [
        trains("small-batch", 4000.0, batch_size=8),
        trains("large-batch", 400.0, batch_size=64),
    ]
    seen = view(jobs, [gpus("f0", 1, "fast")])
    assert set(chosen(decide("allox", seen, estimator=silent))) == {"large-batch"}
    assert set(chosen(decide("allox", seen, estimator=silent, sizes="unit"))) == {"small-batch"}


def test_a_gang_without_an_estimate_waits() -> None:
    seen = view([trains("pair", 400.0, (2,))], [gpus("f0", 2, "fast")])
    assert waiting(decide("allox-gang", seen, estimator=silent)) == {"pair": Waiting.NO_ESTIMATE}
