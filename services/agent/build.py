"""Wires the agent of one node."""

from collections.abc import Awaitable, Callable
from uuid import uuid4

from schemas.cluster import ClusterFile, Node
from schemas.questions import agent_of
from schemas.settings import Settings
from schemas.subjects import orders_to
from services.agent.claim import Claim, claim
from services.agent.core import Agent
from services.agent.emulated import EmulatedRunner
from services.agent.heartbeat import heartbeat
from services.agent.runner import Runner, StartWorker, StopWorker, Timed, TimePaths, TrainWorker
from services.agent.worlds import find_world
from shared.domain.cluster import nodes_of
from shared.runtime.files import read_file
from shared.runtime.service import Inbox, Ports, Service, Worker


class UnknownNode(LookupError):
    """The settings name no node, or one that the cluster file does not have."""


def build(
    settings: Settings,
    ports: Ports,
    node: Node | None = None,
    life: str | None = None,
    *,
    runner: Runner | None = None,
    held: Claim | None = None,
) -> Service:
    """`node`: by default the one the settings name; `runner`: by default one on the world they name.

    `held`: a claim to keep for as long as the service runs. Raises InvalidFile, InvalidCluster,
    UnknownNode, UnknownWorld.
    """
    node = node or _named_node(settings)
    life = life or uuid4().hex
    runner = runner or _emulated(settings, ports)
    beat = heartbeat(
        ports,
        runner,
        node_id=node.node_id,
        life=life,
        every_s=ports.clock.cluster_s(settings.heartbeat_real_s),
    )
    return Service(
        name=f"agent-{node.node_id}",
        core=Agent(node, life),
        facts=(orders_to(node.node_id), f"hopyard.node.{node.node_id}.joined"),
        answers=agent_of(node.node_id),
        workers=_workers(runner),
        tasks=[_running(runner), beat, *([held.keep] if held else [])],
    )


async def build_claimed(settings: Settings, ports: Ports) -> Service:
    """`build`, with a node of the cluster file that is claimed where the settings name none."""
    if settings.node:
        return build(settings, ports)
    runner = _emulated(settings, ports)  # first: a world may take longer to load than a claim lasts
    held = await claim(
        ports.bus,
        ports.clock,
        _cluster_nodes(settings),
        life=uuid4().hex,
        lease_s=settings.node_lease_real_s,
    )
    return build(settings, ports, held.node, held.life, runner=runner, held=held)


def _cluster_nodes(settings: Settings) -> tuple[Node, ...]:
    if not settings.cluster:
        raise UnknownNode("an agent finds its node in a cluster file: the setting `cluster` is empty")
    return nodes_of(read_file(settings.cluster, ClusterFile))


def _named_node(settings: Settings) -> Node:
    for node in _cluster_nodes(settings):
        if node.node_id == settings.node:
            return node
    raise UnknownNode(f"{settings.cluster} has no node {settings.node!r}")


def _emulated(settings: Settings, ports: Ports) -> Runner:
    return EmulatedRunner(
        find_world(settings.world, settings.seed),
        ports.clock,
        startup_s=settings.startup_s,
        checkpoint_s=settings.checkpoint_s,
        observe_every_s=settings.observe_every_s,
    )


def _running(runner: Runner) -> Callable[[Inbox], Awaitable[None]]:
    async def run(inbox: Inbox) -> None:
        await runner.run(inbox.tell)

    return run


def _workers(runner: Runner) -> dict[type, Worker]:
    async def start(task: StartWorker) -> None:
        runner.start(task.order, task.gpu_indices)

    async def train(task: TrainWorker) -> None:
        runner.train(task.placement_id)

    async def stop(task: StopWorker) -> None:
        runner.stop(task.placement_id)

    async def time_paths(task: TimePaths) -> Timed:
        return Timed(task.ticket, await runner.all_reduces(task.question))

    return {StartWorker: start, TrainWorker: train, StopWorker: stop, TimePaths: time_paths}
