"""Measures how fast facts are published, synced to disk and read: two connections, one server."""

import asyncio
import itertools
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from hopyard.lab.bench.figures import Benchmark, rate, spread
from hopyard.lab.bench.stack.guard import OPEN, Guard
from hopyard.lab.bench.stack.services import bus_to, cpu_s, nats_server
from schemas.base import Event
from schemas.events import JobCancelled
from schemas.ids import JobId
from schemas.subjects import FACT_SUBJECTS
from shared.runtime.bus.contract import Facts, Record

FACTS = 5_000
ONE_BY_ONE = 300
PUBLISHER, READER = "admission", "monitor"
"""services whose accounts publish and read: only admission may publish this fact"""


class Dispatched(NamedTuple):
    stored_s: float
    """seconds until all facts were stored"""
    read_s: float
    """seconds until all facts were read"""
    cpu_s: float
    """CPU seconds of NATS and of this process, for all these facts"""
    times_s: list[float]
    """seconds from publishing to reading, for facts one by one"""


async def dispatch(data: Path, facts: int = FACTS, one_by_one: int = ONE_BY_ONE) -> Benchmark:
    done = await dispatched(data, facts, one_by_one, OPEN)
    return Benchmark(
        name="dispatch",
        conditions=f"{facts} facts in one go, then {one_by_one} one by one; the disk is synced for each",
        figures=(
            rate("facts published", facts / done.stored_s),
            rate("facts published and read", facts / done.read_s),
            *spread("one fact, published to read", done.times_s),
        ),
    )


async def dispatched(data: Path, facts: int, one_by_one: int, guard: Guard) -> Dispatched:
    async with dispatching(data, guard) as dispatch_some:
        return await dispatch_some(facts, one_by_one)


@asynccontextmanager
async def dispatching(data: Path, guard: Guard) -> AsyncIterator[Callable[[int, int], Awaitable[Dispatched]]]:
    """A function that publishes and reads a number of facts at once, and a number of them one by one."""
    async with (
        nats_server(data / "nats", guard=guard) as server,
        bus_to(server, settings=guard.settings(server.url, PUBLISHER)) as publisher,
        bus_to(server, settings=guard.settings(server.url, READER)) as reader,
    ):
        read = reader.read(0, FACT_SUBJECTS)
        names = map(str, itertools.count())
        assert server.pid is not None
        pids = (server.pid, os.getpid())

        async def dispatch_some(facts: int, one_by_one: int) -> Dispatched:
            before_s = sum(map(cpu_s, pids))
            stored_s, read_s = await _many(publisher, read, list(itertools.islice(names, facts)))
            used_s = sum(map(cpu_s, pids)) - before_s
            times_s = [await _one(publisher, read, name) for name in itertools.islice(names, one_by_one)]
            return Dispatched(stored_s, read_s, used_s, times_s)

        yield dispatch_some


def a_fact(name: str) -> Event:
    return JobCancelled(at=0.0, job_id=JobId(name))


async def _many(
    publisher: Facts, read: AsyncIterator[list[Record]], names: Sequence[str]
) -> tuple[float, float]:
    """Seconds until all are stored, and until all are read."""
    facts = [a_fact(name) for name in names]
    began = time.perf_counter()
    reading = asyncio.create_task(_read(read, len(facts)))
    await publisher.publish(facts)
    stored_s = time.perf_counter() - began
    await reading
    return stored_s, time.perf_counter() - began


async def _one(publisher: Facts, read: AsyncIterator[list[Record]], name: str) -> float:
    began = time.perf_counter()
    await publisher.publish([a_fact(name)])
    await _read(read, 1)
    return time.perf_counter() - began


async def _read(read: AsyncIterator[list[Record]], count: int) -> None:
    while count > 0:
        count -= len(await anext(read))
