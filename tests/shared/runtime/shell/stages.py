"""One small service on either shell: the asyncio shell on virtual time, and the conductor's."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

import msgspec

from schemas.base import Event, Message, Question
from schemas.events import NodeDrained, NodeRestored
from schemas.ids import NodeId
from schemas.questions import ListNodes, Refused
from schemas.settings import Settings
from schemas.subjects import facts_of
from shared.domain.core import Asked, Effects, Input, Publish, Reply, Work, WorkFailed
from shared.runtime.bus.memory import Faults, MemoryBus
from shared.runtime.clock import Clock, LoopClock
from shared.runtime.conductor import Conductor
from shared.runtime.service import Ports, Service
from shared.runtime.shell.handling import ShellCounts
from shared.runtime.shell.shell import Shell
from shared.runtime.shell.turns import AT_ONCE, Turns
from shared.runtime.shell.virtual import run

NAME = "restorer"
FACTS = facts_of("node")
AFTER_S = 10.0
TASK_S = 1.0


class RestoreTask(msgspec.Struct, frozen=True):
    node_id: NodeId


class Done(msgspec.Struct, frozen=True):
    node_id: NodeId


class Seen(msgspec.Struct):
    seq: int = 0
    drained: list[NodeId] = []
    restored: list[NodeId] = []


class Restorer:
    """Restores every drained node `AFTER_S` later, by a task; drains one when it is asked anything.

    It fails at `ListNodes`.
    """

    def __init__(self) -> None:
        self.state = Seen()
        self.failures: list[str] = []
        self.woken: list[float] = []
        self.handled = 0
        self._due: dict[NodeId, float] = {}

    def handle(self, message: Input, now: float) -> Effects:
        self.handled += 1
        match message:
            case NodeDrained(node_id=node_id, at=at):
                self.state.drained.append(node_id)
                self._due[node_id] = at + AFTER_S
            case NodeRestored(node_id=node_id):
                self.state.restored.append(node_id)
                self._due.pop(node_id, None)
            case Done(node_id):
                return [Publish(restored(node_id, now))]
            case WorkFailed(_, reason):
                self.failures.append(reason)
            case Asked(_, ListNodes()):
                raise ArithmeticError("it cannot count")
            case Asked(ticket, _):
                news = [drained(f"asked-{ticket}-{part}", now) for part in "ab"]
                return [Reply(ticket, Refused(reason=news[-1].node_id)), *map(Publish, news)]
            case _:
                pass
        return []

    def next_wakeup(self) -> float | None:
        return min(self._due.values(), default=None)

    def wake(self, now: float) -> Effects:
        self.woken.append(now)
        ready = [node_id for node_id, due in self._due.items() if due <= now]
        for node_id in ready:
            del self._due[node_id]
        return [Work(RestoreTask(node_id)) for node_id in ready]

    def resume(self, now: float) -> Effects:  # noqa: ARG002
        self._due.clear()
        return [
            Work(RestoreTask(node_id)) for node_id in self.state.drained if node_id not in self.state.restored
        ]


def drained(name: str, at: float = 0.0) -> NodeDrained:
    return NodeDrained(at=at, node_id=NodeId(name))


def restored(node_id: NodeId, at: float) -> NodeRestored:
    return NodeRestored(at=at, node_id=node_id)


Worker = Callable[[RestoreTask, Clock], Awaitable[Done]]


async def run_task(task: RestoreTask, clock: Clock) -> Done:
    await clock.sleep(TASK_S)
    return Done(task.node_id)


class Set(msgspec.Struct, frozen=True, kw_only=True):
    """What a stage is set with."""

    faults: Faults = Faults()
    settings: Settings = Settings(snapshot_every=1_000)
    worker: Worker = run_task
    turns: Turns = AT_ONCE

    def service(self, core: Restorer, ports: Ports) -> Service:
        async def work(task: RestoreTask) -> Done:
            return await self.worker(task, ports.clock)

        return Service(name=NAME, core=core, facts=FACTS, answers=NAME, workers={RestoreTask: work})


class Stage(Protocol):
    """A log, and one life after the other of the service on it."""

    core: Restorer
    """of the life that runs"""

    @property
    def counts(self) -> ShellCounts: ...

    async def start(self) -> None: ...

    async def kill(self) -> None: ...

    async def publish(self, *facts: Event) -> None: ...

    async def sleep(self, seconds: float) -> None: ...

    async def ask(self, question: Question) -> Message: ...

    def beside(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Begin it without waiting for its end."""
        ...

    async def log(self) -> list[Event]:
        """All facts in the order of the stream; one stored twice is there twice."""
        ...


