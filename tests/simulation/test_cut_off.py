"""An agent that is cut off sends no samples: on the conductor as on the loop, so both tell the same facts."""

import pytest

from loadgen.fault_injection import Stack
from loadgen.simulation import Engine, simulate
from schemas.samples import ThroughputObserved
from services.estimator.core import Estimator
from shared.domain.core import Effects, Input
from tests.simulation.storms import SMALL

AGENT, NODE = "agent-rtx-1", "rtx-1"
CUT_AT_S, AWAY_S = 310.3, 130.7
"""longer than from one observation to the next (`observe_every_s`)"""


async def cut_off(stack: Stack) -> None:
    await stack.sleep(CUT_AT_S)
    stack.cut(AGENT)
    await stack.sleep(AWAY_S)
    stack.mend(AGENT)


class Heard(Estimator):
    """Notes when samples of the node come."""

    at: list[float]

    def handle(self, message: Input, now: float) -> Effects:
        if isinstance(message, ThroughputObserved) and message.node_id == NODE:
            self.at.append(now)
        return super().handle(message, now)


@pytest.mark.parametrize("engine", ["conductor", "loop"])
def test_no_sample_of_an_agent_that_is_cut_off_arrives(
    monkeypatch: pytest.MonkeyPatch, engine: Engine
) -> None:
    def heard_while_cut(*, cut: bool) -> int:
        Heard.at = []
        simulate(SMALL, disturb=[cut_off] if cut else [], engine=engine)
        return sum(CUT_AT_S < at < CUT_AT_S + AWAY_S for at in Heard.at)

    monkeypatch.setattr("services.estimator.build.Estimator", Heard)
    assert heard_while_cut(cut=False) > 0
    assert heard_while_cut(cut=True) == 0
