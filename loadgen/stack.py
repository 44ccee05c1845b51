"""Every service and agent of a cluster in one process, on one bus and one clock; each can be killed."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from schemas.base import Event, Question
from schemas.catalogue import NOTHING_MORE, CatalogueFile
from schemas.cluster import Node
from schemas.codec import encode
from schemas.ids import NodeId, PlacementId
from schemas.scenarios import Arrival
from schemas.settings import Settings
from schemas.subjects import FACT_SUBJECTS
from services.agent.work.emulated import EmulatedRunner, emulated_with, world_of
from services.table import TABLE, ServiceEntry
from shared.domain.states import ENDED, MOVES
from shared.runtime.bus.contract import Unavailable
from shared.runtime.bus.memory import MemoryBus, MemoryClient
from shared.runtime.clock import Clock, LoopClock
from shared.runtime.service import Ports, Service, ServiceFactory
from shared.runtime.shell.shell import Shell
from shared.runtime.shell.virtual import LoopTurns

LONGEST_S = 365 * 24 * 3600.0
"""cluster seconds after the last arrival at which a simulation counts as endless"""


class Endless(TimeoutError):
    """A simulation that was not over long after its last job had come."""


def until_s(arrivals: Sequence[Arrival]) -> float:
    """The cluster second at which a simulation counts as endless."""
    return LONGEST_S + max((arrival.at_s for arrival in arrivals), default=0.0)


ENDINGS = frozenset(fact for fact, (_, after) in MOVES.items() if after in ENDED)

RETRY_S = 5.0

WrapFactory = Callable[[str, ServiceFactory], ServiceFactory]
"""the first argument is the name of the service"""


def unwrapped(_: str, factory: ServiceFactory) -> ServiceFactory:
    return factory


Runners = Callable[[Settings, Clock, NodeId], tuple[EmulatedRunner, tuple[PlacementId, ...]]]
"""makes the runner of a node's agent as the agent starts, and names the workers that it adopts"""


def emulated_on(catalogue: CatalogueFile) -> Runners:
    """Emulated runners for the shipped catalogue and `catalogue`.

    Workers end with their agent, so none is adopted.
    """
    return lambda settings, clock, _: (emulated_with(catalogue, settings, clock), ())


EMULATED = emulated_on(NOTHING_MORE)


def check_world(catalogue: CatalogueFile, settings: Settings) -> None:
    """Raises UnknownPlugin, InvalidCatalogue, InvalidFile for a world with which no agent could start."""
    world_of(catalogue, settings)


class StallingTurns(LoopTurns):
    """Turns that can be withheld from a service."""

    def __init__(self, rank: int) -> None:
        super().__init__(rank)
        self._free = asyncio.Event()
        self._free.set()

    def stall(self) -> None:
        self._free.clear()

    def go_on(self) -> None:
        self._free.set()

    async def mine(self) -> None:
        await self._free.wait()
        await super().mine()


