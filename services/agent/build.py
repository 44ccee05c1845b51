"""Wires the agent of one node: its core, its runner, and the tasks beside them."""

from collections.abc import Awaitable, Callable, Sequence
from uuid import uuid4

from schemas.cluster import Node
from schemas.events import (
    GpusWithheld,
    NodeDrained,
    NodeJoined,
    ProfileFailed,
    ProfileMeasured,
    WorkerCheckpointed,
    WorkerStarted,
    WorkerStopped,
)
from schemas.ids import PlacementId
from schemas.questions import Refused, agent_of
from schemas.settings import Settings
from schemas.subjects import subjects_of
from services.agent.core import Agent
from services.agent.folds import FOLDS, QUIET
from services.agent.tasks import (
    ALL_WELL,
    AllReducesTimed,
    GpusSeen,
    LinesRead,
    ReadLines,
    StartWorker,
    StopWorker,
    TimeAllReduces,
    TrainWorker,
    TurnWorker,
)
from services.agent.work.heartbeat import heartbeat
from services.agent.work.nodes import NodeProvider, named_node, with_end_time
from services.agent.work.output import OutputFiles, output_files
from services.agent.work.runner import Runner, RunnerFactory
from shared.runtime.plugins import NODES, RUNNERS
from shared.runtime.service import Inbox, Ports, Service, Task, Worker

NO_OUTPUT_KEPT = "what jobs print is kept nowhere: `output_folder` is empty"


def build(
    settings: Settings,
    ports: Ports,
    node: Node | None = None,
    life: str | None = None,
    *,
    runner: Runner | None = None,
    adopted: tuple[PlacementId, ...] = (),
    tasks: Sequence[Task] = (),
    seen: GpusSeen = ALL_WELL,
) -> Service:
    """`node`, `runner`: None for those that the settings name. `life`: None for a new one.

    `adopted`: workers of an earlier life that the runner found. `tasks`: run as long as the service does.
    `seen`: the state of the node's GPUs now. Raises InvalidFile, InvalidCluster, UnknownNode, UnknownPlugin.
    """
    node = with_end_time(node or named_node(settings), settings, ports.clock)
    life = life or uuid4().hex
    runner = runner or _runner(settings, ports)
    output = output_files(settings, ports.clock, node.node_id)
    beat = heartbeat(
        ports,
        runner,
        lambda: (*runner.troubles(), *(output.troubles() if output else ())),
        node_id=node.node_id,
        life=life,
        every_s=ports.clock.cluster_s(settings.heartbeat_real_s),
    )
    return Service(
        name=f"agent-{node.node_id}",
        core=Agent(
            node,
            life,
            runner.modes,
            getattr(runner, "workloads", ()),
            runs_commands=getattr(runner, "runs_commands", False),
            residents_max=getattr(runner, "residents_max", 0),
            adopted=adopted,
            seen=seen,
            leave_s=settings.leave_before_end_s,
        ),
        facts=subjects_of(FOLDS, node.node_id),
        quiet_facts=QUIET,
        own_facts=(
            NodeJoined,
            NodeDrained,
            GpusWithheld,
            ProfileMeasured,
            ProfileFailed,
            WorkerStarted,
            WorkerCheckpointed,
            WorkerStopped,
        ),
        answers=agent_of(node.node_id),
        workers=_workers(runner, output),
        tasks=[_running(runner, output), beat, *tasks],
    )


async def build_standing(settings: Settings, ports: Ports) -> Service:
    """`build` for the node that the setting `nodes` provides, with the workers that its runner adopts."""
    provide: NodeProvider = NODES.load(settings.nodes)
    runner = _runner(settings, ports)  # before the node is claimed: both may take longer than a claim lasts
    adopted = await runner.adopt()
    standing = await provide(settings, ports)
    return build(
        settings,
        ports,
        standing.node,
        standing.life,
        runner=runner,
        adopted=adopted,
        tasks=standing.tasks,
        seen=standing.seen,
    )


def _runner(settings: Settings, ports: Ports) -> Runner:
    make: RunnerFactory = RUNNERS.load(settings.runner)
    return make(settings, ports.clock)


def _running(runner: Runner, output: OutputFiles | None) -> Callable[[Inbox], Awaitable[None]]:
    async def run(inbox: Inbox) -> None:
        if output:
            output.try_folder()
        try:
            await runner.run(inbox.put, output.write if output else None)
        finally:
            if output:
                output.close()

    return run


def _workers(runner: Runner, output: OutputFiles | None) -> dict[type, Worker]:
    async def start(task: StartWorker) -> None:
        runner.start(task.order, task.gpu_indices)

    async def train(task: TrainWorker) -> None:
        runner.train(task.placement_id, task.meeting)

    async def turn(task: TurnWorker) -> None:
        runner.turn(task.placement_id, task.gang)

    async def stop(task: StopWorker) -> None:
        runner.stop(task.placement_id)

    async def time_all_reduces(task: TimeAllReduces) -> AllReducesTimed:
        return AllReducesTimed(task.ticket, await runner.all_reduces(task.question, task.gpu_indices))

    async def read(task: ReadLines) -> LinesRead:
        if output is None:
            return LinesRead(task.ticket, Refused(reason=NO_OUTPUT_KEPT))
        return LinesRead(task.ticket, output.read(task.question))

    return {
        StartWorker: start,
        TrainWorker: train,
        TurnWorker: turn,
        StopWorker: stop,
        TimeAllReduces: time_all_reduces,
        ReadLines: read,
    }
