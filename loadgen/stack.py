"""Every service and agent of a cluster in one process, on one bus and one clock; each can be killed."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from schemas.cluster import Node
from schemas.settings import Settings
from services.admission.build import build as build_admission
from services.agent.build import build as build_agent
from services.estimator.build import build as build_estimator
from services.monitor.build import build as build_monitor
from services.placer.build import build as build_placer
from services.planner.build import build as build_planner
from services.profiler.build import build as build_profiler
from shared.runtime.bus import Unavailable
from shared.runtime.clock import LoopClock
from shared.runtime.memory import MemoryBus, MemoryClient
from shared.runtime.service import Ports, Service
from shared.runtime.shell import Shell

Maker = Callable[[Ports, str], Service]
"""ports and the number of the life → service"""


class MemoryStack:
    """Services by name, as tasks of the running loop."""

    def __init__(self, bus: MemoryBus, settings: Settings, nodes: Sequence[Node]) -> None:
        self.bus = bus
        self._settings = settings
        self._makers = _makers(settings, nodes)
        self._clients: dict[str, MemoryClient] = {}
        self._lives = dict.fromkeys(self._makers, 0)
        self._shells: dict[str, Shell] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._trouble: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._makers)

    def shell(self, name: str) -> Shell:
        """Of the life that goes on. Raises Unavailable between two lives."""
        if name not in self._shells:
            raise Unavailable(f"{name} is not running")
        return self._shells[name]

    def start(self, name: str) -> None:
        """Begin a life of a service, from what the bus remembers of the last one."""
        self._lives[name] += 1
        self._tasks[name] = asyncio.create_task(self._live(name), name=name)

    async def kill(self, name: str) -> None:
        """End it without a word: what it had not told is lost."""
        task = self._tasks.pop(name)
        self._shells.pop(name, None)
        task.cancel()
        await asyncio.wait({task})

    def cut(self, name: str) -> None:
        """Part a service from the others until `mend`, or until its next life."""
        self._clients[name].cut()

    def mend(self, name: str) -> None:
        self._clients[name].mend()

    async def watch(self) -> None:
        """Raise what any service raises; else wait for ever."""
        await self._trouble

    async def close(self) -> None:
        for name in list(self._tasks):
            await self.kill(name)
        self._trouble.cancel()

    async def _live(self, name: str) -> None:
        client = self._clients[name] = self.bus.client(name)
        try:
            await self._run(name, Ports(bus=client, clock=LoopClock(), simulated=True))
        except Exception as error:  # noqa: BLE001 - handed to whoever watches
            if not self._trouble.done():
                self._trouble.set_exception(error)
        finally:
            await client.close()

    async def _run(self, name: str, ports: Ports) -> None:
        service = self._makers[name](ports, str(self._lives[name]))
        shell = self._shells[name] = Shell(service, ports, self._settings)
        try:
            await shell.run()
        finally:
            if service.close is not None:
                await service.close()


def _makers(settings: Settings, nodes: Sequence[Node]) -> Mapping[str, Maker]:
    services: dict[str, Maker] = {
        "admission": lambda ports, _: build_admission(settings, ports, nodes),
        "profiler": lambda ports, _: build_profiler(settings, ports),
        "estimator": lambda ports, _: build_estimator(settings, ports),
        "planner": lambda ports, _: build_planner(settings, ports),
        "placer": lambda ports, _: build_placer(settings, ports),
        "monitor": lambda ports, _: build_monitor(settings, ports),
    }
    return services | {f"agent-{node.node_id}": _agent(settings, node) for node in nodes}


def _agent(settings: Settings, node: Node) -> Maker:
    return lambda ports, life: build_agent(settings, ports, node=node, life=life)
