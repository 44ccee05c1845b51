"""The stack of a simulation: what goes wrong in a service ends the run at once."""

import pytest
from storms import SMALL

from loadgen.simulation import simulate
from services.planner.registry import UnknownPolicy


def test_a_service_that_cannot_be_built_ends_the_simulation() -> None:
    with pytest.raises(UnknownPolicy, match="nonsense"):
        simulate(SMALL, policy="nonsense")