Story = Callable[[Stage], Coroutine[Any, Any, None]]
Tell = Callable[..., None]
"""a story, and what its stage is set with"""


class LoopStage:
    def __init__(self, with_: Set) -> None:
        self.core = Restorer()
        self._set = with_
        self._bus = MemoryBus(LoopClock(), with_.faults)
        self._beside: list[asyncio.Task[None]] = []

    @property
    def counts(self) -> ShellCounts:
        return self._shell.counts

    async def start(self) -> None:
        self.core = Restorer()
        ports = Ports(bus=self._bus.client(NAME), clock=LoopClock())
        service = self._set.service(self.core, ports)
        self._shell = Shell(service, ports, self._set.settings, self._set.turns)
        self._life = asyncio.create_task(self._shell.run())

    async def kill(self) -> None:
        self._life.cancel()
        await asyncio.wait({self._life})

    async def publish(self, *facts: Event) -> None:
        await self._bus.publish(facts)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def ask(self, question: Question) -> Message:
        return await self._shell.ask(question)

    def beside(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self._beside.append(asyncio.create_task(coroutine))

    async def log(self) -> list[Event]:
        last = await self._bus.last_seq()
        events: list[Event] = []
        if last == 0:  # a reader would wait for the first fact
            return events
        async for batch in self._bus.read(0, FACTS):
            events += [record.event for record in batch]
            if batch[-1].seq >= last:
                break
        return events


def tell_on_the_loop(story: Story, **given: Any) -> None:  # noqa: ANN401 - fields of `Set`
    async def whole() -> None:
        stage = LoopStage(Set(**given))
        await story(stage)
        await stage.kill()

    run(whole)


class ConductedStage:
    def __init__(self, with_: Set) -> None:
        self.core = Restorer()
        self._events: list[Event] = []
        self._set = with_
        self.conductor = Conductor({NAME: self._make}, with_.settings, faults=with_.faults, lasting=True)
        self.conductor.log.sinks.append(lambda record: self._events.append(record.event))

    def _make(self, ports: Ports, life: str) -> Service:  # noqa: ARG002 - the conductor's
        self.core = Restorer()
        return self._set.service(self.core, ports)

    @property
    def counts(self) -> ShellCounts:
        return self.conductor.shell(NAME)._handling.counts

    async def start(self) -> None:
        self.conductor.start(NAME)

    async def kill(self) -> None:
        await self.conductor.kill(NAME)

    async def publish(self, *facts: Event) -> None:
        for fact in facts:
            self.conductor.log.publish(fact)

    async def sleep(self, seconds: float) -> None:
        await self.conductor.sleep(seconds)

    async def ask(self, question: Question) -> Message:
        answer: Message = await self.conductor.shell(NAME).ask(question)
        return answer

    def beside(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self.conductor.begin(coroutine)

    async def log(self) -> list[Event]:
        return list(self._events)


def tell_by_the_conductor(story: Story, **given: Any) -> None:  # noqa: ANN401 - as above
    stage, over = ConductedStage(Set(**given)), []

    async def whole() -> None:
        await story(stage)
        over.append(True)

    stage.conductor.begin(whole())
    stage.conductor.run(lambda: bool(over))
