"""What only the bus in memory does: faults by seed, virtual time, routes."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.samples import Heartbeat
from schemas.subjects import FACT_SUBJECTS
from shared.runtime.bus.contract import Record, Unavailable
from shared.runtime.bus.memory import Faults, MemoryBus
from shared.runtime.bus.memory.log import DUE_LIMIT
from shared.runtime.bus.memory.routes import Routes
from shared.runtime.clock import LoopClock
from shared.runtime.shell.virtual import run
from tests.shared.runtime.bus.bus_build import cancelled, drained, heartbeat, jobs, next_records


def _bus(**faults: float) -> MemoryBus:
    return MemoryBus(LoopClock(), msgspec.convert(faults, Faults))


async def _stored(bus: MemoryBus, count: int) -> list[str]:
    return jobs(await next_records(bus.read(0, FACT_SUBJECTS), count))


async def test_a_duplicate_fault_stores_a_fact_twice() -> None:
    bus = _bus(duplicate=1.0)
    await bus.publish([cancelled("a"), cancelled("b")])
    assert await _stored(bus, 4) == ["a", "a", "b", "b"]


async def test_a_redelivery_fault_hands_a_batch_over_again() -> None:
    bus = _bus(redeliver=1.0)
    await bus.publish([cancelled("a"), cancelled("b")])
    assert await _stored(bus, 4) == ["a", "b", "a", "b"]


def test_a_delay_fault_keeps_the_order_and_costs_virtual_time() -> None:
    async def scenario() -> tuple[list[str], float]:
        bus = _bus(delay_s=30.0)
        reader = bus.client("a").read(0, FACT_SUBJECTS)
        reading = asyncio.create_task(next_records(reader, 10, limit_s=1_000.0))
        for number in range(10):
            await bus.publish([cancelled(number)])
            await asyncio.sleep(10.0)
        return jobs(await reading), asyncio.get_running_loop().time()

    published, ended = run(scenario)
    assert published == [str(n) for n in range(10)]
    assert ended > 90.0


def _arrivals(faults: Faults) -> list[tuple[str, float, int]]:
    """Who got which fact when, with two readers and two writers on virtual time."""
    seen: list[tuple[str, float, int]] = []

    async def follow(bus: MemoryBus, name: str) -> None:
        async for batch in bus.client(name).read(0, FACT_SUBJECTS):
            now = asyncio.get_running_loop().time()
            seen.extend((name, now, record.seq) for record in batch)

    async def write(bus: MemoryBus, node: str) -> None:
        for number in range(20):
            await asyncio.sleep(1.0)
            await bus.publish([drained(node, at=float(number))])

    async def scenario() -> None:
        bus = MemoryBus(LoopClock(), faults)
        readers = [asyncio.create_task(follow(bus, name)) for name in ("one", "other")]
        await asyncio.gather(write(bus, "n"), write(bus, "m"))
        await asyncio.sleep(100.0)
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)

    run(scenario)
    return seen


def test_the_same_seed_makes_the_same_faults() -> None:
    faults = Faults(seed=7, duplicate=0.2, delay_s=5.0, redeliver=0.2)
    assert _arrivals(faults) == _arrivals(faults)


def test_another_seed_makes_other_faults() -> None:
    assert _arrivals(Faults(seed=1, delay_s=5.0)) != _arrivals(Faults(seed=2, delay_s=5.0))


def test_each_reader_is_late_in_its_own_way() -> None:
    seen = _arrivals(Faults(delay_s=5.0))
    times = {name: [now for who, now, _ in seen if who == name] for name in ("one", "other")}
    assert times["one"] != times["other"]


def test_a_lease_ends_on_virtual_time() -> None:
    async def scenario() -> list[bool]:
        bus = _bus()
        await bus.put("lease", b"me", expected=0, ttl_s=3.0)
        await asyncio.sleep(2.9)
        held = [await bus.get("lease") is not None]
        await asyncio.sleep(0.2)
        return [*held, await bus.get("lease") is not None]

    assert run(scenario) == [True, False]


async def test_a_reader_far_behind_catches_up_from_the_log() -> None:
    bus = _bus()
    reader = bus.read(0, FACT_SUBJECTS)
    await bus.publish([cancelled("first")])
    await next_records(reader, 1)
    await bus.publish([cancelled(n) for n in range(DUE_LIMIT + 500)])
    records = await next_records(reader, DUE_LIMIT + 500)
    assert [record.seq for record in records] == list(range(2, DUE_LIMIT + 502))


async def test_closing_one_client_leaves_the_others_alone() -> None:
    bus = _bus()
    one, other = bus.client("one"), bus.client("other")
    await one.close()
    await other.publish([cancelled("a")])
    assert await _stored(bus, 1) == ["a"]
    with pytest.raises(Unavailable):
        await one.publish([cancelled("b")])
    with pytest.raises(Unavailable):
        await anext(one.listen([Heartbeat]))
    with pytest.raises(Unavailable):
        await anext(one.read(0, FACT_SUBJECTS))


async def test_samples_are_copies() -> None:
    bus = _bus()
    sample = heartbeat()
    heard = asyncio.ensure_future(anext(bus.listen([Heartbeat])))
    await asyncio.sleep(0)
    await bus.send(sample)
    assert await heard == sample
    assert await heard is not sample


token = st.sampled_from(["job", "node", "a", "b"])
subjects = st.lists(token, min_size=2, max_size=4).map(".".join)
patterns = st.tuples(st.lists(st.one_of(token, st.just("*")), min_size=1, max_size=4), st.booleans()).map(
    lambda drawn: ".".join([*drawn[0], ">"] if drawn[1] else drawn[0])
)


def _matches(pattern: str, subject: str) -> bool:
    """The rule, spelled out slowly."""
    wanted, given_ = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        wanted = wanted[:-1]
        if len(given_) <= len(wanted):
            return False
        given_ = given_[: len(wanted)]
    return len(wanted) == len(given_) and all(w in ("*", g) for w, g in zip(wanted, given_, strict=True))


@given(st.lists(patterns, max_size=6, unique=True), subjects)
def test_routes_find_exactly_the_patterns_that_match(added: list[str], subject: str) -> None:
    routes: Routes[str] = Routes()
    for pattern in added:
        routes.add(pattern, pattern)
    assert sorted(routes.of(subject)) == sorted(p for p in added if _matches(p, subject))
    for pattern in added:
        routes.remove(pattern, pattern)
    assert list(routes.of(subject)) == []


async def _drain(readers: Sequence[Coroutine[Any, Any, list[Record]]], bus: MemoryBus, facts: int) -> float:
    tasks = [asyncio.create_task(reader) for reader in readers]
    await asyncio.sleep(0.0)
    began = asyncio.get_running_loop().time()
    for number in range(facts):
        await bus.publish([cancelled(number)])
    await tasks[0]
    elapsed = asyncio.get_running_loop().time() - began
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return elapsed


@pytest.mark.benchmark
async def test_readers_of_other_subjects_add_no_cost() -> None:
    alone, crowd = _bus(), _bus()
    facts = 20_000
    one = await _drain([next_records(alone.read(0, FACT_SUBJECTS), facts, 60.0)], alone, facts)
    agents = [next_records(crowd.read(0, [f"hopyard.worker.n-{n}.*"]), 1, 60.0) for n in range(300)]
    many = await _drain([next_records(crowd.read(0, FACT_SUBJECTS), facts, 60.0), *agents], crowd, facts)
    print(f"{facts / one:,.0f} facts/s alone, {facts / many:,.0f} facts/s beside 300 agents")
    assert many < 3 * one
