"""Which node an agent stands for; who finds it is a plug-in."""

import time
from typing import Protocol
from uuid import uuid4

import msgspec

from schemas.cluster import ClusterFile, Node
from schemas.settings import Settings
from services.agent.tasks import ALL_WELL, GpusSeen
from services.agent.work.claim import claim
from shared.domain.cluster import nodes_of
from shared.runtime.clock import Clock
from shared.runtime.files import read_file
from shared.runtime.service import Ports, Task


class UnknownNode(LookupError):
    """The settings name no node, or one that the cluster file does not have."""


class AgentNode(msgspec.Struct, frozen=True, kw_only=True):
    node: Node
    life: str
    """new at every start of the agent"""
    tasks: tuple[Task, ...] = ()
    """for as long as the agent runs: one holds the node, and raises once another agent stands for it"""
    seen: GpusSeen = ALL_WELL
    """the GPUs of the node"""


class NodeProvider(Protocol):
    """What the setting `nodes` names: an entry point of `hopyard.nodes`, or `module:attribute`."""

    async def __call__(self, settings: Settings, ports: Ports) -> AgentNode:
        """Waits until there is a node. Raises UnknownNode, InvalidFile, InvalidCluster."""
        ...


async def of_cluster_file(settings: Settings, ports: Ports) -> AgentNode:
    """The node that the settings name, else the first of the cluster file that no agent has claimed."""
    life = uuid4().hex
    if settings.node:
        return AgentNode(node=named_node(settings), life=life)
    nodes = _cluster_nodes(settings)
    held = await claim(ports.bus, ports.clock, nodes, holder=life, lease_s=settings.node_lease_real_s)
    return AgentNode(node=held.node, life=life, tasks=(held.keep,))


def named_node(settings: Settings) -> Node:
    """Raises UnknownNode, InvalidFile, InvalidCluster."""
    for node in _cluster_nodes(settings):
        if node.node_id == settings.node:
            return node
    raise UnknownNode(f"{settings.cluster} has no node {settings.node!r}")


def lent(node: Node, settings: Settings, clock: Clock) -> Node:
    """With the time at which it goes away, where the settings say that it does."""
    if not settings.node_until:
        return node
    left_s = settings.node_until - time.time()
    return msgspec.structs.replace(node, until=clock.now() + clock.cluster_s(left_s))


def _cluster_nodes(settings: Settings) -> tuple[Node, ...]:
    if not settings.cluster:
        raise UnknownNode("an agent finds its node in a cluster file: the setting `cluster` is empty")
    return nodes_of(read_file(settings.cluster, ClusterFile))
