"""Whatever dies and whatever the bus does: no job lost, none started twice, no GPU with two owners."""

import pytest

from loadgen.simulation import Engine, Simulated, simulate
from schemas.events import NodeJoined, NodeLost
from shared.domain.audit import audit
from tests.simulation.storms import JOBS, SMALL, stormy

SEEDS = 50
ENGINES: tuple[Engine, ...] = ("conductor", "loop")


def assert_ended_well(ran: Simulated) -> None:
    assert audit(ran.events, drained=True, seqs=ran.seqs) == []
    assert ran.result.jobs == {"submitted": JOBS, "completed": JOBS}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_storm_costs_time_and_nothing_else(seed: int, engine: Engine) -> None:
    assert_ended_well(stormy(seed, engine=engine))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", range(SEEDS, SEEDS + 5))
def test_a_storm_costs_time_and_nothing_else_under_another_policy(seed: int, engine: Engine) -> None:
    assert_ended_well(stormy(seed, "fifo", engine))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_storm_is_one(engine: Engine) -> None:
    """Or the tests above would say nothing."""
    calm, storm = simulate(SMALL), stormy(1, engine=engine)
    restarts = (calm.result.metrics["restarts"] or 0.0, storm.result.metrics["restarts"] or 0.0)
    assert restarts[0] < restarts[1]
    assert len([fact for fact in calm.events if isinstance(fact, NodeJoined)]) == 4
    assert len([fact for fact in storm.events if isinstance(fact, NodeJoined)]) > 4
    assert any(isinstance(fact, NodeLost) for seed in range(3) for fact in stormy(seed, engine=engine).events)
