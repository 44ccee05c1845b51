"""Places jobs on nodes, given their GPUs by type. Pure.

A job that has exactly its number of GPUs of a type keeps them. Then the jobs are placed, those with most GPUs
of the type first, each on the fewest nodes: on a node that it has already, else by best fit, then in node
order.
"""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from schemas.ids import GpuType, NodeId
from schemas.placement import Configuration
from services.planner.policies.contract.view import ViewNode
from services.planner.policies.kit.gangs import Pools, place, pools
from shared.domain.arrays import Ints


class Packing(msgspec.Struct, frozen=True):
    types: tuple[GpuType, ...]
    pools: Pools
    idle: dict[NodeId, int]

    def places(self, gpus: Ints, held: Sequence[Configuration]) -> list[Configuration]:
        """The place of each job. `gpus` [S, C]: by job and type, no more than idle; `held`: its GPUs now."""
        free = dict(self.idle)
        found: list[Configuration] = [{} for _ in held]
        for kind in np.flatnonzero(gpus.any(axis=0)).tolist():
            shares = {job: int(gpus[job, kind]) for job in np.flatnonzero(gpus[:, kind]).tolist()}
            self._pack(self.types[kind], shares, held, (free, found))
        return found

    def _pack(
        self,
        gpu_type: GpuType,
        shares: Mapping[int, int],
        held: Sequence[Configuration],
        so_far: tuple[dict[NodeId, int], list[Configuration]],
    ) -> None:
        free, found = so_far
        nodes = self.pools[gpu_type].nodes
        own = {job: _here(held[job], nodes) for job in shares if held[job]}
        moved = dict(shares)
        for job, here in own.items():
            if sum(here.values()) == shares[job] and all(free[node] >= here[node] for node in here):
                _take(here, free, found[job])
                del moved[job]
        for job in sorted(moved, key=lambda job: (-moved[job], job)):
            _take(self._fewest(gpu_type, moved[job], own.get(job, {}), free), free, found[job])

    def _fewest(
        self, gpu_type: GpuType, gpus: int, own: Configuration, free: Mapping[NodeId, int]
    ) -> Configuration:
        known = [node for node in own if free[node] >= gpus]
        if known:
            return {min(known, key=lambda node: free[node]): gpus}
        where = place(gpus, types=(gpu_type,), pools=self.pools, free=free)
        assert where is not None, "no more GPUs of a type than are idle"
        return where


def packing(nodes: Sequence[ViewNode]) -> Packing:
    """The idle GPUs of the nodes; types in alphabetical order."""
    found = pools((node.node_id, node.gpu_type, node.idle) for node in nodes)
    return Packing(tuple(sorted(found)), found, {node.node_id: node.idle for node in nodes})


def _here(held: Configuration, nodes: Sequence[NodeId]) -> Configuration:
    return {node: held[node] for node in nodes if node in held}


def _take(where: Configuration, free: dict[NodeId, int], found: Configuration) -> None:
    for node, gpus in where.items():
        free[node] -= gpus
    found.update(where)
