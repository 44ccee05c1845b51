"""The agent as it is wired: on a bus, with a runner and heartbeats, through its lives."""

import asyncio
import importlib
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from schemas.base import Event
from schemas.events import NodeJoined, Outcome, WorkerStarted, WorkerStopped
from schemas.ids import JobId
from schemas.samples import Heartbeat
from schemas.settings import Settings
from schemas.subjects import facts_of
from services.agent.build import build, build_standing
from services.agent.work.emulated import EmulatedRunner
from services.agent.work.nodes import UnknownNode
from shared.runtime.bus.memory import Faults, MemoryBus
from shared.runtime.clock import LoopClock
from shared.runtime.files import InvalidFile
from shared.runtime.plugins import WORLDS, UnknownPlugin
from shared.runtime.service import Ports
from shared.runtime.shell.shell import Shell
from shared.runtime.shell.virtual import run
from tests.services.agent.agent_bench import HERE, formed, node, start, stop

SETTINGS = Settings(world="tests.services.agent.agent_bench:FixedWorld", heartbeat_real_s=1.0)
CLUSTER = """
name: test
gpu_types:
  t4: {link_bandwidth: 1.0e+10, network_bandwidth: 1.0e+9}
nodes:
  - {prefix: n, count: 2, gpus: 4, gpu_type: t4}
"""


class Stage:
    """A bus, lives of one agent on it, and all facts that anybody published."""

    def __init__(self, faults: Faults | None = None) -> None:
        self.bus = MemoryBus(LoopClock(), faults)
        self.facts: list[Event] = []
        self.beats: list[Heartbeat] = []
        self.agent: asyncio.Task[None]

    def live(self, life: str, settings: Settings = SETTINGS) -> None:
        ports = Ports(bus=self.bus, clock=LoopClock())
        service = build(settings, ports, node(), life)
        self.agent = asyncio.create_task(Shell(service, ports, settings).run())

    async def kill(self) -> None:
        self.agent.cancel()
        await asyncio.wait({self.agent})

    async def tell(self, *events: Event) -> None:
        await self.bus.publish(events)

    async def read(self) -> None:
        seen = set()
        async for batch in self.bus.read(0, facts_of("node", "worker")):
            for record in batch:
                if record.event.event_id not in seen:
                    seen.add(record.event.event_id)
                    self.facts.append(record.event)

    async def hear(self) -> None:
        async for sample in self.bus.listen([Heartbeat]):
            assert isinstance(sample, Heartbeat)
            self.beats.append(sample)

    def ends(self) -> list[WorkerStopped]:
        return [fact for fact in self.facts if isinstance(fact, WorkerStopped)]


def played(scene: Callable[[Stage], Awaitable[None]], faults: Faults | None = None) -> Stage:
    async def main() -> Stage:
        stage = Stage(faults)
        watching = [asyncio.create_task(stage.read()), asyncio.create_task(stage.hear())]
        await scene(stage)
        await stage.kill()
        for task in watching:
            task.cancel()
        await asyncio.wait(watching)
        return stage

    return run(main)


async def one_job(stage: Stage) -> None:
    stage.live("1")
    await asyncio.sleep(5.0)
    await stage.tell(start(gpus=2, at=5.0))
    await asyncio.sleep(15.0)
    await stage.tell(formed(at=20.0))
    await asyncio.sleep(300.0)


@pytest.mark.parametrize("faults", [Faults(), Faults(duplicate=0.5, redeliver=0.5, delay_s=0.1)])
def test_a_job_runs_from_its_order_to_its_end(faults: Faults) -> None:
    facts = [fact for fact in played(one_job, faults).facts if fact.at > 0 or isinstance(fact, NodeJoined)]
    assert [type(fact).__name__ for fact in facts] == [
        "NodeJoined",
        "StartOrdered",
        "WorkerStarted",
        "GangFormed",
        "WorkerStopped",
    ]
    assert facts[2].at == pytest.approx(15.0, abs=0.3)
    assert facts[4].at == pytest.approx(20.0 + 1_000.0 / 4.0, abs=0.3)


def test_heartbeats_carry_life_workers_and_progress() -> None:
    stage = played(one_job)
    assert {(beat.node_id, beat.life) for beat in stage.beats} == {(HERE, "1")}
    beat = stage.beats[50]
    assert (round(beat.at, 3), beat.workers) == (50.0, ("p1",))
    assert beat.progress == {JobId("job-of-p1"): pytest.approx((50.0 - 20.0) * 4.0)}
    assert stage.beats[-1].workers == ()


def test_a_killed_agent_comes_back_with_an_empty_node() -> None:
    async def scene(stage: Stage) -> None:
        stage.live("1")
        await asyncio.sleep(5.0)
        await stage.tell(start(gpus=4, at=5.0), formed(at=5.0))
        await asyncio.sleep(20.0)
        await stage.kill()
        stage.live("2")
        await asyncio.sleep(5.0)
        await stage.tell(start("p2", gpus=4, at=30.0))
        await asyncio.sleep(20.0)

    stage = played(scene)
    started = [fact for fact in stage.facts if isinstance(fact, WorkerStarted)]
    assert [(fact.placement_id, fact.gpu_indices) for fact in started] == [
        ("p1", (0, 1, 2, 3)),
        ("p2", (0, 1, 2, 3)),
    ]
    assert stage.beats[-1].workers == ("p2",)


