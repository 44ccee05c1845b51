"""An instance that does not lead knows what the leader acknowledged, and goes on from there."""

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from schemas.base import Event
from schemas.events import NodeDrained, NodeRestored
from schemas.ids import NodeId
from schemas.samples import Heartbeat
from schemas.settings import Settings
from schemas.subjects import facts_of
from shared.domain.core import Effects, Input, Publish
from shared.runtime.bus.contract import Unavailable
from shared.runtime.bus.jetstream import JetStreamBus
from shared.runtime.clock import ScaledClock
from shared.runtime.leadership import Candidate
from shared.runtime.service import Ports, Service
from shared.runtime.shell.shell import Shell
from tests.bus_nets import JetStreamNet

NAME = "restorer"
LIMIT_S = 60.0


class Seen(msgspec.Struct):
    seq: int = 0
    drained: list[NodeId] = []


class Restorer:
    """Restores every drained node."""

    def __init__(self) -> None:
        self.state = Seen()
        self.heard: list[float] = []

    def handle(self, message: Input, now: float) -> Effects:
        match message:
            case Heartbeat(at=at):
                self.heard.append(at)
            case NodeDrained(node_id=node_id):
                self.state.drained.append(node_id)
                return [Publish(NodeRestored(at=now, node_id=node_id, by="test"))]
            case _:
                pass
        return []

    def next_wakeup(self) -> float | None:
        return None

    def wake(self, now: float) -> Effects:  # noqa: ARG002 - the contract's
        return []

    def resume(self, now: float) -> Effects:  # noqa: ARG002 - the contract's
        return []


def drained(node: str) -> NodeDrained:
    return NodeDrained(at=1.0, node_id=NodeId(node), by="test")


async def true(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not condition():
            await asyncio.sleep(0.02)


async def test_a_follower_replays_acknowledged_facts_and_takes_over_with_the_rest(live: JetStreamNet) -> None:
    ahead, behind = await live.client(NAME), await live.client(NAME)
    settings, clock, core = Settings(lease_real_s=1.0), ScaledClock(), Restorer()
    leader = Candidate(ahead, clock, settings, NAME, first=True)
    assert await leader.stand()
    holding = asyncio.create_task(leader.hold())
    candidate = Candidate(behind, clock, msgspec.structs.replace(settings, instance=2), NAME, first=True)
    service = Service(name=NAME, core=core, facts=facts_of("node"), samples=(Heartbeat,), samples_kept=2)
    ports = Ports(bus=behind, clock=clock, fencing_token=candidate.fencing_token)
    shell = Shell(service, ports, settings, candidate=candidate)
    life = asyncio.create_task(shell.run())
    try:
        await true(shell.ready)
        await ahead.publish([drained("n-1"), drained("n-2")])
        await ahead.put(f"cursor/{NAME}", str(await ahead.newest(facts_of("node")) - 1).encode())
        await true(lambda: core.state.drained == ["n-1"])
        for at in range(3):
            await ahead.send(Heartbeat(at=float(at), node_id=NodeId("n-1"), life="a", workers=()))
        assert not shell.leads()
        holding.cancel()
        await leader.release()
        await true(lambda: core.state.drained == ["n-1", "n-2"])
        await true(lambda: core.heard == [1.0, 2.0])
        found: list[Event] = []
        async with asyncio.timeout(LIMIT_S):
            async for batch in behind.read(0, facts_of("node")):
                found += [record.event for record in batch]
                if any(isinstance(fact, NodeRestored) for fact in found):
                    break
        assert [fact.node_id for fact in found if isinstance(fact, NodeRestored)] == ["n-2"]
    finally:
        life.cancel()
        holding.cancel()
        await asyncio.gather(life, holding, return_exceptions=True)


class Electing(JetStreamBus):
    """Asked for the first time since it leads, it meets servers that elect the stream's leader."""

    met: list[str]

    async def newest(self, subjects: Sequence[str]) -> int:
        self._meet("newest")
        return await super().newest(subjects)

    async def get(self, key: str) -> tuple[bytes, int] | None:
        self._meet("get")
        return await super().get(key)

    def _meet(self, what: str) -> None:
        if self._connection.fence is not None and what not in self.met:
            self.met.append(what)
            raise Unavailable("no leader yet")


async def test_a_new_leader_waits_while_servers_elect_theirs(live: JetStreamNet) -> None:
    """The leader's process ended; taking over, admission itself causes such an election."""
    bus = await live.client(NAME)
    bus.__class__ = Electing
    assert isinstance(bus, Electing)
    bus.met = []
    settings, clock = Settings(lease_real_s=1.0), ScaledClock()
    candidate = Candidate(bus, clock, settings, NAME, first=True)
    service = Service(name=NAME, core=Restorer(), facts=facts_of("node"))
    shell = Shell(service, Ports(bus=bus, clock=clock), settings, candidate=candidate)
    living = asyncio.create_task(shell.run())
    await true(shell.leads)
    assert bus.met == ["newest", "get"]
    living.cancel()
    await asyncio.wait([living])
