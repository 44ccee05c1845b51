"""A job fails at its time limit only if the monitor would know of its end."""

import asyncio

import pytest

from schemas.base import Event
from schemas.events import JobCompleted, JobFailed
from schemas.settings import Settings
from services.monitor.build import build
from shared.domain.core import Behind, Publish
from shared.runtime.bus.memory import MemoryBus
from shared.runtime.clock import LoopClock
from shared.runtime.service import Ports
from shared.runtime.shell.shell import Shell
from shared.runtime.shell.virtual import run
from tests.fact_builders import (
    checkpointed,
    in_queue,
    joined,
    lost,
    preempted,
    start_ordered,
    started,
    worker_started,
    worker_stopped,
)
from tests.services.monitor.monitor_world import LEASE_S, World

RUNS = (joined(), *in_queue(time_limit_s=100.0), start_ordered(), worker_started(), started())
DONE = worker_stopped(at=50.0)


def ends_in(bus: MemoryBus) -> list[type[Event]]:
    return [type(fact) for fact in bus.stored(0) if isinstance(fact, JobCompleted | JobFailed)]


def monitor_on(bus: MemoryBus) -> Shell:
    ports = Ports(bus=bus, clock=LoopClock())
    return Shell(build(Settings(node_lease_real_s=LEASE_S), ports), ports, Settings())


@pytest.mark.parametrize("cut_at", [40.0, 99.9])
def test_a_job_that_completed_in_time_while_the_bus_was_away_is_complete(cut_at: float) -> None:
    async def story() -> None:
        bus = MemoryBus(LoopClock())
        others = bus.client("others")
        await others.publish(RUNS)
        living = asyncio.create_task(monitor_on(bus).run())
        await asyncio.sleep(cut_at)
        bus.cut()
        await asyncio.sleep(300)
        bus.mend()
        await asyncio.sleep(2)  # the agent is back a little later, and publishes what has waited there
        await others.publish([DONE])
        await asyncio.sleep(20)
        assert ends_in(bus) == [JobCompleted]
        living.cancel()
        await asyncio.wait([living])

    run(story)


@pytest.mark.parametrize("facts", [5, 300, 3_000])
def test_a_job_whose_completion_is_in_the_backlog_of_a_new_monitor_is_complete(facts: int) -> None:
    async def story() -> None:
        bus = MemoryBus(LoopClock())
        await bus.publish(RUNS)
        await bus.put("cursor/monitor", str(len(RUNS)).encode())
        await bus.publish([checkpointed(at=i / 100, samples_done=i + 1.0) for i in range(facts)])
        await bus.publish([DONE])
        await asyncio.sleep(200)
        living = asyncio.create_task(monitor_on(bus).run())
        await asyncio.sleep(20)
        assert ends_in(bus) == [JobCompleted]
        living.cancel()
        await asyncio.wait([living])

    run(story)


def a_job_that_runs() -> World:
    """Its node is lost: who is silent is no part of this."""
    return World(*RUNS, lost())


def test_an_overdue_job_has_a_lease_for_its_end_once_the_bus_is_back() -> None:
    world = a_job_that_runs()
    for at in (90.0, 150.0, 300.0):
        world.monitor.handle(Behind(), at)
    assert world.until(300.0 + LEASE_S - 0.1) == []
    assert [type(fact) for fact in world.until(300.0 + LEASE_S)] == [JobFailed]


@pytest.mark.parametrize("snapshot", [True, False])
def test_an_overdue_job_has_a_lease_for_its_end_after_a_restart(snapshot: bool) -> None:  # noqa: FBT001
    world = a_job_that_runs()
    world.restart(at=200.0, snapshot=snapshot)
    assert world.monitor.next_wakeup() == 200.0 + LEASE_S


def test_a_monitor_that_overslept_fails_no_job_at_once() -> None:
    world = a_job_that_runs()
    assert world.wake_late(200.0) == []
    assert world.monitor.next_wakeup() == 200.0 + LEASE_S


def test_a_limit_that_is_not_over_is_the_same_after_the_bus_was_away() -> None:
    world = a_job_that_runs()
    world.monitor.handle(Behind(), 50.0)
    assert world.monitor.next_wakeup() == 100.0


def test_a_job_whose_end_is_published_does_not_fail_for_its_limit() -> None:
    world = a_job_that_runs()
    [end] = world.monitor.handle(DONE, 50.0)
    assert isinstance(end, Publish)
    assert isinstance(end.event, JobCompleted)
    assert world.monitor.wake(100.0) == []  # the completion is not back from the stream
    assert world.monitor.next_wakeup() is None


def test_a_job_that_ran_beyond_its_limit_while_the_monitor_was_down_fails_as_it_starts_again() -> None:
    ran_on = (preempted(at=400.0), start_ordered(at=410.0, place="again"), worker_started(place="again"))

    async def story() -> None:
        bus = MemoryBus(LoopClock())
        await bus.publish(RUNS)
        await asyncio.sleep(420)
        await bus.publish(ran_on)
        living = asyncio.create_task(monitor_on(bus).run())
        await asyncio.sleep(80)
        await bus.publish([started(at=500.0, place="again")])
        await asyncio.sleep(0.5)
        assert not living.done(), living
        assert ends_in(bus) == [JobFailed]
        living.cancel()
        await asyncio.wait([living])

    run(story)
