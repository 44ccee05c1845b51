"""A cursor that is no place in the stream keeps no service from starting; nothing is lost or done twice."""

import asyncio

import pytest
from structlog.testing import capture_logs

from schemas.base import Event
from schemas.codec import encode
from schemas.events import NodeDrained, NodeRestored
from schemas.settings import Settings
from shared.domain.core import Effects, Input, Publish
from shared.runtime.bus.memory import MemoryBus
from shared.runtime.clock import LoopClock
from shared.runtime.service import Ports
from shared.runtime.shell.shell import Shell
from shared.runtime.shell.virtual import run
from tests.shared.runtime.shell.stages import FACTS, NAME, Restorer, Set, drained, restored


class AtOnce(Restorer):
    """Restores every drained node at once, and knows nothing of it when it begins again."""

    def handle(self, message: Input, now: float) -> Effects:
        if isinstance(message, NodeDrained):
            return [Publish(restored(message.node_id, message.at))]
        return super().handle(message, now)

    def resume(self, now: float) -> Effects:  # noqa: ARG002 - as the contract has it
        return []


async def restored_by_a_life(bus: MemoryBus, core: Restorer) -> list[Event]:
    """What a life of a minute tells."""
    ports = Ports(bus=bus.client(NAME), clock=LoopClock())
    life = asyncio.create_task(Shell(Set().service(core, ports), ports, Settings()).run())
    await asyncio.sleep(60.0)
    assert not life.done(), life
    life.cancel()
    await asyncio.wait({life})
    found: list[Event] = []
    last = await bus.newest(FACTS)
    async for batch in bus.read(0, FACTS):
        found += [record.event for record in batch if isinstance(record.event, NodeRestored)]
        if batch.last >= last:
            break
    return found


@pytest.mark.parametrize(
    "cursor", [b"", b"x", b"-3", b"1.5", b"99999", b"9" * 5_000, b"\xff\x00", "٣".encode(), b'{"error":{}}']
)
def test_a_service_starts_with_any_cursor(cursor: bytes) -> None:
    async def story() -> None:
        bus, core = MemoryBus(LoopClock()), Restorer()
        await bus.publish([drained("a"), drained("b")])
        await bus.put(f"cursor/{NAME}", cursor)
        found = await restored_by_a_life(bus, core)
        assert [fact.node_id for fact in found] == ["a", "b"]  # type: ignore[attr-defined]
        assert (await bus.get(f"cursor/{NAME}") or (b"", 0))[0] == b"4"

    run(story)


@pytest.mark.parametrize(("cursor", "done"), [(b"x", ["a", "b"]), (b"99999", [])])
def test_pending_work_is_done_where_the_cursor_cannot_be_read(cursor: bytes, done: list[str]) -> None:
    """A cursor beyond the end is of a stream that has lost its last facts: those before were handled."""

    async def story() -> None:
        bus, core = MemoryBus(LoopClock()), AtOnce()
        await bus.publish([drained("a"), drained("b")])
        await bus.put(f"cursor/{NAME}", cursor)
        found = await restored_by_a_life(bus, core)
        assert [fact.node_id for fact in found] == done  # type: ignore[attr-defined]

    run(story)


def test_a_service_starts_where_the_fact_at_its_cursor_cannot_be_read() -> None:
    async def story() -> None:
        bus, core = MemoryBus(LoopClock()), Restorer()
        await bus.publish([drained("a")])
        bus.store("hopyard.node.b.drained", encode(drained("b.c")))
        await bus.put(f"cursor/{NAME}", b"2")
        assert [fact.node_id for fact in await restored_by_a_life(bus, core)] == ["a"]  # type: ignore[attr-defined]
        assert core.state.drained == ["a"]

    run(story)


def test_a_service_waits_for_its_stored_state_while_the_bus_does_not_answer() -> None:
    """As where three servers come up, and have no leader yet for some stream."""

    async def story() -> None:
        bus, core = MemoryBus(LoopClock()), Restorer()
        await bus.publish([drained("a")])
        client = bus.client(NAME)
        ports = Ports(bus=client, clock=LoopClock())
        client.cut()
        life = asyncio.create_task(Shell(Set().service(core, ports), ports, Settings()).run())
        await asyncio.sleep(30.0)
        assert not life.done(), life
        client.mend()
        await asyncio.sleep(30.0)
        assert core.state.drained == ["a"]
        life.cancel()
        await asyncio.wait({life})

    run(story)


def test_a_cursor_that_cannot_be_moved_is_logged_once_and_when_it_moves_again() -> None:
    """Every five seconds, by each service, for as long as NATS was away."""

    async def story() -> None:
        bus, core = MemoryBus(LoopClock()), Restorer()
        client = bus.client(NAME)
        ports = Ports(bus=client, clock=LoopClock())
        life = asyncio.create_task(Shell(Set().service(core, ports), ports, Settings()).run())
        with capture_logs() as logs:
            await bus.publish([drained("a")])
            await asyncio.sleep(0.05)
            client.cut()
            await asyncio.sleep(60.0)
            client.mend()
            await asyncio.sleep(30.0)
        said = [line["event"] for line in logs if line["event"].startswith("cursor")]
        assert said == ["cursor not moved", "cursor moved again"]
        life.cancel()
        await asyncio.wait({life})

    run(story)
