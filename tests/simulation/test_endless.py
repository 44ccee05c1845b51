"""A simulation counts as endless long after its last job came, however late that is."""

import msgspec
import pytest

from loadgen.simulation import Engine, simulate
from loadgen.stack import LONGEST_S
from schemas.scenarios import ListedWorkload, ScenarioFile
from tests.simulation.storms import SMALL, arriving

SELDOM = {"round_s": 10 * 86_400.0, "heartbeat_real_s": 86_400.0, "node_lease_real_s": 259_200.0}


def alone(at_s: float) -> ScenarioFile:
    """One job, in a cluster that is quiet without it."""
    workload = ListedWorkload(jobs=[arriving(at_s, "alone", 1, 600.0)])
    return msgspec.structs.replace(SMALL, workload=workload, settings=SELDOM)


@pytest.mark.parametrize("engine", ["conductor", "loop"])
def test_a_job_may_come_after_more_than_a_year(engine: Engine) -> None:
    result = simulate(alone(LONGEST_S + 1e6), policy="fifo", engine=engine).result
    assert result.jobs == {"submitted": 1, "completed": 1}
