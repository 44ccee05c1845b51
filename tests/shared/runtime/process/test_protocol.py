"""Which versions may run on what a stack has stored."""

import asyncio

import msgspec
import pytest

from schemas.settings import Settings
from shared.runtime.bus.memory import MemoryBus
from shared.runtime.clock import LoopClock
from shared.runtime.damage import Damaged
from shared.runtime.process.joining import ANNOUNCER, KEY, PROTOCOL, announce, announced, check_protocol


def test_a_later_protocol_is_refused_with_both_numbers() -> None:
    async def refused() -> None:
        bus = MemoryBus(LoopClock()).client("planner")
        await bus.put(KEY, msgspec.json.encode({"protocol": PROTOCOL + 1, "speed": 1.0}))
        with pytest.raises(Damaged, match=rf"protocol {PROTOCOL + 1}, .* speaks {PROTOCOL}"):
            await check_protocol(bus)

    asyncio.run(refused())


@pytest.mark.parametrize("stored", [None, b'{"speed": 1.0}', b"no JSON", b"[]"])
def test_an_earlier_one_is_not(stored: bytes | None) -> None:
    async def taken() -> None:
        bus = MemoryBus(LoopClock()).client("planner")
        if stored is not None:
            await bus.put(KEY, stored)
        await check_protocol(bus)

    asyncio.run(taken())


def test_admission_writes_the_protocol_number_and_agents_do_not_take_it_for_a_setting() -> None:
    async def written() -> None:
        bus = MemoryBus(LoopClock()).client(ANNOUNCER)
        await announce(bus, ANNOUNCER, Settings())
        found = await bus.get(KEY)
        assert found is not None
        assert msgspec.json.decode(found[0])["protocol"] == PROTOCOL
        assert "protocol" not in (await announced(bus) or {})
        await check_protocol(bus)

    asyncio.run(written())
