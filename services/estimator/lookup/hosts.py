"""Pools the evidence of all servers of one model, where a GPU type stands in servers of several. Pure.

A job that reads or launches much runs at unlike speeds in servers of unlike models, whatever the GPU type. So
for such a type the type layer answers with what all servers of the node's own model showed together:

    mean = Σ w · mean of a server / Σ w

with w the weight of what a server showed, faded to the time of the newest observation of them all (see
`store.table`), so that a server's old evidence counts as little beside another's as beside its own.

The servers are all nodes of the cluster, whichever of them a question is about. Types with one model of
server need no pooling. What other models showed enters theory's factor instead (`residuals`).
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache

import msgspec
import numpy as np
import numpy.typing as npt

from schemas.cluster import Node
from schemas.ids import Fingerprint, GpuType
from services.estimator.store.contract import Evidence, Keys, Store, entity
from services.estimator.store.table import Whole, fading

HostModel = tuple[GpuType, str]
"""a GPU type and a model of server that it stands in; an empty name: any model"""


CLUSTERS_KEPT = 16
"""sets of nodes, those asked about last, for which what follows from the nodes alone is kept"""


class Hosts(msgspec.Struct, frozen=True):
    """Servers by kind: a kind is a GPU type with a model of server, where the type stands in several."""

    kind: Whole
    """kind of each node of a question; −1: the nodes of its GPU type are alike, or it stands for all"""
    place: tuple[HostModel, ...]
    """GPU type and server model of each kind, in alphabetical order"""
    servers: tuple[str, ...]
    """places in the entity layer of all servers of these kinds, one kind after another"""
    start: Whole
    """where in `servers` each kind begins, and where the last one ends"""


@lru_cache(CLUSTERS_KEPT)
def hosts_of(nodes: tuple[Node | None, ...], cluster: tuple[Node, ...]) -> Hosts:
    """The servers of `cluster`, and of the question's nodes. A node without an id is no server."""
    model_of = {
        entity(node.node_id, node.gpu_type): (node.gpu_type, node.server)
        for node in (*cluster, *nodes)
        if node is not None and node.node_id
    }
    of_model: dict[HostModel, list[str]] = {}
    for server, model in sorted(model_of.items()):
        of_model.setdefault(model, []).append(server)
    place = tuple(sorted(_of_several(of_model)))
    number = {model: kind for kind, model in enumerate(place)}
    return Hosts(
        kind=np.array([_kind(node, number) for node in nodes], dtype=np.int64),
        place=place,
        servers=tuple([server for model in place for server in of_model[model]]),
        start=np.cumsum([0, *(len(of_model[model]) for model in place)]),
    )


def _of_several(models: Collection[HostModel]) -> list[HostModel]:
    """The models of GPU types that stand in several."""
    types = Counter(gpu_type for gpu_type, _ in models)
    return [model for model in models if types[model[0]] > 1]


def _kind(node: Node | None, number: Mapping[HostModel, int]) -> int:
    return number.get((node.gpu_type, node.server), -1) if node is not None and node.node_id else -1


def of_like_servers(
    hosts: Hosts,
    store: Store,
    fingerprints: Sequence[Fingerprint],
    *,
    workload: Whole,
    kind: Whole,
    distributed: npt.NDArray[np.bool_],
    size: Whole,
) -> Evidence:
    """What all servers of a kind showed, by row; columns as in `Keys`. Raises StoreUnavailable."""
    widths = np.diff(hosts.start)[kind]
    begin = np.cumsum(widths) - widths
    row = np.repeat(np.arange(len(kind)), widths)
    keys = Keys(
        layer="entity",
        fingerprints=fingerprints,
        places=hosts.servers,
        workload=workload[row],
        place=hosts.start[kind][row] + np.arange(len(row)) - begin[row],
        distributed=distributed[row],
        size=size[row],
    )
    return _together(store.find(keys), begin, row, store.half_life_s)


def _together(evidence: Evidence, start: Whole, group: Whole, half_life_s: float) -> Evidence:
    """Evidence pooled by group of adjacent rows. `start`: first row of each group, none is empty."""
    seen = evidence.count > 0
    newest = np.maximum.reduceat(np.where(seen, evidence.seen_at, -np.inf), start)
    weight = np.zeros(len(seen))
    times = zip(newest[group[seen]].tolist(), evidence.seen_at[seen].tolist(), strict=True)
    weight[seen] = evidence.weight[seen] * [fading(last, own, half_life_s) for last, own in times]
    first = np.where(seen, weight * evidence.mean, 0.0)
    second = np.where(seen, weight * (evidence.variance + evidence.mean**2), 0.0)
    total = np.add.reduceat(weight, start)
    known = np.where(total > 0, total, np.nan)
    mean = np.add.reduceat(first, start) / known
    return Evidence(
        count=np.add.reduceat(evidence.count, start),
        seconds=np.add.reduceat(evidence.seconds, start),
        weight=total,
        seen_at=newest,
        mean=mean,
        variance=np.maximum(np.add.reduceat(second, start) / known - mean**2, 0.0),
    )
