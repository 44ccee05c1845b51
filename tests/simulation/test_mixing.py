"""Gangs over several GPU types, in storms and without: they run, are audited, and teach nothing untrue."""

from functools import cache

import pytest

from loadgen.simulation import Engine, Simulated, simulate
from schemas.events import JobStarted, NodeJoined
from schemas.ids import GpuType, NodeId
from schemas.jobs import GpuRange
from schemas.scenarios import ListedWorkload, ScenarioFile
from shared.domain.audit import audit
from tests.simulation.storms import CLUSTER, SMALL, arriving, stormy

MIXING = "tests.simulation.mixing_policies:Mixing"
ENGINES: tuple[Engine, ...] = ("conductor", "loop")


WIDE = ScenarioFile(
    name="wide",
    cluster=CLUSTER,
    workload=ListedWorkload(
        jobs=[
            arriving(0.0, "wide", 7, 1500.0),
            arriving(5.0, "small", 2, 300.0),
            arriving(10.0, "elastic", GpuRange(min=1, max=4, choices=4), 900.0),
            arriving(300.0, "late", [2, 4], 500.0),
        ]
    ),
    settings=SMALL.settings,
)
"""each type has four GPUs"""
JOBS = 4


@cache
def ran(policy: str, engine: Engine) -> Simulated:
    return simulate(WIDE, policy=policy, engine=engine)


def types_of(run: Simulated) -> dict[NodeId, GpuType]:
    return {fact.node_id: fact.node.gpu_type for fact in run.events if isinstance(fact, NodeJoined)}


def mixed_starts(run: Simulated) -> list[JobStarted]:
    types = types_of(run)
    starts = [fact for fact in run.events if isinstance(fact, JobStarted)]
    return [fact for fact in starts if len({types[node] for node in fact.gang.nodes}) > 1]


def test_gangs_of_several_types_run_and_are_audited() -> None:
    run = ran(MIXING, "conductor")
    assert mixed_starts(run)
    assert run.result.jobs == {"submitted": JOBS, "completed": JOBS}
    assert audit(run.events, drained=True, seqs=run.seqs) == []


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", range(6))
def test_a_storm_over_mixed_gangs_costs_only_time(seed: int, engine: Engine) -> None:
    run = stormy(seed, MIXING, engine, WIDE)
    assert mixed_starts(run)
    assert audit(run.events, drained=True, seqs=run.seqs) == []
    assert run.result.jobs == {"submitted": JOBS, "completed": JOBS}


def test_both_engines_run_mixed_gangs_alike() -> None:
    logs = {ran(MIXING, engine).result.event_log_hash for engine in ENGINES}
    assert len(logs) == 1


def test_a_job_that_only_a_mix_can_hold_is_accepted_and_runs() -> None:
    assert 7 in [fact.gang.gpus for fact in mixed_starts(ran(MIXING, "conductor"))]


def test_a_policy_that_never_mixes_runs_the_other_jobs_and_names_the_waiting_one() -> None:
    run = ran("fifo", "conductor")
    assert run.result.jobs == {"submitted": JOBS, "completed": JOBS - 1, "queued": 1}
    [waits] = run.result.waiting
    assert waits.startswith("wide-")
    assert audit(run.events, drained=False, seqs=run.seqs) == []


def test_both_engines_end_alike_where_a_job_is_never_placed() -> None:
    logs = {ran("fifo", engine).result.event_log_hash for engine in ENGINES}
    assert len(logs) == 1
