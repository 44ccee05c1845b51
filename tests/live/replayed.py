"""Whether each service's state, as its snapshot holds it, is the one to which a replay of the log leads."""

import msgspec

from hopyard.api.client import Client
from hopyard.local.stack import Stack
from schemas.subjects import passing
from services.table import OF_CLUSTER
from shared.runtime.bus.contract import Record
from shared.runtime.bus.jetstream import JetStreamBus
from shared.runtime.bus.memory import MemoryBus
from shared.runtime.clock import ScaledClock
from shared.runtime.service import Ports
from shared.runtime.settings import load_settings
from shared.runtime.shell.handling import Handling
from shared.runtime.shell.snapshots import unpacked
from tests.stack_watch import LIMIT_S


async def unlike_a_replay(stack: Stack, client: Client) -> list[str]:
    """The services whose state is another, each with the fields; a service without a snapshot is one, too."""
    bus = await JetStreamBus.connect(stack.settings(), "operator", LIMIT_S)
    try:
        blobs = {entry.name: await bus.load(entry.name) for entry in OF_CLUSTER}
    finally:
        await bus.close()
    log = [Record(line.seq, line.fact()) async for line in client.events()]
    return [f"{name}: {said}" for name, blob in blobs.items() if (said := _unlike(stack, name, blob, log))]


def _unlike(stack: Stack, name: str, blob: bytes | None, log: list[Record]) -> str:
    """Empty: the state is that of a replay."""
    if blob is None:
        return "no snapshot"
    [program] = [one.program for one in stack.running if one.program.name == name]
    settings = msgspec.structs.replace(load_settings(program.environ), store=":memory:", archive="")
    clock = ScaledClock(origin=settings.clock_origin, speed=settings.speed)
    [entry] = [entry for entry in OF_CLUSTER if entry.name == name]
    service = entry.build()(settings, Ports(bus=MemoryBus(clock), clock=clock))
    kind, passes = type(service.core.state), passing(service.facts)
    seq, found, _ = unpacked(blob, kind)
    handling = Handling(service, settings.remembered_ids)
    for record in log:
        if record.seq <= seq and passes(record.event.subject):
            handling.replay(record)
    again = msgspec.convert(msgspec.to_builtins(service.core.state), kind)
    names = [field for field in kind.__struct_fields__ if getattr(found, field) != getattr(again, field)]
    return f"at fact {seq}, unlike in {', '.join(names)}" if names else ""
