"""Places a gang of a given size: consolidated first, on one GPU type. Pure.

A gang goes on one node if one has room: on the first type that has such a node, on the node that is left
with the fewest free GPUs (best fit). Otherwise it goes on several nodes of one type, as few as possible, in
one of three styles. Ties go to the earlier type, then to the earlier node.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from schemas.ids import GpuType, NodeId
from schemas.placement import Configuration


class Style(StrEnum):
    """How a gang is spread if no single node has room for it."""

    FEWEST_NODES = "fewest nodes"
    """the emptiest nodes first, the last one by best fit"""
    FRAGMENTS = "fragments"
    """the fullest nodes first: what is left idle lies on few nodes"""
    CONSOLIDATED = "consolidated"
    """over no more nodes than it would need in an empty cluster; if that is impossible, it is not placed"""


Free = Mapping[NodeId, int]
"""GPUs by node; below 0 where more are promised than there are"""


class Pool(NamedTuple):
    """The nodes of one type."""

    nodes: tuple[NodeId, ...]
    sizes: tuple[int, ...]
    """GPUs of each node, largest first"""

    def fewest(self, gpus: int) -> int:
        """How many nodes a gang needs if all are empty; more than there are, if it never fits."""
        for count, size in enumerate(self.sizes, start=1):
            gpus -= size
            if gpus <= 0:
                return count
        return len(self.sizes) + 1


Pools = Mapping[GpuType, Pool]


def pools(nodes: Iterable[tuple[NodeId, GpuType, int]]) -> dict[GpuType, Pool]:
    """The pool of each type. `nodes`: id, type and GPUs of each."""
    members: dict[GpuType, list[tuple[NodeId, int]]] = {}
    for node_id, gpu_type, size in nodes:
        members.setdefault(gpu_type, []).append((node_id, size))
    return {
        gpu_type: Pool(tuple(name for name, _ in own), tuple(sorted((size for _, size in own), reverse=True)))
        for gpu_type, own in members.items()
    }


def place(
    gpus: int,
    *,
    types: Sequence[GpuType],
    pools: Pools,
    free: Free,
    style: Style = Style.FEWEST_NODES,
    sums: Mapping[GpuType, int] | None = None,
) -> Configuration | None:
    """GPUs by node; None where no type has room. `types`: those it can run on, the best first.

    `sums`: `free_by_type` of `free`, if the caller has it already.
    """
    sums = sums or free_by_type(pools, free)
    roomy = [pools[gpu_type] for gpu_type in types if sums.get(gpu_type, 0) >= gpus]
    for pool in roomy:
        fits = [node for node in pool.nodes if free[node] >= gpus]
        if fits:
            return {min(fits, key=lambda node: free[node]): gpus}
    spreads = ((pool, _spread(gpus, pool, free, style)) for pool in roomy)
    allowed = (spread for pool, spread in spreads if _is_allowed(spread, pool.fewest(gpus), style))
    return min(allowed, key=len, default=None)


def free_by_type(pools: Pools, free: Free) -> dict[GpuType, int]:
    """Free GPUs by type; nodes that promised too many count as 0."""
    return {
        gpu_type: sum([free[node] for node in pool.nodes if free[node] > 0])
        for gpu_type, pool in pools.items()
    }


def _is_allowed(spread: Configuration, fewest: int, style: Style) -> bool:
    return style is not Style.CONSOLIDATED or len(spread) <= fewest


def _spread(gpus: int, pool: Pool, free: Mapping[NodeId, int], style: Style) -> Configuration:
    """GPUs by node, over nodes of the pool that have room together."""
    fullest = sorted((node for node in pool.nodes if free[node] > 0), key=lambda node: free[node])
    if style is Style.FRAGMENTS:
        return _filled(gpus, fullest, free)
    emptiest = sorted(fullest, key=lambda node: -free[node])
    chosen = _filled(gpus, emptiest, free)
    *whole, last = chosen
    rest = chosen[last]
    best = next(node for node in fullest if node not in whole and free[node] >= rest)
    return {node: free[node] for node in whole} | {best: rest}


def _filled(gpus: int, order: Iterable[NodeId], free: Mapping[NodeId, int]) -> Configuration:
    place: Configuration = {}
    for node in order:
        place[node] = min(free[node], gpus)
        gpus -= place[node]
        if not gpus:
            break
    return place
