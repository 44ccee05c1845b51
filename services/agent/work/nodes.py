"""Finds the node that an agent stands for, by the plug-in that the setting `nodes` names."""

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
    """run as long as the agent does; one renews the claim on the node, and raises if another agent has it"""
    seen: GpusSeen = ALL_WELL
    """state of the node's GPUs at the start"""


class NodeProvider(Protocol):
    """What the setting `nodes` names: an entry point of `hopyard.nodes`, or `module:attribute`."""

    async def __call__(self, settings: Settings, ports: Ports) -> AgentNode:
        """Find a node; waits until one is free. Raises UnknownNode, InvalidFile, InvalidCluster."""
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
    """The node that the settings name. Raises UnknownNode, InvalidFile, InvalidCluster."""
    for node in _cluster_nodes(settings):
        if node.node_id == settings.node:
            return node
    raise UnknownNode(f"{settings.cluster} has no node {settings.node!r}")


def with_end_time(node: Node, settings: Settings, clock: Clock) -> Node:
    """The node, with the cluster time at which it goes away if the setting `node_until` gives one."""
    if not settings.node_until:
        return node
    left_s = settings.node_until - time.time()
    return msgspec.structs.replace(node, until=clock.now() + clock.cluster_s(left_s))


def _cluster_nodes(settings: Settings) -> tuple[Node, ...]:
    if not settings.cluster:
        raise UnknownNode("an agent finds its node in a cluster file: the setting `cluster` is empty")
    return nodes_of(read_file(settings.cluster, ClusterFile))
