"""What is kept beside the stream of facts: who writes it, and what is not lost with an answer."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from schemas.settings import Settings
from schemas.subjects import state_subject
from shared.runtime.bus.contract import Fenced, State, Unavailable
from shared.runtime.bus.jetstream.connection import Connection
from shared.runtime.bus.jetstream.encoded_facts import EncodedFact
from shared.runtime.bus.jetstream.handoff import Handoff
from shared.runtime.bus.memory import MemoryBus
from shared.runtime.clock import ScaledClock

KEY = "handoff/admission"
A, B = (EncodedFact(f"hopyard.job.{name}.cancelled", name.encode(), {"Nats-Msg-Id": name}) for name in "ab")
SETTINGS = Settings(publish_timeout_real_s=0.01)


class Deaf(MemoryBus):
    """Stores what it is given, and as often as it is to says nothing of it."""

    silent = 0

    async def put(
        self, key: str, value: bytes, expected: int | None = None, ttl_s: float | None = None
    ) -> int:
        revision = await super().put(key, value, expected, ttl_s)
        if self.silent > 0:
            self.silent -= 1
            raise Unavailable("no answer")
        return revision


class Slow(MemoryBus):
    """Writes when it may."""

    def __init__(self) -> None:
        super().__init__(ScaledClock())
        self.passing = asyncio.Event()
        self.passing.set()
        self.writing = False

    async def put(
        self, key: str, value: bytes, expected: int | None = None, ttl_s: float | None = None
    ) -> int:
        self.writing = not self.passing.is_set()
        await self.passing.wait()
        return await super().put(key, value, expected, ttl_s)


class Closed(MemoryBus):
    async def put(self, *_: object, **__: object) -> int:
        raise Unavailable("no answer")


@pytest.fixture
def state() -> Deaf:
    return Deaf(ScaledClock())


@asynccontextmanager
async def leader(state: State) -> AsyncIterator[Handoff]:
    connection = Connection(SETTINGS, "admission")
    handoff = Handoff(connection, state)
    try:
        yield handoff
    finally:
        await handoff.close()


async def never() -> None:
    """A stream without a leader."""
    await asyncio.Future()


async def left(state: State) -> list[EncodedFact]:
    async with leader(state) as after:
        return await after.take_over()


async def test_facts_stored_at_once_are_not_kept(state: Deaf) -> None:
    async with leader(state) as handoff:
        await handoff.take_over()
        before = await state.get(KEY)
        await handoff.store_or_keep([A], asyncio.sleep(0))
        assert await state.get(KEY) == before


async def test_facts_not_stored_are_left_to_the_next_leader_in_order(state: Deaf) -> None:
    async with leader(state) as handoff:
        await handoff.take_over()
        await handoff.store_or_keep([A], never())
        await handoff.store_or_keep([B], never())
    assert await left(state) == [A, B]


async def test_a_leader_that_finds_an_unreadable_value_is_deposed(state: Deaf) -> None:
    """The leader tried again for ever, and its users waited."""
    async with leader(state) as handoff, asyncio.timeout(60.0):
        await handoff.take_over()
        await state.put(KEY, b"\xc1")
        with pytest.raises(Fenced):
            await handoff.store_or_keep([A], never())


async def test_the_handoff_is_cleared_once_all_its_facts_are_in_the_stream(state: Deaf) -> None:
    first, second = asyncio.Event(), asyncio.Event()
    async with leader(state) as handoff:
        await handoff.take_over()
        nothing = await kept(state)
        await handoff.store_or_keep([A], until(first))
        await handoff.store_or_keep([B], until(second))
        both = await kept(state)
        first.set()
        for _ in range(10):
            await asyncio.sleep(0)
        assert await kept(state) == both
        second.set()
        await shown(state, nothing)


async def kept(state: State) -> bytes:
    found = await state.get(KEY)
    return found[0] if found else b""


async def shown(state: State, value: bytes) -> None:
    async with asyncio.timeout(5.0):
        while await kept(state) != value:
            await asyncio.sleep(0)


async def until(event: asyncio.Event) -> None:
    await event.wait()


async def test_a_write_that_was_stored_though_it_seemed_to_fail_is_recognised(state: Deaf) -> None:
    async with leader(state) as handoff:
        await handoff.take_over()
        state.silent = 3
        await handoff.store_or_keep([A], never())
        assert not handoff.failing
    assert await left(state) == [A]


async def test_facts_stored_while_others_are_being_kept_are_cleared() -> None:
    state, first = Slow(), asyncio.Event()
    async with leader(state) as handoff:
        await handoff.take_over()
        nothing = await kept(state)
        await handoff.store_or_keep([A], until(first))
        state.passing.clear()
        second = asyncio.create_task(handoff.store_or_keep([B], until(first)))
        while not state.writing:
            await asyncio.sleep(0)
        first.set()
        for _ in range(10):
            await asyncio.sleep(0)
        state.passing.set()
        await second
        await shown(state, nothing)


async def test_a_write_that_seemed_to_fail_is_cleared_once_all_is_in_the_stream(state: Deaf) -> None:
    async with leader(state) as handoff:
        await handoff.take_over()
        nothing, stored = await kept(state), asyncio.Event()
        state.silent = 10**9
        publishing = asyncio.create_task(handoff.store_or_keep([A], until(stored)))
        while await kept(state) == nothing:
            await asyncio.sleep(0)
        stored.set()
        await publishing
        state.silent = 0
        await shown(state, nothing)


async def test_facts_of_a_cancelled_publication_are_not_left_to_the_next_leader(state: Deaf) -> None:
    async with leader(state) as handoff:
        await handoff.take_over()
        nothing = await kept(state)
        state.silent = 10**9
        publishing = asyncio.create_task(handoff.store_or_keep([A], never()))
        while await kept(state) == nothing:
            await asyncio.sleep(0)
        publishing.cancel()
        await asyncio.gather(publishing, return_exceptions=True)
        state.silent = 0
        await handoff.store_or_keep([B], asyncio.sleep(0))
        await shown(state, nothing)


async def test_a_deposed_leader_keeps_no_facts(state: Deaf) -> None:
    async with leader(state) as before, leader(state) as after:
        await before.take_over()
        await before.store_or_keep([A], never())
        assert await after.take_over() == [A]
        with pytest.raises(Fenced):
            await before.store_or_keep([B], never())
    assert await left(state) == [A]


async def test_refused_facts_stay_kept_and_the_error_is_raised_with_the_next_ones(state: Deaf) -> None:
    async def refused() -> None:
        await asyncio.sleep(2 * SETTINGS.publish_timeout_real_s)
        raise Fenced("another leads")

    async with leader(state) as handoff:
        await handoff.take_over()
        await handoff.store_or_keep([A], refused())
        with pytest.raises(Fenced):
            await publish_on(handoff)
    assert A in await left(state)


async def publish_on(handoff: Handoff) -> None:
    async with asyncio.timeout(5.0):
        while True:
            await handoff.store_or_keep([B], asyncio.sleep(SETTINGS.publish_timeout_real_s / 2))


async def test_facts_too_large_for_one_message_wait_for_the_stream(state: Deaf) -> None:
    large = EncodedFact(A.subject, bytes(2**20), A.headers)
    async with leader(state) as handoff:
        await handoff.take_over()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await handoff.store_or_keep([large], never())
        assert handoff.failing
        await handoff.store_or_keep([large], asyncio.sleep(0.1))


async def test_an_account_without_rights_to_the_handoff_leads_nevertheless() -> None:
    async with leader(Closed(ScaledClock())) as handoff:
        with pytest.raises(Unavailable):
            await handoff.take_over()
        handoff._connection.refused.add(state_subject(KEY).lower())
        assert await handoff.take_over() == []
        await handoff.store_or_keep([A], asyncio.sleep(0.1))
        assert not handoff._background
