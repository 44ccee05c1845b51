"""The facts about one job, over a real monitor: fetched where they stand, not searched for in the stream."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
import pytest

from schemas.base import Event
from schemas.ids import JobId
from schemas.questions import MONITOR, FactPlaces, FindFacts
from schemas.settings import Settings
from services.monitor.build import build
from services.monitor.history import FACTS_KEPT
from shared.runtime.bus.contract import Unavailable
from shared.runtime.bus.memory import MemoryBus
from shared.runtime.clock import LoopClock
from shared.runtime.service import Ports
from shared.runtime.shell.shell import Shell
from tests.fact_builders import checkpointed, completed, in_queue, joined, started
from tests.services.admission.admission_world import Served, serving

JOB = "job-17"


@asynccontextmanager
async def with_a_monitor() -> AsyncIterator[Served]:
    bus, settings = MemoryBus(LoopClock()), Settings()
    ports = Ports(bus=bus.client("monitor"), clock=LoopClock())
    async with serving(monitored=False, bus=bus) as api:
        monitor = asyncio.create_task(Shell(build(settings, ports), ports, settings).run())
        try:
            yield api
        finally:
            monitor.cancel()
            await asyncio.wait({monitor})


async def known(api: Served, *facts: Event) -> None:
    """Stored, and the monitor is up and has seen them."""
    await api.bus.publish(facts)
    last = await api.bus.last_seq()
    async with asyncio.timeout(60.0):
        while True:
            with suppress(Unavailable):
                places = await api.bus.ask(FindFacts(job_id=JobId(JOB)), 20.0)
                if isinstance(places, FactPlaces) and places.last_seq == last:
                    return
            await asyncio.sleep(0.01)


async def lines(api: Served, query: str) -> list[dict[str, Any]]:
    async with api.client.get(f"/v1/events?{query}") as response:
        return [msgspec.json.decode(each) for each in (await response.read()).splitlines()]


def others(first: int, count: int) -> list[Event]:
    return [fact for number in range(first, first + count) for fact in in_queue(f"other-{number}", at=1.0)]


def life(checkpoints: int) -> list[Event]:
    saved = [checkpointed(JOB, at=10.0 + number, samples_done=float(number)) for number in range(checkpoints)]
    return [*in_queue(JOB, at=2.0), started(JOB, at=3.0), *saved]


@pytest.mark.parametrize("query", ["", "&newest=3", "&newest=100", "&limit=2", "&after=150", "&since=12"])
async def test_facts_fetched_by_place_are_those_that_a_search_finds(query: str) -> None:
    async with with_a_monitor() as api:
        await known(api, joined(), *others(0, 40), *life(5), *others(40, 40), completed(JOB, at=50.0))
        fetched = await lines(api, f"job={JOB}{query}")
        everything = [line for line in await lines(api, "after=0") if line["event"].get("job_id") == JOB]
        wanted = [line for line in everything if line["seq"] > 150] if "after" in query else everything
        wanted = [line for line in wanted if line["event"]["at"] >= 12] if "since" in query else wanted
        wanted = wanted[-3:] if "newest=3" in query else wanted[:2] if "limit" in query else wanted
        assert wanted
        assert fetched == wanted


async def test_no_other_job_s_facts_are_read() -> None:
    async with with_a_monitor() as api:
        await known(api, joined(), *others(0, 100), *life(5), *others(100, 100))
        before = api.bus.counts.facts_read
        assert len(await lines(api, f"job={JOB}&newest=100")) == len(life(5))
        assert api.bus.counts.facts_read - before == len(life(5))


async def test_the_newest_facts_of_a_long_job_are_fetched_and_the_rest_is_searched() -> None:
    count = 2 * FACTS_KEPT
    async with with_a_monitor() as api:
        await known(api, joined(), *life(count))
        newest = await lines(api, f"job={JOB}&newest=50")
        assert [line["event"]["samples_done"] for line in newest] == [
            float(n) for n in range(count - 50, count)
        ]
        assert len(await lines(api, f"job={JOB}")) == len(life(count))
        assert len(await lines(api, f"job={JOB}&newest={count}")) == count


async def test_facts_that_the_monitor_has_not_read_yet_are_included() -> None:
    async with serving(monitored=False) as api:
        await api.bus.publish([joined(), *life(5)])
        last = await api.bus.last_seq()

        async def late(_: object) -> FactPlaces:
            return FactPlaces(seqs=(2, 3), complete=True, last_seq=3)

        await api.bus.serve("monitor", MONITOR, late)
        assert [line["seq"] for line in await lines(api, f"job={JOB}")] == list(range(2, last + 1))
        assert [line["seq"] for line in await lines(api, f"job={JOB}&newest=2")] == [last - 1, last]


async def test_without_a_monitor_they_are_searched_for() -> None:
    async with serving(monitored=False) as api:
        await api.bus.publish([joined(), *life(5)])
        assert len(await lines(api, f"job={JOB}&newest=100")) == len(life(5))
