"""A core learns that facts do not reach its service as they come."""

import asyncio

import pytest

from schemas.settings import Settings
from schemas.subjects import FACT_SUBJECTS
from shared.domain.core import Behind
from shared.runtime.bus.memory import MemoryBus
from shared.runtime.clock import LoopClock
from shared.runtime.listening import listening
from shared.runtime.service import Inbox, Ports
from shared.runtime.shell.virtual import run
from tests.fact_builders import joined

SETTINGS = Settings(node_lease_real_s=6.0)


class DeafBus(MemoryBus):
    """A bus whose server is away."""

    def connected(self) -> bool:
        return False


class HangingBus(MemoryBus):
    """A bus whose server is connected and answers nothing."""

    async def last_seq(self) -> int:
        return await asyncio.Event().wait()


class Core:
    """What the core of a service gets, and how far it has come."""

    def __init__(self) -> None:
        self.inputs: list[object] = []
        self.seq = 0

    async def listen(self, bus: MemoryBus, seconds: float) -> int:
        """How often it got that it is behind."""
        before = len(self.inputs)
        inbox = Inbox(put=self.inputs.append, ask=_nobody, replayed=lambda: True, seq=lambda: self.seq)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(seconds):
                await listening(SETTINGS, Ports(bus=bus, clock=LoopClock()), FACT_SUBJECTS)(inbox)
        assert set(self.inputs) <= {Behind()}
        return len(self.inputs) - before


@pytest.mark.parametrize(("kind", "times"), [(DeafBus, 4), (HangingBus, 2), (MemoryBus, 0)])
def test_a_core_learns_that_the_bus_does_not_answer(kind: type[MemoryBus], times: int) -> None:
    async def story() -> None:
        assert await Core().listen(kind(LoopClock()), 6.1) == times

    run(story)


def test_a_core_is_behind_until_it_has_been_handed_what_was_stored_when_it_began() -> None:
    async def story() -> None:
        core, bus = Core(), MemoryBus(LoopClock())
        await bus.publish([joined(), joined("node-2")])
        listens = asyncio.create_task(core.listen(bus, 9.1))
        await asyncio.sleep(4)
        core.seq = 2
        await bus.publish([joined("node-3")])  # the newest fact may always be on its way
        assert await listens == 2

    run(story)


def test_after_the_bus_was_away_the_backlog_counts_again() -> None:
    async def story() -> None:
        core, bus = Core(), MemoryBus(LoopClock())
        listens = asyncio.create_task(core.listen(bus, 6.1))
        await asyncio.sleep(2)
        bus.cut()
        await bus.client("other").publish([joined()])
        await asyncio.sleep(2)  # a check after 3 s finds the bus away
        bus.mend()
        assert await listens == 3

    run(story)


async def _nobody(_: object) -> object:
    raise AssertionError
