"""The shell: recovery, effects, timers, work and questions, with a small core under virtual time."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from schemas.base import Event, Message
from schemas.events import NodeDrained, NodeEvent, NodeRestored
from schemas.ids import NodeId
from schemas.questions import Refused, ShowStatus
from schemas.settings import Settings
from schemas.subjects import facts_of
from shared.domain.core import Asked, Effects, Input, Publish, Reply, Work, WorkFailed
from shared.runtime.bus import Unavailable
from shared.runtime.clock import LoopClock
from shared.runtime.memory import Faults, MemoryBus
from shared.runtime.service import Ports, Service
from shared.runtime.shell import Shell
from shared.runtime.virtual import run

SETTINGS = Settings(snapshot_every=1_000)


class Errand(msgspec.Struct, frozen=True):
    node_id: NodeId


class Done(msgspec.Struct, frozen=True):
    node_id: NodeId


class Seen(msgspec.Struct):
    seq: int = 0
    drained: list[NodeId] = []
    restored: list[NodeId] = []


class Restorer:
    """Restores every drained node `after_s` later, by an errand."""

    def __init__(self, after_s: float = 10.0) -> None:
        self.state = Seen()
        self.failures: list[str] = []
        self.handled = 0
        self._after_s = after_s
        self._due: dict[NodeId, float] = {}

    def handle(self, message: Input, now: float) -> Effects:
        self.handled += 1
        match message:
            case NodeDrained(node_id=node_id, at=at):
                self.state.drained.append(node_id)
                self._due[node_id] = at + self._after_s
            case NodeRestored(node_id=node_id):
                self.state.restored.append(node_id)
                self._due.pop(node_id, None)
            case Done(node_id):
                return [Publish(restored(node_id, now))]
            case WorkFailed(_, reason):
                self.failures.append(reason)
            case Asked(ticket, _):
                news = drained(f"asked-{ticket}", now)
                return [Publish(news), Reply(ticket, Refused(reason=news.node_id))]
            case _:
                pass
        return []

    def next_wakeup(self) -> float | None:
        return min(self._due.values(), default=None)

    def wake(self, now: float) -> Effects:
        ready = [node_id for node_id, due in self._due.items() if due <= now]
        for node_id in ready:
            del self._due[node_id]
        return [Work(Errand(node_id)) for node_id in ready]

    def resume(self, now: float) -> Effects:  # noqa: ARG002
        self._due.clear()
        return [Work(Errand(node_id)) for node_id in self.state.drained if node_id not in self.state.restored]


def drained(name: str, at: float = 0.0) -> NodeDrained:
    return NodeDrained(at=at, node_id=NodeId(name))


def restored(node_id: NodeId, at: float) -> NodeRestored:
    return NodeRestored(at=at, node_id=node_id)


async def do_errand(errand: Errand) -> Done:
    await asyncio.sleep(1.0)
    return Done(errand.node_id)


class Stage:
    """A bus, and lives of one service on it."""

    def __init__(self, faults: Faults | None = None, settings: Settings = SETTINGS) -> None:
        self.bus = MemoryBus(LoopClock(), faults)
        self.settings = settings
        self.errand: Callable[[Errand], Awaitable[Done]] = do_errand

    def live(self) -> tuple[Restorer, Shell, asyncio.Task[None]]:
        core = Restorer()
        service = Service(name="restorer", core=core, facts=facts_of("node"), workers={Errand: self.errand})
        ports = Ports(bus=self.bus.client("restorer"), clock=LoopClock())
        shell = Shell(service, ports, self.settings)
        return core, shell, asyncio.create_task(shell.run())

    async def log(self) -> list[Event]:
        last = await self.bus.last_seq()
        events: list[Event] = []
        async for batch in self.bus.read(0, facts_of("node")):
            events += [record.event for record in batch]
            if batch[-1].seq >= last:
                break
        return events


async def kill(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait({task})


def times(events: list[Event]) -> dict[tuple[str, str], float]:
    return {(event.tag(), event.node_id): event.at for event in events if isinstance(event, NodeEvent)}


def test_a_timer_wakes_the_core_and_the_errand_s_answer_becomes_a_fact() -> None:
    async def story() -> None:
        stage = Stage()
        _, _, task = stage.live()
        await stage.bus.publish([drained("a")])
        await asyncio.sleep(60)
        assert times(await stage.log())["node.restored", "a"] == pytest.approx(11.0)
        await kill(task)

    run(story)


def test_a_restart_replays_to_the_same_state_and_tells_nothing_twice() -> None:
    async def story() -> None:
        stage = Stage()
        first, _, task = stage.live()
        await stage.bus.publish([drained(name) for name in "abc"])
        await asyncio.sleep(60)
        await kill(task)
        before = await stage.log()
        second, _, task = stage.live()
        await asyncio.sleep(60)
        assert second.state == first.state
        assert await stage.log() == before
        await kill(task)

    run(story)


def test_an_errand_that_a_crash_cut_off_is_done_in_the_next_life() -> None:
    async def story() -> None:
        stage = Stage()
        _, _, task = stage.live()
        await stage.bus.publish([drained("a")])
        await asyncio.sleep(10.5)  # the errand is on its way
        await kill(task)
        second, _, task = stage.live()
        await asyncio.sleep(60)
        assert second.state.restored == ["a"]
        await kill(task)

    run(story)


def test_a_snapshot_spares_the_replay() -> None:
    async def story() -> None:
        stage = Stage(settings=msgspec.structs.replace(SETTINGS, snapshot_every=10))
        first, shell, task = stage.live()
        await stage.bus.publish([drained(f"n{index}") for index in range(50)])
        await asyncio.sleep(60)
        assert shell.counts.snapshots > 0
        await kill(task)
        second, _, task = stage.live()
        await asyncio.sleep(60)
        assert second.state == first.state
        assert second.handled < 100
        await kill(task)

    run(story)


def test_facts_published_or_delivered_twice_are_handled_once() -> None:
    async def story() -> None:
        stage = Stage(Faults(seed=3, duplicate=0.5, redeliver=0.5, delay_s=1.0))
        core, shell, task = stage.live()
        await stage.bus.publish([drained(f"n{index}") for index in range(40)])
        await asyncio.sleep(120)
        assert sorted(core.state.drained) == sorted(f"n{index}" for index in range(40))
        assert sorted(core.state.restored) == sorted(core.state.drained)
        assert shell.counts.repeated > 0
        await kill(task)

    run(story)


def test_work_that_fails_comes_back_as_a_reason() -> None:
    async def refuse(errand: Errand) -> Done:
        raise Unavailable(f"nobody does {errand.node_id}")

    async def story() -> None:
        stage = Stage()
        stage.errand = refuse
        core, _, task = stage.live()
        await stage.bus.publish([drained("a")])
        await asyncio.sleep(60)
        assert core.failures == ["Unavailable: nobody does a"]
        await kill(task)

    run(story)


def test_an_answer_goes_out_after_its_facts_are_stored() -> None:
    async def story() -> None:
        stage = Stage()
        _, shell, task = stage.live()
        answer = await shell.ask(ShowStatus())
        assert isinstance(answer, Refused)
        assert ("node.drained", answer.reason) in times(await stage.log())
        await kill(task)

    run(story)


def test_whoever_waits_for_an_answer_hears_of_the_end() -> None:
    async def slow(errand: Errand) -> Done:
        raise AssertionError(errand)

    async def story() -> None:
        stage = Stage()
        stage.errand = slow
        _, shell, task = stage.live()
        await asyncio.sleep(1)
        waiting: asyncio.Task[Message] = asyncio.create_task(shell.ask(ShowStatus()))
        await kill(task)
        with pytest.raises(Unavailable):
            await waiting

    run(story)
