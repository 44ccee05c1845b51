"""The time in which workers have to come up runs only while the placer would know that they did."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec
import pytest

from schemas.base import Event
from schemas.events import (
    GangFormed,
    JobStarted,
    JobSubmitted,
    NodeLost,
    Outcome,
    PlacementRefused,
    StartOrdered,
    StopOrdered,
    WorkerStarted,
    WorkerStopped,
)
from schemas.plans import Placement, PlanKind
from schemas.settings import Settings
from services.placer.build import build
from services.placer.core import Placer
from services.placer.state import State
from shared.domain.core import Behind, Effects, Publish
from shared.runtime.bus.memory import MemoryBus
from shared.runtime.clock import LoopClock
from shared.runtime.service import Ports
from shared.runtime.shell.shell import Shell
from shared.runtime.shell.virtual import run
from tests.services.placer.placer_bench import (
    JOB,
    OTHER,
    A,
    B,
    Bench,
    joined,
    node,
    place,
    plan,
    spec,
    worker_started,
)

LIMIT_S = 60.0
SETTINGS = Settings(start_timeout_real_s=LIMIT_S)


class Stage:
    """A placer in its shell. `others`: the bus as the other services and the agents see it."""

    def __init__(self) -> None:
        self.bus = MemoryBus(LoopClock())
        self.others = self.bus.client("others")

    @asynccontextmanager
    async def placer(self) -> AsyncIterator[None]:
        ports = Ports(bus=self.bus, clock=LoopClock())
        living = asyncio.create_task(Shell(build(SETTINGS, ports), ports, SETTINGS).run())
        try:
            yield
        finally:
            living.cancel()
            await asyncio.wait([living])

    async def begin(self, placement: Placement) -> None:
        """A node, two jobs, and a plan that places one of them."""
        jobs = [JobSubmitted(at=0.0, job_id=one, spec=spec(), key=one) for one in (JOB, OTHER)]
        await self.others.publish([joined(A, node(A), life="1"), *jobs])
        await self.plan(placement, at=0.0)

    async def plan(self, placement: Placement, *, at: float) -> None:
        made = plan(f"plan-{at:g}", [placement], kind=PlanKind.FIRST, token=1, at=at)
        await self.others.publish([made])

    async def come_up(self, placement: Placement, *, at: float) -> None:
        await self.others.publish([up(placement, at)])

    async def stop(self, placement: Placement, *, at: float) -> None:
        await self.others.publish([stopped(placement, at)])

    async def away(self, seconds: float) -> None:
        self.bus.cut()
        await asyncio.sleep(seconds)
        self.bus.mend()

    def facts(self, *kinds: type[Event]) -> list[Event]:
        return [fact for fact in self.bus.stored(0) if isinstance(fact, kinds)]


def up(placement: Placement, at: float) -> WorkerStarted:
    return msgspec.structs.replace(worker_started(placement, A, 4), at=at)


def stopped(placement: Placement, at: float) -> WorkerStopped:
    return WorkerStopped(
        at=at,
        node_id=A,
        placement_id=placement.placement_id,
        job_id=placement.job_id,
        outcome=Outcome.CHECKPOINTED,
        samples_done=5.0,
        leads=True,
    )


def published(effects: Effects) -> list[Event]:
    return [effect.event for effect in effects if isinstance(effect, Publish)]


def kinds(facts: Sequence[Event]) -> list[type[Event]]:
    return [type(fact) for fact in facts]


@pytest.mark.parametrize(("cut_at", "away_s"), [(5.0, 40.0), (5.0, 120.0), (59.9, 40.0)])
def test_workers_that_came_up_while_the_bus_was_away_start_their_job(cut_at: float, away_s: float) -> None:
    async def story() -> None:
        stage, placement = Stage(), place("p1", a=4)
        async with stage.placer():
            await stage.begin(placement)
            await asyncio.sleep(cut_at)
            await stage.away(away_s)
            await asyncio.sleep(2)  # the agent is back a little later
            await stage.come_up(placement, at=cut_at)
            await asyncio.sleep(1)
        assert kinds(stage.facts(JobStarted, PlacementRefused)) == [JobStarted]

    run(story)


def test_workers_that_came_up_while_the_placer_was_down_start_their_job() -> None:
    async def story() -> None:
        stage, placement = Stage(), place("p1", a=4)
        async with stage.placer():
            await stage.begin(placement)
            await asyncio.sleep(5)
        await asyncio.sleep(300)
        async with stage.placer():
            await asyncio.sleep(2)
            await stage.come_up(placement, at=15.0)
            await asyncio.sleep(1)
        assert kinds(stage.facts(JobStarted, PlacementRefused)) == [JobStarted]

    run(story)


@pytest.mark.parametrize("away_s", [50.0, 120.0])
def test_a_start_that_an_old_fact_makes_possible_is_ordered_now_and_has_its_whole_time(away_s: float) -> None:
    async def story() -> None:
        stage, old, new = Stage(), place("p1", a=4), place("p2", OTHER, a=4)
        async with stage.placer():
            await stage.begin(old)
            await stage.come_up(old, at=0.0)
            await asyncio.sleep(3)
            await stage.plan(new, at=3.0)
            await asyncio.sleep(2)
            await stage.away(away_s)
            await stage.stop(old, at=10.0)
            await asyncio.sleep(58)
            assert kinds(stage.facts(PlacementRefused)) == []
            await asyncio.sleep(4)
        [order] = [fact for fact in stage.facts(StartOrdered) if fact.at > 0]
        assert order.at == pytest.approx(5.0 + away_s)
        [refused] = stage.facts(PlacementRefused)
        assert refused.at == pytest.approx(order.at + LIMIT_S)

    run(story)


def test_orders_have_the_time_at_which_they_are_given_and_other_facts_that_of_their_cause() -> None:
    bench, placement = Bench(), place("p1", a=4, b=1)
    started = bench.core.handle(plan("plan-1", [placement], kind=PlanKind.FRAGMENT, token=1, at=10.0), 50.0)
    assert [(type(fact), fact.at) for fact in published(started)] == [(StartOrdered, 50.0)] * 2
    bench.core.handle(up(placement, 20.0), 90.0)
    began = bench.core.handle(msgspec.structs.replace(worker_started(placement, B, 1), at=30.0), 90.0)
    assert [(type(fact), fact.at) for fact in published(began)] == [
        (JobStarted, 30.0),
        (GangFormed, 90.0),
    ]
    lost = bench.core.handle(NodeLost(at=100.0, node_id=B), 120.0)
    assert [(type(fact), fact.at) for fact in published(lost)] == [(StopOrdered, 120.0)] * 2


def test_the_state_does_not_depend_on_when_facts_are_handled() -> None:
    at_once, later = Bench().core, Bench().core
    made = plan("plan-1", [place("p1", a=4)], kind=PlanKind.FIRST, token=1, at=10.0)
    at_once.handle(made, 10.0)
    later.handle(made, 510.0)
    assert at_once.state == later.state


def coming_up() -> Placer:
    """A placer that ordered a start at 10 s."""
    bench = Bench()
    bench.plan(place("p1", a=4), at=10.0)
    return bench.core


def test_a_limit_begins_again_while_the_bus_is_away() -> None:
    placer = coming_up()
    for at in (40.0, 90.0, 140.0):
        assert placer.handle(Behind(), at) == []
    assert placer.next_wakeup() == 140.0 + LIMIT_S
    assert kinds(published(placer.wake(140.0 + LIMIT_S))) == [PlacementRefused]


def test_a_placer_that_overslept_blames_itself_and_not_the_workers() -> None:
    placer = coming_up()
    assert placer.wake(1e6) == []
    assert placer.next_wakeup() == 1e6 + LIMIT_S


def test_a_limit_begins_again_with_the_placer() -> None:
    again = Placer(start_timeout_s=LIMIT_S, profile_iterations=20)
    again.state = msgspec.msgpack.decode(msgspec.msgpack.encode(coming_up().state), type=State)
    assert again.resume(1000.0) == []
    assert again.next_wakeup() == 1000.0 + LIMIT_S
