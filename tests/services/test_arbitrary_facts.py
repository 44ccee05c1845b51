"""Whatever is in the stream, a core takes it: a fact that raised would raise at every replay, for ever."""

import math
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from schemas.base import Event
from schemas.placement import Lockstep
from schemas.settings import Settings
from services.admission.core import Admission
from services.agent.core import Agent, Superseded
from services.estimator.core import Estimator
from services.monitor.core import Monitor
from services.placer.core import Placer
from services.planner.core.planner import Planner
from services.planner.core.tasks import Leadership
from services.planner.solver.effort import Effort
from services.profiler.core import Profiler
from shared.domain.core import Core
from shared.domain.invariants import impossible
from tests.fact_builders import a_node
from tests.services.fact_strategies import FACT

CORES: dict[str, Callable[[], Core]] = {
    "admission": lambda: Admission(Settings()),
    "agent": lambda: Agent(a_node(gpus=4), "life", frozenset({Lockstep})),
    "estimator": lambda: Estimator(flush_s=10.0),
    "monitor": lambda: Monitor(lease_s=30.0, interruptions_max=3, raqlr_window_s=3600.0, speed=1.0),
    "placer": lambda: Placer(start_timeout_s=60.0, profile_iterations=20),
    "planner": lambda: Planner(Settings(), effort=Effort(gap=0.01, budget_s=1.0), grace_s=10.0),
    "profiler": lambda: Profiler(round_s=60.0, timeout_s=30.0, attempts=2),
}


def _possible(fact: Event) -> bool:
    """Whether a service that reads it from the bus takes it for one."""
    return not impossible(fact)


@pytest.mark.parametrize("name", CORES)
@given(facts=st.lists(FACT, max_size=40))
@limits(max_examples=60, deadline=None)
def test_a_core_takes_whatever_is_in_the_stream(name: str, facts: list[Event]) -> None:
    core, now = CORES[name](), 0.0
    core.resume(now)
    core.handle(Leadership(token=3, announce=False), now)
    for fact in filter(_possible, facts):
        now += 5.0
        try:
            core.handle(fact, now)
        except Superseded:
            assert name == "agent", "only an agent may have to end for another"
            return
        if (due := core.next_wakeup()) is not None and due <= now:
            core.wake(now)
            assert (core.next_wakeup() or math.inf) > due
    stored = msgspec.msgpack.encode(core.state)
    assert msgspec.msgpack.encode(msgspec.msgpack.decode(stored, type=type(core.state))) == stored
