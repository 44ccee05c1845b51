"""The true top speed of a job, by the world itself: on the best nodes of each GPU type.

Nothing in a stack may read this; it is for bounds that no scheduler can beat. A gang on unlike nodes of a
type is no faster than one on as many copies of the best of them, so only gangs of copies are tried:

    best(type, k) = max over nodes n of the type, and over ways to split k, of the speed on copies of n

There need not be k GPUs of the type, if the job may use others beside it: a gang in lockstep over several
types is no faster than the slowest of them with k GPUs.

The nodes tried are, of each build of a type, the fastest for one GPU and the fastest for a pair of copies: a
gang that fills a large node may be slow on two small ones, each with the faster GPUs. Speeds are means over
the world's noise and over what other jobs take of the network.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import groupby
from math import fsum

import msgspec

from schemas.cluster import Node
from schemas.ids import GpuType, NodeId
from schemas.jobs import JobSpec
from schemas.placement import Gang
from services.agent.work.world import DoesNotFit, World

TRIED = 2
"""nodes of a build that are tried, by each of the two rankings"""
DRAWS = 4
"""number of stretches whose mean is a speed"""


class Place(msgspec.Struct, frozen=True):
    gpu_type: GpuType
    gpus: int
    rate: float
    """samples/s, above 0"""


class Fastest:
    """Caches what it found, since a world has the same speeds for many jobs."""

    def __init__(self, world: World, nodes: Sequence[Node]) -> None:
        self._world = world
        ordered = sorted(nodes, key=_build)
        builds = [list(found) for _, found in groupby(ordered, _build)]
        self._builds: Mapping[GpuType, list[list[Node]]] = {
            kind: list(found) for kind, found in groupby(builds, lambda build: build[0].gpu_type)
        }
        self._known: dict[tuple[Hashable, GpuType, int], float] = {}
        self._tried: dict[tuple[Hashable, GpuType], list[Node]] = {}

    def places(self, spec: JobSpec) -> tuple[Place, ...]:
        """The places where a job fits, also those of more GPUs than the type has; empty: none."""
        kinds = [kind for kind in self._builds if not spec.gpu_types or kind in spec.gpu_types]
        stock = sum(node.gpus for kind in kinds for build in self._builds[kind] for node in build)
        counts = [gpus for gpus in spec.demand if gpus <= stock]
        found = (Place(kind, gpus, self._rate(spec, kind, gpus)) for kind in kinds for gpus in counts)
        return tuple(place for place in found if place.rate > 0)

    def _rate(self, spec: JobSpec, kind: GpuType, gpus: int) -> float:
        key = (self._world.alike(spec), kind, gpus)
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
        key = (self._world.alike(spec), kind)
        if key not in self._tried:
            self._tried[key] = [
                node for build in self._builds[kind] for node in self._fastest_of(spec, build)
            ]
        return self._tried[key]

    def _fastest_of(self, spec: JobSpec, build: Sequence[Node]) -> list[Node]:
        single = sorted(build, key=lambda node: -self._speed(spec, node, (1,), 1))
        paired = sorted(build, key=lambda node: -self._speed(spec, node, (1, 1), 1))
        return list({node.node_id: node for node in (*single[:TRIED], *paired[:TRIED])}.values())

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


def _build(node: Node) -> tuple[GpuType, int, str, float, float]:
    """What a cluster file says of a node: equal for nodes that differ only by what the world adds."""
    return node.gpu_type, node.gpus, node.server, node.link_bandwidth, node.network_bandwidth


def _splits(gpus: int, largest: int) -> Iterator[tuple[int, ...]]:
    """The GPUs on as few nodes as hold them, and on one node more; evenly."""
    fewest = -(-gpus // largest)
    for nodes in (fewest, fewest + 1):
        if nodes <= gpus:
            share, more = divmod(gpus, nodes)
            yield (*(share + 1,) * more, *(share,) * (nodes - more))
