"""Whatever dies and whatever the bus does: no job lost, none started twice, no GPU with two owners."""

from functools import cache
from typing import NamedTuple

import msgspec
import pytest

from loadgen.simulation import Engine, Simulated, simulate
from schemas.events import JobStarted, NodeJoined, NodeLost, PlanPublished
from schemas.placement import Gang
from schemas.scenarios import ListedWorkload
from shared.domain import gangs
from shared.domain.audit import audit
from tests.simulation.storms import JOBS, SMALL, arriving, stormy

SEEDS = 50
AT_ONCE = 15
"""seeds that are run on the loop, which takes several times as long, with the quick tests"""
assert isinstance(SMALL.workload, ListedWorkload)
WIDER = msgspec.structs.replace(
    SMALL, workload=ListedWorkload(jobs=[*SMALL.workload.jobs, arriving(20.0, "wide", 6, 900.0)])
)
"""with a job for which no type has GPUs enough"""
ENGINES: tuple[Engine, ...] = ("conductor", "loop")


def assert_ended_well(ran: Simulated) -> None:
    assert audit(ran.events, drained=True, seqs=ran.seqs) == []
    assert ran.result.jobs == {"submitted": JOBS, "completed": JOBS}


@cache
def small(seed: int, engine: Engine) -> Simulated:
    return stormy(seed, engine=engine)


@pytest.mark.parametrize(
    ("seed", "engine"),
    [
        pytest.param(seed, engine, marks=[pytest.mark.slow] if engine == "loop" and seed >= AT_ONCE else [])
        for engine in ENGINES
        for seed in range(SEEDS)
    ],
)
def test_a_storm_costs_only_time(seed: int, engine: Engine) -> None:
    assert_ended_well(small(seed, engine))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", range(SEEDS, SEEDS + 5))
def test_a_storm_costs_only_time_under_another_policy(seed: int, engine: Engine) -> None:
    assert_ended_well(stormy(seed, "fifo", engine))


MIXING = (
    "hadar",
    "hadar-delay",
    "hadar-literal",
    "hare",
    "jps",
    "has-weighted",
    "optimus-lb",
    "exhaustive",
    "hlas",
    "hlas-p",
    "hlas-l",
)
"""policies whose gangs may take GPUs of several types"""


class Stormed(NamedTuple):
    found: list[str]
    """by the audit"""
    jobs: dict[str, int]
    mixes: bool
    """a gang had GPUs of several types"""
    shares: bool
    """jobs had the same GPUs in turns"""


@cache
def wider(seed: int, policy: str, engine: Engine) -> Stormed:
    ran = stormy(seed, policy, engine, WIDER)
    return Stormed(
        found=[str(one) for one in audit(ran.events, drained=True, seqs=ran.seqs)],
        jobs=dict(ran.result.jobs),
        mixes=any(mixed(fact.gang) for fact in ran.events if isinstance(fact, JobStarted)),
        shares=any(shared(fact) for fact in ran.events if isinstance(fact, PlanPublished)),
    )


LOOP_SLOWLY = ["conductor", pytest.param("loop", marks=pytest.mark.slow)]


@pytest.mark.parametrize("engine", LOOP_SLOWLY)
@pytest.mark.parametrize("policy", MIXING)
@pytest.mark.parametrize("seed", range(SEEDS, SEEDS + 3))
def test_a_storm_costs_only_time_with_gangs_of_unlike_gpus(seed: int, policy: str, engine: Engine) -> None:
    ran = wider(seed, policy, engine)
    assert ran.found == []
    assert ran.jobs == {"submitted": JOBS + 1, "completed": JOBS + 1}


@pytest.mark.parametrize("engine", LOOP_SLOWLY)
@pytest.mark.parametrize("policy", MIXING)
def test_the_storms_have_gangs_of_unlike_gpus(policy: str, engine: Engine) -> None:
    """Of some seed: whoever lets tasks take turns may have the widest job on one type as well."""
    assert any(wider(seed, policy, engine).mixes for seed in range(SEEDS, SEEDS + 3))


@pytest.mark.parametrize("engine", LOOP_SLOWLY)
def test_the_storms_have_gpus_that_jobs_share(engine: Engine) -> None:
    assert all(wider(seed, "hare", engine).shares for seed in range(SEEDS, SEEDS + 3))


def mixed(gang: Gang) -> bool:
    """Nodes of the small scenario are named by their type."""
    return len({node.partition("-")[0] for node in gang.nodes}) > 1


def shared(plan: PlanPublished) -> bool:
    rotas = [name for one in plan.placements if (name := gangs.rota(one.gang))]
    return len(set(rotas)) < len(rotas)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("policy", ["allox", "allox-gang", "sched-homo"])
@pytest.mark.parametrize("seed", range(SEEDS, SEEDS + 3))
def test_a_storm_costs_only_time_under_a_policy_without_moves(seed: int, policy: str, engine: Engine) -> None:
    assert_ended_well(stormy(seed, policy, engine))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_storm_restarts_jobs_and_loses_nodes(engine: Engine) -> None:
    """Or the tests above would say nothing."""
    calm, storm = simulate(SMALL), small(1, engine)
    restarts = (calm.result.metrics["restarts"] or 0.0, storm.result.metrics["restarts"] or 0.0)
    assert restarts[0] < restarts[1]
    assert len([fact for fact in calm.events if isinstance(fact, NodeJoined)]) == 4
    assert len([fact for fact in storm.events if isinstance(fact, NodeJoined)]) > 4
    assert any(isinstance(fact, NodeLost) for seed in range(3) for fact in small(seed, engine).events)
