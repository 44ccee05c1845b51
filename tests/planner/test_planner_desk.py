"""The planner's outside work: a policy or an estimator that fails costs a note, never the plan."""

from collections.abc import AsyncIterator, Iterator

import msgspec
import pytest
from desk_builders import SEEN, answer, planned
from planner_builders import chosen, place_on

from schemas.base import Message, Question
from schemas.plans import Layer, Stage
from schemas.questions import ESTIMATOR, Refused
from schemas.settings import Settings
from services.planner.aside import Aside
from services.planner.desk import Desk, Inline, Runner
from services.planner.gauges import gauges
from services.planner.view import Effort
from shared.runtime.clock import LoopClock
from shared.runtime.memory import MemoryBus
from shared.runtime.service import Ports

SETTINGS = Settings(estimate_timeout_real_s=0.2)
LIVE = Effort(budget_s=0.5)


async def refuse(_: Question) -> Message:
    return Refused(reason="no store")


@pytest.fixture
async def bus() -> AsyncIterator[MemoryBus]:
    bus = MemoryBus(LoopClock())
    yield bus
    await bus.close()


@pytest.fixture(scope="module")
def aside() -> Iterator[Aside]:
    aside = Aside(SETTINGS)
    yield aside
    aside.end()


def desk(bus: MemoryBus, runner: Runner | None = None) -> Desk:
    ports = Ports(bus=bus, clock=LoopClock())
    return Desk(SETTINGS, ports, runner or Inline(SETTINGS))


async def test_the_estimator_is_asked_and_the_policy_decides(bus: MemoryBus) -> None:
    await bus.serve("estimator", ESTIMATOR, answer)
    ready, decision = await planned(desk(bus))
    assert ready.notes == decision.notes == ()
    assert chosen(decision) == {"x": place_on(a0=4), "y": place_on(a0=4)}
    assert {choice.layer for choice in decision.choices} == {Layer.THEORY}


async def test_an_estimator_that_is_away_leaves_the_last_estimates(bus: MemoryBus) -> None:
    one = desk(bus)
    await bus.serve("estimator", ESTIMATOR, answer)
    await planned(one)
    other = MemoryBus(LoopClock())
    away = desk(other)
    away._remembered = one._remembered
    ready, decision = await planned(away)
    await other.close()
    assert "estimates of earlier plans" in ready.notes[0]
    assert {choice.layer for choice in decision.choices} == {Layer.CACHED}
    assert len(decision.choices) == 2


async def test_an_estimator_that_refuses_on_the_first_plan_leaves_nothing_known(bus: MemoryBus) -> None:
    await bus.serve("estimator", ESTIMATOR, refuse)
    ready, _ = await planned(desk(bus))
    assert not ready.estimates.known()
    assert "no store" in ready.notes[0]


async def test_a_policy_that_raises_is_stood_in_for(bus: MemoryBus) -> None:
    await bus.serve("estimator", ESTIMATOR, answer)
    one = desk(bus)
    ready, decision = await planned(one, "planner_policies:Raises")
    assert ready.policy == "fifo"
    assert "out of ideas" in ready.notes[0]
    assert chosen(decision) == {"x": place_on(a0=2), "y": place_on(a0=2)}
    assert gauges(one.spared)[0].value == 1.0


async def test_a_decision_that_breaks_a_rule_is_stood_in_for(bus: MemoryBus) -> None:
    await bus.serve("estimator", ESTIMATOR, answer)
    _, decision = await planned(desk(bus), "planner_policies:Greedy")
    assert decision.notes == (
        "planner_policies:Greedy decided wrongly: 2 configurations for job x; planned by fifo",
    )
    assert decision.stage == Stage.QUEUE


async def test_a_decision_that_cannot_be_published_is_stood_in_for(bus: MemoryBus) -> None:
    await bus.serve("estimator", ESTIMATOR, answer)
    _, decision = await planned(desk(bus), "planner_policies:Numbers")
    assert "numpy.float32" in decision.notes[0]
    assert decision.stage == Stage.QUEUE


async def test_a_stand_in_keeps_the_memory_of_the_policy_that_failed(bus: MemoryBus) -> None:
    await bus.serve("estimator", ESTIMATOR, answer)
    seen = msgspec.structs.replace(SEEN, memory=b"mine")
    for policy in ("Raises", "Greedy"):
        _, decision = await planned(desk(bus), f"planner_policies:{policy}", seen)
        assert decision.memory == b"mine"


async def test_a_policys_memory_comes_back_in_its_next_decision(bus: MemoryBus) -> None:
    await bus.serve("estimator", ESTIMATOR, answer)
    _, first = await planned(desk(bus), "planner_policies:Counts")
    again = msgspec.structs.replace(SEEN, memory=first.memory)
    _, second = await planned(desk(bus), "planner_policies:Counts", again)  # a planner begun anew
    assert (first.memory, second.memory) == (b"1", b"2")


async def test_another_process_decides_the_same(bus: MemoryBus, aside: Aside) -> None:
    await bus.serve("estimator", ESTIMATOR, answer)
    _, there = await planned(desk(bus, aside))
    _, here = await planned(desk(bus))
    assert there == here


@pytest.mark.parametrize(
    ("policy", "complaint"), [("Crashes", "the process ended"), ("Hangs", "no answer within")]
)
async def test_a_process_that_ends_or_hangs_costs_nothing_but_quality(
    bus: MemoryBus, aside: Aside, policy: str, complaint: str
) -> None:
    await bus.serve("estimator", ESTIMATOR, answer)
    seen = msgspec.structs.replace(SEEN, effort=LIVE)
    one = desk(bus, aside)
    _, decision = await planned(one, f"planner_policies:{policy}", seen)
    assert (one.spared.stood_in, one.spared.unsolved) == (0, 1)
    assert complaint in decision.notes[0]
    assert "without solving" in decision.notes[0]
    assert (decision.stage, len(decision.choices)) == (Stage.GREEDY, 2)


async def test_the_process_is_replaced_after_a_crash(bus: MemoryBus, aside: Aside) -> None:
    await bus.serve("estimator", ESTIMATOR, answer)
    seen = msgspec.structs.replace(SEEN, effort=LIVE)
    await planned(desk(bus, aside), "planner_policies:Crashes", seen)
    _, decision = await planned(desk(bus, aside))
    assert decision.stage == Stage.OPTIMAL
