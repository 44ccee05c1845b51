"""A fact at which a core raises ends the service twice; then it is passed over, unless it is its own."""

import asyncio
from importlib import import_module
from pathlib import Path

import msgspec
import pytest

from schemas.base import Event
from schemas.events import NodeDrained, NodeRestored
from schemas.quarantine import Quarantine, key_of
from schemas.settings import Settings
from services.table import TABLE, ServiceEntry
from shared.domain.core import Effects, Input
from shared.runtime.bus.memory import MemoryBus
from shared.runtime.clock import LoopClock
from shared.runtime.service import Ports
from shared.runtime.shell.quarantine import FatalFact, forget_released, quarantine_of, release
from shared.runtime.shell.shell import Shell
from shared.runtime.shell.virtual import run
from tests.shared.runtime.shell.stages import NAME, Restorer, Set, drained


class Frail(Restorer):
    """Raises at what is said of one node."""

    def __init__(self, at: type[NodeDrained | NodeRestored] | None = NodeDrained) -> None:
        super().__init__()
        self._at = at

    def handle(self, message: Input, now: float) -> Effects:
        if self._at is not None and isinstance(message, self._at) and message.node_id == "bad":
            self.state.drained.append(message.node_id)  # half done
            raise ZeroDivisionError("bad")
        return super().handle(message, now)


async def life(
    bus: MemoryBus,
    core: Restorer,
    snapshot_every: int = 1_000,
    own: tuple[type[Event], ...] = (),
    for_s: float = 120.0,
) -> BaseException | None:
    """A life of two minutes, or so long; the error by which it ended before, if any."""
    ports = Ports(bus=bus.client(NAME), clock=LoopClock())
    service = msgspec.structs.replace(Set().service(core, ports), own_facts=own)
    task = asyncio.create_task(Shell(service, ports, Settings(snapshot_every=snapshot_every)).run())
    await asyncio.wait({task}, timeout=for_s)
    if task.done():
        return task.exception()
    task.cancel()
    await asyncio.wait({task})
    return None


async def planted() -> MemoryBus:
    bus = MemoryBus(LoopClock())
    await bus.publish([drained("a"), drained("bad"), drained("b")])
    return bus


def test_after_the_second_death_the_fact_is_passed_over() -> None:
    async def story() -> None:
        bus = await planted()
        for _ in range(2):
            error = await life(bus, Frail())
            assert isinstance(error, BaseExceptionGroup)
            assert error.subgroup(FatalFact) is not None
        core = Frail()
        assert await life(bus, core) is None
        assert core.state.drained == ["a", "b"]
        assert core.state.restored == ["a", "b"]
        (death,) = (await quarantine_of(bus, NAME)).in_force
        assert (death.seq, death.subject, death.deaths) == (2, "hopyard.node.bad.drained", 2)
        assert "ZeroDivisionError: bad" in death.error

    run(story)


def test_a_death_that_does_not_recur_quarantines_no_fact() -> None:
    async def story() -> None:
        bus = await planted()
        assert await life(bus, Frail()) is not None
        core = Restorer()
        assert await life(bus, core) is None
        assert core.state.drained == ["a", "bad", "b"]
        assert (await quarantine_of(bus, NAME)).in_force == ()

    run(story)


def test_its_own_fact_keeps_a_service_down() -> None:
    async def story() -> None:
        bus = await planted()
        for _ in range(4):
            assert await life(bus, Frail(), own=(NodeDrained,)) is not None
        (death,) = (await quarantine_of(bus, NAME)).in_force
        assert death.own
        assert not death.passed_over
        assert death.text.startswith("stays down by its own fact 2 ")

    run(story)


@pytest.mark.parametrize("snapshot_every", [1, 1_000])
def test_a_released_fact_is_handled_in_its_place(snapshot_every: int) -> None:
    async def story() -> None:
        bus = await planted()
        for _ in range(3):
            await life(bus, Frail(), snapshot_every)
        assert not await release(bus, NAME, 1)
        assert await release(bus, NAME, 2)
        core = Restorer()
        assert await life(bus, core) is None
        assert core.state.drained == ["a", "bad", "b"]
        assert sorted(core.state.restored) == ["a", "b", "bad"]
        assert await quarantine_of(bus, NAME) == Quarantine()

    run(story)


def test_a_released_fact_stays_handled_after_a_short_life() -> None:
    """Nothing came in that life after which it would have saved a snapshot."""

    async def story() -> None:
        bus = await planted()
        for _ in range(3):
            await life(bus, Frail(), snapshot_every=1)
        await release(bus, NAME, 2)
        await life(bus, Restorer(), for_s=1.0)
        core = Restorer()
        await life(bus, core)
        assert core.state.drained == ["a", "bad", "b"]

    run(story)


def test_a_fact_that_is_released_while_others_are_replayed_stays_released() -> None:
    async def story() -> None:
        bus = MemoryBus(LoopClock())
        await bus.put(key_of(NAME), msgspec.json.encode(Quarantine(released=(2, 9))))
        await forget_released(bus, NAME, (2,))
        assert (await quarantine_of(bus, NAME)).released == (9,)

    run(story)


def test_an_unreadable_quarantine_is_empty() -> None:
    async def story() -> None:
        bus = await planted()
        await bus.put(key_of(NAME), b"\xff{")
        assert await life(bus, Restorer()) is None

    run(story)


@pytest.mark.parametrize("entry", TABLE, ids=lambda entry: str(entry.name))
def test_a_service_never_passes_over_the_facts_it_publishes(entry: ServiceEntry) -> None:
    source = import_module(f"{entry.module}.build").__file__
    assert source is not None
    _, _, rest = Path(source).read_text().partition(" own_facts=(")
    named = {name.strip() for name in rest.partition(")")[0].split(",")} - {""}
    assert named == {kind.__name__ for kind in entry.publishes}
