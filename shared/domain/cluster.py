"""Nodes and GPU types: from the file that describes a cluster to what the services compute with."""

from collections.abc import Iterable, Mapping
from math import floor

from schemas.cluster import ClusterFile, Node
from schemas.ids import GpuType, NodeId

NEARLY = 1e-6
"""of a round: a time so near to the next round is of that one, whichever way a division was rounded"""


class InvalidCluster(ValueError):
    """A cluster file whose fields are well-formed but make no sense together."""


def nodes_of(cluster: ClusterFile) -> tuple[Node, ...]:
    """The nodes that the file describes, in the order of their ids. Raises InvalidCluster."""
    nodes: dict[NodeId, Node] = {}
    for group in cluster.nodes:
        if group.gpu_type not in cluster.gpu_types:
            raise InvalidCluster(f"nodes {group.prefix}: GPU type {group.gpu_type} is not described")
        paths = cluster.gpu_types[group.gpu_type]
        for index in range(group.count):
            node_id = NodeId(f"{group.prefix}-{index:0{len(str(group.count - 1)):d}d}")
            if node_id in nodes:
                raise InvalidCluster(f"nodes {group.prefix}: the name {node_id} is taken")
            nodes[node_id] = Node(
                node_id=node_id,
                gpu_type=group.gpu_type,
                gpus=group.gpus,
                server=group.server,
                link_bandwidth=paths.link_bandwidth,
                network_bandwidth=paths.network_bandwidth,
                until=group.until,
            )
    return tuple(nodes[node_id] for node_id in sorted(nodes))


def gpus_by_type(nodes: Iterable[Node]) -> dict[GpuType, int]:
    """Number of GPUs of each type, types in alphabetical order."""
    counts: dict[GpuType, int] = {}
    for node in nodes:
        counts[node.gpu_type] = counts.get(node.gpu_type, 0) + node.gpus
    return dict(sorted(counts.items()))


def satisfiable(demand: Iterable[int], gpu_types: Iterable[GpuType], counts: Mapping[GpuType, int]) -> bool:
    """Whether the allowed types together have the smallest of the wanted GPU counts.

    Types are added up, since some policies mix them in a gang. `counts`: GPUs of each type. Without
    `gpu_types` all types are allowed.
    """
    return min(demand) <= usable_gpus(gpu_types, counts)


def usable_gpus(gpu_types: Iterable[GpuType], counts: Mapping[GpuType, int]) -> int:
    """GPUs of the allowed types together."""
    allowed = set(gpu_types) or set(counts)
    return sum(gpus for gpu_type, gpus in counts.items() if gpu_type in allowed)


def round_at(now: float, round_s: float) -> int:
    """The number of the round that `now` falls in: rounds are counted from cluster time 0."""
    return int(now // round_s)


def round_by(number: int, at: float | None, round_s: float) -> int:
    """The number, by the present length of rounds, of a round in which something was done at `at`.

    `number`: the one that it was given, which is too high if rounds were shorter then. `at`: None if that is
    not known.
    """
    return number if at is None else min(number, floor(at / round_s + NEARLY))
