"""One planner leads; the next one has a larger token."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from schemas.settings import Settings
from services.planner.core.tasks import Leadership
from services.planner.work.leadership import LEASE, Candidate
from shared.runtime.bus.contract import State, Unavailable
from shared.runtime.bus.memory import MemoryBus, MemoryClient
from shared.runtime.clock import LoopClock
from shared.runtime.service import Inbox
from shared.runtime.shell import virtual


class Flaky:
    """A store that can be gone, or store and have its answer lost."""

    def __init__(self, bus: State) -> None:
        self.gone = False
        self.unheard = False
        self._bus = bus

    async def get(self, key: str) -> tuple[bytes, int] | None:
        if self.gone:
            raise Unavailable("gone")
        return await self._bus.get(key)

    async def put(
        self, key: str, value: bytes, expected: int | None = None, ttl_s: float | None = None
    ) -> int:
        if self.gone:
            raise Unavailable("gone")
        revision = await self._bus.put(key, value, expected, ttl_s)
        if self.unheard:
            raise Unavailable("no answer")
        return revision

    async def delete(self, key: str) -> None:
        await self._bus.delete(key)

    async def save(self, name: str, blob: bytes) -> None:
        await self._bus.save(name, blob)

    async def load(self, name: str) -> bytes | None:
        return await self._bus.load(name)


class Rival:
    """A planner that would lead, and what its core received."""

    def __init__(self, bus: MemoryBus | MemoryClient, policy: str = "hops") -> None:
        self.received: list[Leadership] = list[Leadership]()
        self.store = Flaky(bus)
        self.lease = Candidate(Settings(policy=policy), self.store, LoopClock())
        self._task: asyncio.Task[None] | None = None

    @property
    def token(self) -> int | None:
        return self.received[-1].token if self.received else None

    def begin(self) -> None:
        inbox = Inbox(put=self.received.append, ask=self._ask, replayed=lambda: True)
        self._task = asyncio.create_task(self.lease.keep(inbox))

    async def end(self) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _ask(self, _: object) -> None:
        raise AssertionError("a lease asks nothing")


@asynccontextmanager
async def candidates(
    bus: MemoryBus, *, policies: tuple[str, ...] = ("hops", "hops")
) -> AsyncIterator[list[Rival]]:
    found = [Rival(bus, policy) for policy in policies]
    yield found
    for one in found:
        if one._task is not None:
            await one.end()
    await bus.close()


def simulated(test: Callable[[MemoryBus], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        await test(MemoryBus(LoopClock()))

    virtual.run(main)


def test_one_leads_and_the_other_waits() -> None:
    async def scene(bus: MemoryBus) -> None:
        async with candidates(bus) as (one, other):
            one.begin()
            await asyncio.sleep(0.1)
            other.begin()
            await asyncio.sleep(60.0)
            assert one.token is not None
            assert len(one.received) == 1
            assert other.received == []

    simulated(scene)


def test_when_the_leader_dies_the_next_has_a_larger_token() -> None:
    async def scene(bus: MemoryBus) -> None:
        async with candidates(bus) as (one, other):
            one.begin()
            await asyncio.sleep(5.0)
            other.begin()
            await one.end()
            await asyncio.sleep(1.0)
            assert other.received == []
            await asyncio.sleep(5.0)
            assert one.token is not None
            assert other.token is not None
            assert other.token > one.token

    simulated(scene)


def test_a_leader_that_releases_is_followed_at_once() -> None:
    async def scene(bus: MemoryBus) -> None:
        async with candidates(bus) as (one, other):
            one.begin()
            await asyncio.sleep(5.0)
            await one.end()
            await one.lease.release()
            other.begin()
            await asyncio.sleep(0.1)
            assert other.token is not None

    simulated(scene)


def test_a_leader_that_cannot_renew_stops_before_the_lease_ends() -> None:
    async def scene(bus: MemoryBus) -> None:
        async with candidates(bus, policies=("hops",)) as (one,):
            one.begin()
            await asyncio.sleep(5.0)
            one.store.gone = True
            for _ in range(100):
                await asyncio.sleep(0.05)
                assert await bus.get(LEASE) is not None or one.token is None
            assert one.token is None

    simulated(scene)


def test_a_stolen_lease_ends_leading() -> None:
    async def scene(bus: MemoryBus) -> None:
        async with candidates(bus, policies=("hops",)) as (one,):
            one.begin()
            await asyncio.sleep(5.0)
            await bus.put(LEASE, b"somebody", expected=None, ttl_s=60.0)
            await asyncio.sleep(2.0)
            assert [news.token is None for news in one.received] == [False, True]

    simulated(scene)


def test_a_renewal_that_was_stored_and_seemed_to_fail_changes_nothing() -> None:
    async def scene(bus: MemoryBus) -> None:
        async with candidates(bus, policies=("hops",)) as (one,):
            one.begin()
            await asyncio.sleep(5.0)
            one.store.unheard = True
            await asyncio.sleep(1.0)
            one.store.unheard = False
            await asyncio.sleep(60.0)
            assert len(one.received) == 1

    simulated(scene)


def test_a_leader_set_to_another_policy_announces_it_and_one_set_alike_does_not() -> None:
    async def scene(bus: MemoryBus) -> None:
        async with candidates(bus, policies=("hops", "fifo", "fifo")) as planners:
            for planner in planners:
                planner.begin()
                await asyncio.sleep(1.0)
                await planner.end()
                await planner.lease.release()
            assert [planner.received[0].announce for planner in planners] == [False, True, False]

    simulated(scene)
