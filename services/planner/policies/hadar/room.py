"""Free GPUs by node, and by level, so that nodes that are alike are found at once. Pure.

A *level* is all nodes of one type and size with equally many free GPUs. A node is *occupied* while a job has
its present place there whose turn in the queue is still to come: a job that takes GPUs there may cost that
other job its place. The nodes of a level are interchangeable, except the occupied ones. These are taken last;
of them the node whose next job has the latest turn is taken first.
"""

from collections.abc import Collection, Mapping, Sequence

from schemas.ids import GpuType, NodeId
from services.planner.policies.contract.view import ViewNode
from services.planner.policies.hadar.jobs import GpusByNode, HadarJob

NEVER = 1 << 60
"""a turn that is later than every job's"""


class Levels:
    """The levels of a cluster. They are numbered: a node is at level `base` of the node + its free GPUs."""

    def __init__(self, nodes: Sequence[ViewNode]) -> None:
        self.names: tuple[NodeId, ...] = tuple(node.node_id for node in nodes)
        self.position = {name: index for index, name in enumerate(self.names)}
        self.types: tuple[GpuType, ...] = tuple(sorted({node.gpu_type for node in nodes}))
        self.kind = [self.types.index(node.gpu_type) for node in nodes]
        """position of each node's type in `types`"""
        self.gpus = [0] * len(self.types)
        """GPUs of each type, free or not"""
        self.nodes = [self.kind.count(kind) for kind in range(len(self.types))]
        """number of nodes of each type"""
        self.free_of: list[int] = []
        """by level: free GPUs of each of its nodes"""
        self.size_of: list[int] = []
        """by level: all GPUs of each of its nodes"""
        self.kind_of: list[int] = []
        """by level: the position of its nodes' type"""
        bases: dict[tuple[int, int], int] = {}
        for kind, size in sorted({(kind, node.gpus) for kind, node in zip(self.kind, nodes, strict=True)}):
            bases[kind, size] = len(self.free_of)
            self.free_of += range(size + 1)
            self.size_of += [size] * (size + 1)
            self.kind_of += [kind] * (size + 1)
        self.base = [bases[kind, node.gpus] for kind, node in zip(self.kind, nodes, strict=True)]
        for kind, node in zip(self.kind, nodes, strict=True):
            self.gpus[kind] += node.gpus

    def can_hold(self, gpus: Mapping[NodeId, int], types: Collection[GpuType]) -> bool:
        """Whether these nodes exist, are of these types, and have so many GPUs, free or not."""
        return all(
            (at := self.position.get(name)) is not None
            and self.types[self.kind[at]] in types
            and self.size_of[self.base[at]] >= count
            for name, count in gpus.items()
        )

    def place(self, gpus: Mapping[NodeId, int]) -> GpusByNode:
        """The place by position of the nodes. Raises KeyError for a node that does not exist."""
        return tuple(sorted((self.position[name], count) for name, count in gpus.items()))


class FreeGpus:
    """Free GPUs by node and by level. Immutable: `without` makes another."""

    __slots__ = ("by_level", "by_node", "levels", "total")

    def __init__(self, levels: Levels, free: Sequence[int]) -> None:
        self.levels = levels
        self.by_node = list(free)
        self.total = sum(free)
        found: list[list[int]] = [[] for _ in levels.free_of]
        for node, gpus in enumerate(free):
            found[levels.base[node] + gpus].append(node)
        self.by_level = [tuple(nodes) for nodes in found]

    def has(self, place: GpusByNode) -> bool:
        by_node = self.by_node
        return all([by_node[node] >= gpus for node, gpus in place])  # noqa: C419 - a list is faster

    def without(self, place: GpusByNode) -> "FreeGpus":
        """The free GPUs once a place is taken, for which there must be room."""
        rest = object.__new__(FreeGpus)
        rest.levels, rest.total = self.levels, self.total
        rest.by_node, rest.by_level = self.by_node.copy(), self.by_level.copy()
        for node, gpus in place:
            level = self.levels.base[node] + rest.by_node[node]
            assert self.levels.free_of[level] >= gpus, "GPUs are given once"
            rest.by_level[level] = tuple([one for one in rest.by_level[level] if one != node])
            rest.by_level[level - gpus] = (*rest.by_level[level - gpus], node)
            rest.by_node[node] -= gpus
            rest.total -= gpus
        return rest


class Occupants:
    """The jobs by which nodes are occupied, as turns go by."""

    def __init__(self, nodes: int, queue: Sequence[HadarJob] = ()) -> None:
        self._turns: list[list[int]] = [[] for _ in range(nodes)]
        for turn in range(len(queue) - 1, -1, -1):
            for node, _ in queue[turn].present:
                self._turns[node].append(turn)
        self.next_turn = [turns[-1] if turns else NEVER for turns in self._turns]
        """by node: the next turn of a job that occupies it; NEVER: it is not occupied"""
        self._known: dict[tuple[int, ...], tuple[int, ...]] = {}

    def passed(self, job: HadarJob) -> list[int]:
        """Begin the turn of the queue's next job; returns the nodes that are not occupied any more."""
        if job.present:
            self._known.clear()
        for node, _ in job.present:
            self._turns[node].pop()
            self.next_turn[node] = self._turns[node][-1] if self._turns[node] else NEVER
        return [node for node, _ in job.present if self.next_turn[node] == NEVER]

    def in_order(self, nodes: tuple[int, ...]) -> tuple[int, ...]:
        """The nodes of a level in the order in which they are to be taken."""
        known = self._known.get(nodes)
        if known is None:
            turns = self.next_turn
            known = self._known[nodes] = tuple(sorted(nodes, key=lambda node: (-turns[node], node)))
        return known
