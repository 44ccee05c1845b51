"""Facts that do not concern a service count as handled: it is not behind because of them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from schemas.events import PolicyChosen
from schemas.settings import Settings
from schemas.subjects import facts_of
from shared.runtime.bus.contract import Bus
from shared.runtime.clock import Clock, ScaledClock
from shared.runtime.leadership import Candidate
from shared.runtime.service import Ports, Service
from shared.runtime.shell.shell import Shell
from tests.bus_nets import JetStreamNet
from tests.shared.runtime.shell.test_follower import LIMIT_S, NAME, Restorer, drained, true

FACTS = facts_of("node", "job")
"""of two kinds, so that the server is asked for all"""


@asynccontextmanager
async def running(bus: Bus, candidate: Candidate | None, clock: Clock | None = None) -> AsyncIterator[Shell]:
    service = Service(name=NAME, core=Restorer(), facts=FACTS)
    ports = Ports(bus=bus, clock=clock or ScaledClock())
    shell = Shell(service, ports, Settings(), candidate=candidate)
    life = asyncio.create_task(shell.run())
    try:
        await true(shell.leads)
        yield shell
    finally:
        life.cancel()
        await asyncio.gather(life, return_exceptions=True)


async def caught_up(shell: Shell, bus: Bus) -> None:
    newest = await bus.newest(FACTS)
    await true(lambda: shell.seq >= newest)


def chosen(policy: str) -> PolicyChosen:
    return PolicyChosen(at=1.0, policy=policy, by="test")


@pytest.mark.parametrize("of_several", [False, True])
async def test_facts_of_others_are_read_and_passed_over(live: JetStreamNet, *, of_several: bool) -> None:
    bus, other = await live.client(NAME), await live.client("other")
    await other.publish([chosen("fifo")])
    candidate = Candidate(bus, ScaledClock(), Settings(), NAME, first=True) if of_several else None
    async with running(bus, candidate) as shell:
        await caught_up(shell, bus)
        await other.publish([chosen("sjf")])
        await caught_up(shell, bus)


async def test_after_a_restart_as_well(live: JetStreamNet) -> None:
    bus, other = await live.client(NAME), await live.client("other")
    await other.publish([drained("n-1"), chosen("fifo"), chosen("sjf")])
    await bus.put(f"cursor/{NAME}", b"2")
    async with running(bus, None) as shell:
        await caught_up(shell, bus)


async def test_the_cursor_moves_on_where_the_clock_was_ahead_and_is_set_right(live: JetStreamNet) -> None:
    bus, other = await live.client(NAME), await live.client("other")
    clock = ScaledClock()
    async with running(bus, None, clock) as shell:
        for node in ("n-1", "n-2"):
            await other.publish([drained(node)])
            await caught_up(shell, bus)
            newest = await bus.newest(FACTS)
            async with asyncio.timeout(LIMIT_S):
                while (stored := await bus.get(f"cursor/{NAME}")) is None or int(stored[0]) < newest:
                    await asyncio.sleep(0.05)
            clock.set_right(10 * LIMIT_S)