def test_an_order_given_while_the_agent_was_away_does_not_start() -> None:
    async def scene(stage: Stage) -> None:
        stage.live("1")
        await asyncio.sleep(5.0)
        await stage.kill()
        await stage.tell(start(at=5.0))
        stage.live("2")
        await asyncio.sleep(100.0)

    stage = played(scene)
    assert not any(isinstance(fact, WorkerStarted | WorkerStopped) for fact in stage.facts)


def test_a_stop_right_after_the_start_leaves_no_worker() -> None:
    async def scene(stage: Stage) -> None:
        stage.live("1")
        await asyncio.sleep(5.0)
        await stage.tell(start(at=5.0), stop(at=5.0))
        await asyncio.sleep(50.0)

    stage = played(scene)
    assert [end.outcome for end in stage.ends()] == [Outcome.CHECKPOINTED]
    assert stage.beats[-1].workers == ()


def test_the_same_orders_give_the_same_facts_twice() -> None:
    assert played(one_job).facts == played(one_job).facts


def test_an_agent_is_built_for_the_node_the_settings_name(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    settings = Settings(world=SETTINGS.world, cluster=str(tmp_path / "cluster.yaml"), node="n-1")
    service = build(settings, Ports(bus=MemoryBus(LoopClock()), clock=LoopClock()))
    assert service.name == "agent-n-1"
    orders = ("gang-formed", "start-ordered", "started", "stop-ordered", "stopped", "turns-ordered")
    about_it = ("drained", "gpus-withheld", "joined")
    assert service.facts == (
        *(f"hopyard.node.n-1.{fact}" for fact in about_it),
        *(f"hopyard.worker.n-1.{fact}" for fact in orders),
    )


def test_two_agents_of_the_same_settings_have_different_lives() -> None:
    def joined() -> object:
        ports = Ports(bus=MemoryBus(LoopClock()), clock=LoopClock())
        [effect] = build(SETTINGS, ports, node()).core.resume(0.0)
        return effect

    assert joined() != joined()


def test_a_node_that_the_cluster_has_not_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    settings = Settings(world=SETTINGS.world, cluster=str(tmp_path / "cluster.yaml"), node="n-9")
    with pytest.raises(UnknownNode, match="n-9"):
        build(settings, Ports(bus=MemoryBus(LoopClock()), clock=LoopClock()))


def test_a_missing_cluster_file_is_named() -> None:
    with pytest.raises(InvalidFile, match=r"nowhere\.yaml"):
        build(
            Settings(cluster="nowhere.yaml", node="n-1"),
            Ports(bus=MemoryBus(LoopClock()), clock=LoopClock()),
        )


@pytest.mark.parametrize(
    "name", ["atlantis", "tests.services.agent.agent_bench:Nowhere", "no_such_module:World"]
)
def test_an_unknown_world_is_refused_by_name(name: str) -> None:
    with pytest.raises(UnknownPlugin, match=name):
        WORLDS.load(name)


def test_a_given_runner_replaces_the_emulated_one() -> None:
    world = WORLDS.load(SETTINGS.world)(SETTINGS)
    runner = EmulatedRunner(world, LoopClock(), startup_s=0.0, checkpoint_s=0.0, observe_every_s=60.0)
    ports = Ports(bus=MemoryBus(LoopClock()), clock=LoopClock())
    assert build(Settings(world="atlantis"), ports, node(), runner=runner).name == f"agent-{HERE}"


def test_the_runner_is_a_plug_in_named_by_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "foreign_runner.py").write_text(
        "from services.agent.work.emulated import emulated\n"
        "made = []\n"
        "def runner(settings, clock):\n"
        "    made.append(emulated(settings, clock))\n"
        "    return made[-1]\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    ports = Ports(bus=MemoryBus(LoopClock()), clock=LoopClock())
    build(Settings(runner="foreign_runner:runner"), ports, node())
    foreign_runner = importlib.import_module("foreign_runner")
    assert len(foreign_runner.made) == 1
    with pytest.raises(UnknownPlugin, match=r"runner warp is unknown; there are emulated"):
        build(Settings(runner="warp"), ports, node())


async def test_the_node_is_found_by_the_provider_that_the_settings_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "foreign_nodes.py").write_text(
        "from services.agent.work.nodes import AgentNode\n"
        "from tests.services.agent.agent_bench import node\n"
        "async def here(settings, ports):\n"
        "    return AgentNode(node=node('laptop'), life='1')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    ports = Ports(bus=MemoryBus(LoopClock()), clock=LoopClock())
    service = await build_standing(Settings(nodes="foreign_nodes:here"), ports)
    assert service.name == "agent-laptop"
    with pytest.raises(UnknownPlugin, match=r"provider of nodes warp is unknown; there are cluster-file"):
        await build_standing(Settings(nodes="warp"), ports)


def test_heartbeats_name_an_output_folder_that_cannot_be_written_before_a_job_prints(tmp_path: Path) -> None:
    (tmp_path / "output").touch()

    async def scene(stage: Stage) -> None:
        stage.live("first", msgspec.structs.replace(SETTINGS, output_folder=str(tmp_path / "output")))
        await asyncio.sleep(3)
        await stage.kill()

    said = f"what jobs print is not kept: {tmp_path}/output/{HERE}: Not a directory"
    beats = played(scene).beats
    assert beats
    assert {beat.troubles for beat in beats} == {(said,)}
