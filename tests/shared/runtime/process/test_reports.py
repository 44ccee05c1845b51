"""How services report themselves: a life, its end, what the next one knows of it."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from schemas.instances import instances_of
from schemas.settings import Settings
from schemas.views import ServiceState, ServiceView
from services.table import OF_CLUSTER
from shared.runtime.bus.memory import MemoryBus
from shared.runtime.clock import LoopClock
from shared.runtime.process.reports import (
    GONE_AFTER_REAL_S,
    KILLED,
    LOOK_REAL_S,
    NAMES,
    RENEW_REAL_S,
    Reporter,
    forget_reports,
    reported,
    reports,
)


@pytest.fixture
async def bus() -> AsyncIterator[MemoryBus]:
    bus = MemoryBus(LoopClock())
    yield bus
    await bus.close()


async def planner(bus: MemoryBus) -> ServiceView:
    [found] = await reports(bus)
    return found


def test_the_services_of_the_cluster_report() -> None:
    assert tuple(entry.name for entry in OF_CLUSTER) == NAMES


async def test_a_service_says_when_it_is_up_and_what_troubles_it(bus: MemoryBus) -> None:
    async with reported(bus, "planner") as reporter:
        assert reporter is not None
        assert (await planner(bus)).state is ServiceState.STARTING
        renewing = asyncio.create_task(reporter.renew(ready=lambda: True, troubles=lambda: ["no policy"]))
        while (await planner(bus)).state is not ServiceState.UP:
            await asyncio.sleep(0)
        assert (await planner(bus)).troubles == ("no policy",)
        renewing.cancel()
    assert (await planner(bus)).state is ServiceState.ENDED


class Counting(MemoryBus):
    """Knows how many values were asked for at once."""

    asked = most = 0

    async def get(self, key: str) -> tuple[bytes, int] | None:
        self.asked += 1
        self.most = max(self.most, self.asked)
        await asyncio.sleep(0)
        self.asked -= 1
        return await super().get(key)


async def test_reports_are_asked_for_all_at_once() -> None:
    """One after the other, each would cost a round trip to the server."""
    bus = Counting(LoopClock())
    async with reported(bus, "planner"), reported(bus, "monitor"):
        assert [report.name for report in await reports(bus)] == ["planner", "monitor"]
    assert bus.most == len(NAMES) * len(instances_of("planner"))
    await bus.close()


async def test_an_error_is_there_until_the_service_is_ended_on_purpose(bus: MemoryBus) -> None:
    for _ in range(2):
        with pytest.raises(ExceptionGroup):
            async with reported(bus, "planner"):
                raise ExceptionGroup("several", [KeyError("policy")])
    failed = await planner(bus)
    assert (failed.state, failed.restarts) == (ServiceState.FAILED, 1)
    assert failed.last_error == "KeyError: 'policy'"
    async with reported(bus, "planner"):
        again = await planner(bus)
        assert (again.state, again.restarts) == (ServiceState.STARTING, 2)
        assert (again.last_error, again.last_error_at) == (failed.last_error, failed.last_error_at)
    async with reported(bus, "planner"):
        assert ((await planner(bus)).restarts, (await planner(bus)).last_error) == (0, "")


async def test_a_failed_start_reports_its_one_line(bus: MemoryBus) -> None:
    with pytest.raises(SystemExit):
        async with reported(bus, "estimator"):
            raise SystemExit("hopyard estimator: the file is locked")
    assert (await planner(bus)).last_error == "hopyard estimator: the file is locked"


async def test_a_signal_ends_it_on_purpose(bus: MemoryBus) -> None:
    async def life() -> None:
        async with reported(bus, "planner"):
            await asyncio.sleep(1e6)

    task = asyncio.create_task(life())
    while not await reports(bus):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    assert (await planner(bus)).state is ServiceState.ENDED


async def test_a_killed_service_is_gone_and_its_next_life_reports_that(bus: MemoryBus) -> None:
    now = 1000.0
    await Reporter(bus, "planner", now=lambda: now).begin()
    [soon] = await reports(bus, now=lambda: now + 1.0)
    [later] = await reports(bus, now=lambda: now + GONE_AFTER_REAL_S + 1.0)
    assert (soon.state, later.state) == (ServiceState.STARTING, ServiceState.GONE)
    await Reporter(bus, "planner", now=lambda: now + 20.0).begin()
    [back] = await reports(bus, now=lambda: now + 20.0)
    assert (back.state, back.restarts) == (ServiceState.STARTING, 1)
    assert (back.last_error, back.last_error_at) == (KILLED, now)


async def test_agents_report_as_nodes(bus: MemoryBus) -> None:
    async with reported(bus, "agent") as reporter:
        assert reporter is None
    assert await reports(bus) == ()


async def test_a_service_that_becomes_ready_reports_it_before_the_next_renewal(bus: MemoryBus) -> None:
    reporter, ready = Reporter(bus, "planner"), asyncio.Event()
    renewing = asyncio.create_task(reporter.renew(ready=ready.is_set, troubles=tuple))
    while not await reports(bus):
        await asyncio.sleep(0)
    assert not reporter.up()
    ready.set()
    async with asyncio.timeout(RENEW_REAL_S / 2):
        while not reporter.up():
            await asyncio.sleep(LOOK_REAL_S)
    [found] = await reports(bus)
    assert found.state is ServiceState.UP
    renewing.cancel()


async def test_a_service_that_begins_to_lead_reports_it_before_the_next_renewal(bus: MemoryBus) -> None:
    reporter, leading = Reporter(bus, "planner"), asyncio.Event()
    renewing = asyncio.create_task(reporter.renew(ready=lambda: True, leads=leading.is_set, troubles=tuple))
    while not reporter.up():
        await asyncio.sleep(0)
    assert not (await planner(bus)).leads
    leading.set()
    async with asyncio.timeout(RENEW_REAL_S / 2):
        while not (await planner(bus)).leads:
            await asyncio.sleep(LOOK_REAL_S)
    renewing.cancel()


async def test_a_stack_made_again_elsewhere_knows_no_process_of_the_old_one(bus: MemoryBus) -> None:
    await Reporter(bus, "planner", settings=Settings(instance=2)).begin()
    await forget_reports(bus)
    assert await reports(bus) == ()


async def test_instances_beyond_the_present_number_have_ended(bus: MemoryBus) -> None:
    for instance in (1, 2, 3):
        await Reporter(bus, "planner", lambda: 100.0, Settings(instance=instance)).begin()
    now = 100.0 + GONE_AFTER_REAL_S + 1
    await Reporter(bus, "planner", lambda: now).begin(instances=2)
    states = [one.state for one in await reports(bus, lambda: now)]
    assert states == [ServiceState.STARTING, ServiceState.GONE, ServiceState.ENDED]


async def test_without_a_known_number_of_instances_a_gone_one_is_reported(bus: MemoryBus) -> None:
    await Reporter(bus, "planner", lambda: 100.0, Settings(instance=2)).begin()
    now = 100.0 + GONE_AFTER_REAL_S + 1
    await Reporter(bus, "planner", lambda: now).begin()
    assert [one.state for one in await reports(bus, lambda: now)][1] is ServiceState.GONE


async def test_a_service_says_what_it_did_last(bus: MemoryBus) -> None:
    reporter = Reporter(bus, "planner")
    renewing = asyncio.create_task(
        reporter.renew(ready=lambda: True, troubles=tuple, last_activity=lambda: ("plan.published", 7.0))
    )
    while (await reports(bus)) == () or (await planner(bus)).last_activity_at is None:
        await asyncio.sleep(0)
    assert ((await planner(bus)).last_activity, (await planner(bus)).last_activity_at) == (
        "plan.published",
        7.0,
    )
    renewing.cancel()


# ---- one clock for all services


@pytest.fixture
async def running(bus: MemoryBus) -> AsyncIterator[None]:
    """A planner whose clock goes sixty times as fast."""
    async with reported(bus, "planner", settings=Settings(speed=60.0)) as reporter:
        assert reporter is not None
        renewing = asyncio.create_task(reporter.renew(ready=lambda: True, troubles=tuple))
        while (await planner(bus)).state is not ServiceState.UP:
            await asyncio.sleep(0)
        yield
        renewing.cancel()


async def left_by_a_planner(bus: MemoryBus, at: float, speed: float | None) -> None:
    report = ServiceView(
        name="planner", state=ServiceState.UP, since=0.0, at=at, speed=speed, clock_origin=0.0
    )
    await bus.put("service/planner", msgspec.json.encode(report))


@pytest.mark.usefixtures("running")
async def test_a_service_of_another_clock_than_one_that_runs_does_not_start(bus: MemoryBus) -> None:
    await Reporter(bus, "placer", settings=Settings(speed=60.0)).check_clock()
    with pytest.raises(ValueError, match=r"speed=1\.0 and .*, and planner, which runs, has speed=60\.0"):
        await Reporter(bus, "admission").check_clock()
    with pytest.raises(ValueError, match="clock_origin=5"):
        await Reporter(bus, "admission", settings=Settings(speed=60.0, clock_origin=5.0)).check_clock()


async def test_a_service_that_was_killed_does_not_decide_the_clock_of_the_next_stack(bus: MemoryBus) -> None:
    await left_by_a_planner(bus, at=100.0, speed=60.0)
    times = iter([100.0, 101.0, 100.5 + GONE_AFTER_REAL_S])
    await Reporter(bus, "admission", lambda: next(times)).check_clock()


async def test_a_service_of_an_earlier_version_has_any_clock(bus: MemoryBus) -> None:
    await left_by_a_planner(bus, at=100.0, speed=None)
    await Reporter(bus, "admission", lambda: 100.0, Settings(speed=9.0)).check_clock()
