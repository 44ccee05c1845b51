"""The true top speed of a job, by the world itself: on the best nodes of each GPU type.

Nothing in a stack may read this; it is for bounds that no scheduler can beat. A gang on unlike nodes of a
type is no faster than one on as many copies of the best of them, so only gangs of copies are tried:

    best(type, k) = max over nodes n of the type, and over ways to split k, of the speed on copies of n

There need not be k GPUs of the type, if the job may use others beside it: a gang in lockstep over several
types is no faster than the slowest of them with k GPUs.

The nodes tried are the fastest for one GPU, and the fastest for a pair of copies. Speeds are means over the
world's noise and over what other jobs take of the network.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from math import fsum

import msgspec

from schemas.cluster import Node
from schemas.ids import GpuType, NodeId
from schemas.jobs import JobSpec
from schemas.placement import Gang
from services.agent.work.world import DoesNotFit, World

TRIED = 2
"""nodes of a type that are tried, by each of the two rankings"""
DRAWS = 4
"""number of stretches whose mean is a speed"""


class Place(msgspec.Struct, frozen=True):
    gpu_type: GpuType
    gpus: int
    rate: float
    """samples/s, above 0"""


class Fastest:
    """Caches what it found, since jobs of one workload have the same speeds."""

    def __init__(self, world: World, nodes: Sequence[Node]) -> None:
        self._world = world
        by_type = sorted(nodes, key=lambda node: node.gpu_type)
        self._nodes: Mapping[GpuType, list[Node]] = {
            kind: list(found) for kind, found in groupby(by_type, lambda node: node.gpu_type)
        }
        self._known: dict[tuple[str, GpuType, int], float] = {}
        self._tried: dict[tuple[str, GpuType], list[Node]] = {}

    def places(self, spec: JobSpec) -> tuple[Place, ...]:
        """The places where a job fits, also those of more GPUs than the type has; empty: none."""
        kinds = [kind for kind in self._nodes if not spec.gpu_types or kind in spec.gpu_types]
        stock = sum(node.gpus for kind in kinds for node in self._nodes[kind])
        counts = [gpus for gpus in spec.demand if gpus <= stock]
        found = (Place(kind, gpus, self._rate(spec, kind, gpus)) for kind in kinds for gpus in counts)
        return tuple(place for place in found if place.rate > 0)

    def _rate(self, spec: JobSpec, kind: GpuType, gpus: int) -> float:
        key = (spec.workload.fingerprint, kind, gpus)
        if key not in self._known:
            self._known[key] = self._best(spec, kind, gpus)
        return self._known[key]

    def _best(self, spec: JobSpec, kind: GpuType, gpus: int) -> float:
        speeds = (
            self._speed(spec, node, split, DRAWS)
            for node in self._fastest_nodes(spec, kind)
            for split in _splits(gpus, node.gpus)
        )
        return max(speeds, default=0.0)

    def _fastest_nodes(self, spec: JobSpec, kind: GpuType) -> list[Node]:
        key = (spec.workload.fingerprint, kind)
        if key not in self._tried:
            nodes = self._nodes[kind]
            single = sorted(nodes, key=lambda node: -self._speed(spec, node, (1,), 1))
            paired = sorted(nodes, key=lambda node: -self._speed(spec, node, (1, 1), 1))
            chosen = [*single[:TRIED], *paired[:TRIED]]
            self._tried[key] = list({node.node_id: node for node in chosen}.values())
        return self._tried[key]

    def _speed(self, spec: JobSpec, node: Node, split: Sequence[int], draws: int) -> float:
        """samples/s on copies of a node, with these GPUs on each; 0: the job does not fit."""
        names = [NodeId(f"{node.node_id}~{index:04}") for index in range(len(split))]
        gang = Gang.of(dict(zip(names, split, strict=True)))
        copies = [node] * len(split)
        try:
            drawn = [
                self._world.stretch(spec, copies, gang, key="fastest", index=index).throughput
                for index in range(draws)
            ]
        except DoesNotFit:
            return 0.0
        return fsum(drawn) / draws


def _splits(gpus: int, largest: int) -> Iterator[tuple[int, ...]]:
    """The GPUs on as few nodes as hold them, and on one node more; evenly."""
    fewest = -(-gpus // largest)
    for nodes in (fewest, fewest + 1):
        if nodes <= gpus:
            share, more = divmod(gpus, nodes)
            yield (*(share + 1,) * more, *(share,) * (nodes - more))
