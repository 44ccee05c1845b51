"""Pools the evidence of all servers of one model, where a GPU type stands in servers of several. Pure.

A job that reads or launches much runs at unlike speeds in servers of unlike models, whatever the GPU type. So
for such a type the type layer answers with what all servers of the node's own model showed together:

    mean = Σ seconds · mean of a server / Σ seconds

The servers are the nodes of the question, which holds all of a cluster. Types with one model of server need
no pooling. What other models showed enters theory's factor instead (`residuals`).
"""

from collections.abc import Sequence
from functools import lru_cache

import msgspec
import numpy as np

from schemas.cluster import Node
from schemas.ids import GpuType
from services.estimator.store.contract import Evidence
from services.estimator.store.table import Whole

HostModel = tuple[GpuType, str]
"""a GPU type and a model of server that it stands in; an empty name: any model"""


CLUSTERS_KEPT = 16
"""sets of nodes, those asked about last, for which what follows from the nodes alone is kept"""


class Hosts(msgspec.Struct, frozen=True):
    """Servers by kind: a kind is a GPU type with a model of server."""

    kind: Whole
    """kind of each node; −1: all nodes of its GPU type are alike"""
    members: Sequence[Whole]
    """nodes of each kind"""
    place: Sequence[HostModel]
    """GPU type and server model of each kind"""


@lru_cache(CLUSTERS_KEPT)
def hosts_of(nodes: tuple[Node | None, ...]) -> Hosts:
    servers: dict[str, set[str]] = {}
    for node in nodes:
        if node is not None:
            servers.setdefault(node.gpu_type, set()).add(node.server)
    kinds: dict[HostModel, list[int]] = {}
    for index, node in enumerate(nodes):
        if node is not None and len(servers[node.gpu_type]) > 1:
            kinds.setdefault((node.gpu_type, node.server), []).append(index)
    kind = np.full(len(nodes), -1)
    for number, members in enumerate(kinds.values()):
        kind[members] = number
    return Hosts(kind, [np.array(members) for members in kinds.values()], list(kinds))


def together(evidence: Evidence, start: Whole) -> Evidence:
    """Evidence pooled by group of adjacent rows. `start`: first row of each group, none is empty."""
    seen = evidence.count > 0
    seconds = np.where(seen, evidence.seconds, 0.0)
    first = np.where(seen, seconds * evidence.mean, 0.0)
    second = np.where(seen, seconds * (evidence.variance + evidence.mean**2), 0.0)
    total = np.add.reduceat(seconds, start)
    weight = np.where(total > 0, total, np.nan)
    mean = np.add.reduceat(first, start) / weight
    variance = np.maximum(np.add.reduceat(second, start) / weight - mean**2, 0.0)
    return Evidence(np.add.reduceat(evidence.count, start), total, mean, variance)