class MemoryStack:
    """Services by name, as tasks of the running loop."""

    def __init__(
        self,
        bus: MemoryBus,
        settings: Settings,
        nodes: Sequence[Node],
        runners: Runners = EMULATED,
        wrap: WrapFactory = unwrapped,
    ) -> None:
        self.bus = bus
        self._settings = settings
        self._factories = factories(settings, nodes, runners, wrap)
        self._ranks = {name: rank for rank, name in enumerate(self._factories)}
        self._clients: dict[str, MemoryClient] = {}
        self._lives = dict.fromkeys(self._factories, 0)
        self._shells: dict[str, Shell] = {}
        self._turns: dict[str, StallingTurns] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._trouble: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._factories)

    def shell(self, name: str) -> Shell:
        """The running service. Raises Unavailable while it is dead."""
        if name not in self._shells:
            raise Unavailable(f"{name} is not running")
        return self._shells[name]

    def start(self, name: str) -> None:
        """Start a service, from what the bus has stored of its earlier lives."""
        self._lives[name] += 1
        self._tasks[name] = asyncio.create_task(self._live(name), name=name)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def facts(self, count: int) -> None:
        """Return once `count` more facts have been stored."""
        async for batch in self.bus.read(await self.bus.last_seq(), FACT_SUBJECTS):
            count -= len(batch)
            if count <= 0:
                break

    async def steps(self, count: int) -> None:
        """Return after `count` turns of the loop."""
        for _ in range(count):
            await asyncio.sleep(0)

    def is_up(self, name: str) -> bool:
        return self.shell(name).ready()

    async def kill(self, name: str) -> None:
        """End a service at once: what it had not published is lost."""
        task = self._tasks.pop(name)
        self._shells.pop(name, None)
        task.cancel()
        await asyncio.wait({task})

    def cut(self, name: str) -> None:
        """Disconnect a service from the others until `mend`, or until it is started again."""
        self._clients[name].cut()

    def mend(self, name: str) -> None:
        self._clients[name].mend()

    def stall(self, name: str) -> None:
        """Give a service no turns until `go_on`, or until its next life; its tasks go on."""
        self._turns[name].stall()

    def go_on(self, name: str) -> None:
        self._turns[name].go_on()

    def stored(self, after: int) -> list[Event]:
        return self.bus.stored(after)

    def store(self, fact: Event) -> None:
        self.bus.store(fact.subject, encode(fact))

    async def put_to(self, name: str, question: Question) -> object:
        return await self.shell(name).ask(question)

    async def watch(self) -> None:
        """Raise what any service raises; until then wait."""
        await self._trouble

    async def close(self) -> None:
        for name in list(self._tasks):
            await self.kill(name)
        self._trouble.cancel()

    async def _live(self, name: str) -> None:
        client, life = self.bus.client(name), self._lives[name]
        self._clients[name] = client
        try:
            await self._run(name, Ports(bus=client, clock=LoopClock(), fencing_token=lambda: life))
        except Exception as error:  # noqa: BLE001 - handed to the watcher
            if not self._trouble.done():
                self._trouble.set_exception(error)
        finally:
            await client.close()

    async def _run(self, name: str, ports: Ports) -> None:
        service = self._factories[name](ports, str(self._lives[name]))
        turns = self._turns[name] = StallingTurns(self._ranks[name])
        shell = self._shells[name] = Shell(service, ports, self._settings, turns)
        try:
            await shell.run()
        finally:
            if service.close is not None:
                await service.close()


def factories(
    settings: Settings, nodes: Sequence[Node], runners: Runners = EMULATED, wrap: WrapFactory = unwrapped
) -> Mapping[str, ServiceFactory]:
    """The services by name, in the order in which they take turns at the same instant."""
    found: dict[str, ServiceFactory] = {}
    for entry in sorted(TABLE, key=lambda entry: entry.turn):
        if entry.on_every_node:
            found |= {
                f"{entry.name}-{node.node_id}": _of_node(entry, settings, node, runners) for node in nodes
            }
        else:
            found[entry.name] = _of_cluster(entry, settings, nodes)
    return {name: wrap(name, factory) for name, factory in found.items()}


def _of_cluster(entry: ServiceEntry, settings: Settings, nodes: Sequence[Node]) -> ServiceFactory:
    build = entry.build()
    known = {"nodes": nodes} if entry.name == "admission" else {}
    return lambda ports, _: build(settings, ports, **known)


def _of_node(entry: ServiceEntry, settings: Settings, node: Node, runners: Runners) -> ServiceFactory:
    """An agent in memory, whose node is emulated whatever the settings say of live agents."""
    build = entry.build()

    def make(ports: Ports, life: str) -> Service:
        runner, adopted = runners(settings, ports.clock, node.node_id)
        return build(settings, ports, node=node, life=life, runner=runner, adopted=adopted)

    return make
