"""A service that would have to read facts that are nowhere any more ends, and says why."""

import asyncio

import msgspec
import pytest

from schemas.quarantine import Quarantine, key_of
from schemas.settings import Settings
from schemas.subjects import FACTS_STREAM
from shared.runtime.bus.contract import Bus
from shared.runtime.bus.jetstream import JetStreamBus
from shared.runtime.clock import ScaledClock
from shared.runtime.damage import Damaged, leaf_of
from shared.runtime.leadership import Deposed
from shared.runtime.service import Ports
from shared.runtime.shell.shell import Shell
from shared.runtime.shell.snapshots import packed
from tests.bus_nets import JetStreamNet
from tests.shared.runtime.shell.stages import NAME, Restorer, Seen, Set, drained
from tests.stack_watch import LIMIT_S

FACTS_STORED, TRIMMED = 6, 4


class OtherShape(msgspec.Struct):
    seen: int = 0


async def trimmed(live: JetStreamNet, state: object = None, upto: int = TRIMMED) -> JetStreamBus:
    """A bus with six facts, four of them trimmed, no archive, and a snapshot of `state` up to `upto`."""
    live.settings = msgspec.structs.replace(live.settings, archive="")
    bus = await live.client(NAME)
    await bus.publish([drained(f"n-{seq}") for seq in range(1, FACTS_STORED + 1)])
    await bus.put(f"cursor/{NAME}", str(TRIMMED).encode())
    if state is not None:
        await bus.save(NAME, packed(upto, state, []))
    await bus.drop(FACTS_STREAM, TRIMMED)
    return bus


def shell_on(bus: Bus, core: Restorer, settings: Settings, name: str) -> Shell:
    ports = Ports(bus=bus, clock=ScaledClock())
    service = msgspec.structs.replace(Set().service(core, ports), name=name, answers=None)
    return Shell(service, ports, settings)


async def life(
    bus: Bus, name: str = NAME, *, allow_lost_facts: bool = False, upto: int = FACTS_STORED
) -> Restorer:
    """The core of a life that leads and knows the facts `upto`. Raises the error by which the life ended."""
    core = Restorer()
    shell = shell_on(bus, core, Settings(allow_lost_facts=allow_lost_facts), name)
    running = asyncio.create_task(shell.run())
    async with asyncio.timeout(LIMIT_S):
        while not running.done() and not (shell.leads() and shell.seq >= upto):
            await asyncio.sleep(0.01)
    if not running.done():
        running.cancel()
        await asyncio.wait({running})
        return core
    raise leaf_of(running.exception() or AssertionError("it ended by itself"))


async def test_a_snapshot_of_another_shape_does_not_make_trimmed_facts_vanish(live: JetStreamNet) -> None:
    bus = await trimmed(live, OtherShape())
    with pytest.raises(Damaged, match=r"of another version, and facts 1 to 4, which it needs,") as found:
        await life(bus)
    assert "HOPYARD_ALLOW_LOST_FACTS=1" in str(found.value)
    assert "Start the version again" in str(found.value)


async def test_a_snapshot_that_is_gone_does_not_either(live: JetStreamNet) -> None:
    with pytest.raises(Damaged, match="has no snapshot, and facts 1 to 4"):
        await life(await trimmed(live))


async def test_a_released_fact_that_is_trimmed_does_not_either(live: JetStreamNet) -> None:
    bus = await trimmed(live, Seen())
    await bus.put(key_of(NAME), msgspec.json.encode(Quarantine(released=(2,))))
    with pytest.raises(Damaged, match="has to handle a released fact in its place, and facts 1 to 4"):
        await life(bus)


async def test_where_lost_facts_are_allowed_it_goes_on_without_them(live: JetStreamNet) -> None:
    core = await life(await trimmed(live, OtherShape()), allow_lost_facts=True)
    assert core.state.drained == ["n-5", "n-6"]


async def test_an_agent_needs_no_old_orders(live: JetStreamNet) -> None:
    core = await life(await trimmed(live), "agent-n-1")
    assert core.state.drained == ["n-5", "n-6"]


async def test_a_snapshot_that_covers_what_was_trimmed_suffices(live: JetStreamNet) -> None:
    core = await life(await trimmed(live, Seen(drained=[drained("of-before").node_id])))
    assert core.state.drained == ["of-before", "n-5", "n-6"]


async def test_an_instance_that_fell_behind_begins_anew_with_the_newer_snapshot(live: JetStreamNet) -> None:
    bus = await trimmed(live, Seen(), upto=1)
    load = bus.load
    taken: list[bytes | None] = []

    async def load_then_save(name: str) -> bytes | None:
        """The snapshot, just before the leader stores its next one."""
        blob = await load(name)
        if not taken:
            taken.append(blob)
            await bus.save(name, packed(TRIMMED, Seen(), []))
        return blob

    bus.load = load_then_save  # type: ignore[method-assign]
    with pytest.raises(Deposed, match="facts 2 to 4 were trimmed before"):
        await life(bus)
    assert (await life(bus)).state.drained == ["n-5", "n-6"]
