"""The stack of a simulation: what goes wrong in a service ends the run at once."""

from pathlib import Path

import pytest

from loadgen.simulation import simulate
from services.planner.policies.registry import UnfitPolicy
from tests.simulation.storms import SMALL


def test_a_service_that_cannot_be_built_ends_the_simulation(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"nowhere"):
        simulate(SMALL, overrides={"store": str(tmp_path / "nowhere" / "store.duckdb")})


@pytest.mark.parametrize("policy", ["nonsense", "json:loads"])
def test_no_stand_in_runs_under_another_policy_s_name(policy: str) -> None:
    with pytest.raises(UnfitPolicy, match=policy.partition(":")[0]):
        simulate(SMALL, policy=policy)
