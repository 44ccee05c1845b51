"""How fast facts are published, synced to the disk and read: two connections, one server."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

from hopyard.lab.bench.figures import Benchmark, rate, spread
from hopyard.lab.bench.stack.services import bus_to, nats_server
from schemas.base import Event
from schemas.events import JobCancelled
from schemas.ids import JobId
from schemas.subjects import FACT_SUBJECTS
from shared.runtime.bus.contract import Facts, Record

FACTS = 5_000
ONE_BY_ONE = 300


async def dispatch(data: Path, facts: int = FACTS, one_by_one: int = ONE_BY_ONE) -> Benchmark:
    async with (
        nats_server(data / "nats") as server,
        bus_to(server, "publisher") as publisher,
        bus_to(server, "reader") as reader,
    ):
        read = reader.read(0, FACT_SUBJECTS)
        stored_s, read_s = await _many(publisher, read, facts)
        times_s = [await _one(publisher, read, number) for number in range(one_by_one)]
    return Benchmark(
        name="dispatch",
        conditions=f"{facts} facts in one go, then {one_by_one} one by one; the disk is synced for each",
        figures=(
            rate("facts published", facts / stored_s),
            rate("facts published and read", facts / read_s),
            *spread("one fact, published to read", times_s),
        ),
    )


def a_fact(name: str) -> Event:
    return JobCancelled(at=0.0, job_id=JobId(name))


async def _many(publisher: Facts, read: AsyncIterator[list[Record]], count: int) -> tuple[float, float]:
    """Seconds until all are stored, and until all are read."""
    facts = [a_fact(f"many-{number}") for number in range(count)]
    began = time.perf_counter()
    reading = asyncio.create_task(_read(read, count))
    await publisher.publish(facts)
    stored_s = time.perf_counter() - began
    await reading
    return stored_s, time.perf_counter() - began


async def _one(publisher: Facts, read: AsyncIterator[list[Record]], number: int) -> float:
    began = time.perf_counter()
    await publisher.publish([a_fact(f"one-{number}")])
    await _read(read, 1)
    return time.perf_counter() - began


async def _read(read: AsyncIterator[list[Record]], count: int) -> None:
    while count > 0:
        count -= len(await anext(read))
