"""The configurations that jobs may choose from on idle GPUs, type by type. Pure.

Per type and per R_k (Hops section 3.6):

- *aggregated*: one configuration on every node with at least R_k idle GPUs. The paper prints `R_k < S_t`;
  here it is ≤, so that a job may take a node's last GPU.
- *distributed*, for jobs of low sensitivity: the nodes follow one another in node order (nodes without an
  idle GPU are skipped), and each is filled before the next. Their number is the smallest, at least two, with
  which R_k fits anywhere. Every such run of nodes is a configuration, unless R_k fits without its last node.
- *distributed*, for sensitive jobs: the same, only for an R_k larger than the largest node of the type. The
  paper prints "less than", which would spread exactly the jobs that fit one node.

The configurations depend on three things alone: where the nodes with idle GPUs of a type are in the list, how
many GPUs are idle on each, and how large the largest node of the type is. A pool is cached by these three, so
a plan that finds the same GPUs idle uses the pool of an earlier plan. In most first plans all GPUs but those
of profiling are idle. In a fragment plan most types have no idle GPU, and so no pool.

A *block* is the configurations of one GPU count. It is computed once, however many jobs may choose from it; a
job is given the numbers of its blocks.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

import msgspec
import numpy as np

from schemas.ids import GpuType
from services.planner.policies.contract.view import ViewNode
from shared.domain.arrays import Ints

NO_INTS = np.empty(0, dtype=np.int32)

POOLS_KEPT = 64
"""pools cached from plan to plan"""
WISHES_KEPT = 1_000
"""different wishes whose blocks a pool remembers"""


class PlaceRules(msgspec.Struct, frozen=True):
    """The two rules for configurations in which we depart from the paper; false: as the paper prints it."""

    fills: bool = True
    """a job may take a node's last idle GPU: R ≤ S_t; as printed: R < S_t"""
    wider: bool = True
    """a sensitive job is spread for each R larger than the largest node; as printed: for every R, if R_1 is
    smaller than the largest node"""

    def room(self, gpus: int) -> int:
        """How many GPUs must be idle on a node that gives a job `gpus` of them."""
        return gpus if self.fills else gpus + 1

    def spreads(self, demand: tuple[int, ...], gpus: int, largest: int) -> bool:
        """Whether a sensitive job may have `gpus` on several nodes. `largest`: GPUs of the largest node."""
        return gpus > largest if self.wider else demand[0] < largest


OURS = PlaceRules()


class Wishes(NamedTuple):
    """The properties of a job that decide which configurations it may choose from."""

    gpu_types: tuple[GpuType, ...]
    demand: tuple[int, ...]
    sensitive: bool
    """its placement sensitivity is above the threshold: it is spread only where no node has room for it"""
    rules: PlaceRules


TypelessWishes = tuple[tuple[int, ...], bool, PlaceRules]
"""`Wishes` without the types"""


class PlaceBlocks(msgspec.Struct, frozen=True):
    """Configurations without their jobs, in blocks. A block is all of one GPU count on one type."""

    rows: Ints
    """number of configurations of each block"""
    cells: Ints
    """number of nodes of each configuration"""
    node: Ints
    """by cell: position in the list of all nodes"""
    gpus: Ints
    """GPUs, by cell"""


def joined(some: Sequence[PlaceBlocks]) -> PlaceBlocks:
    """The blocks of all of these, one after another."""
    return PlaceBlocks(
        *[chained([getattr(one, name) for one in some]) for name in PlaceBlocks.__struct_fields__]
    )


class Spare(msgspec.Struct, frozen=True):
    """The nodes of a pool that have idle GPUs."""

    node: Ints
    """position in the list of all nodes"""
    idle: Ints
    """idle GPUs of each"""
    before: Ints
    """idle GPUs of all nodes before each, and at the end of all nodes together"""


class IdlePool:
    """The configurations on the idle GPUs of one type's nodes, computed as jobs ask for them."""

    def __init__(self, spare: Sequence[tuple[int, int]], largest: int) -> None:
        """`spare`: position in the list of all nodes, and idle GPUs, of each node that has any.

        `largest`: GPUs of the largest node of the type, busy ones included.
        """
        idle = [gpus for _, gpus in spare]
        self._spare = Spare(
            node=np.array([node for node, _ in spare], dtype=np.int32),
            idle=np.array(idle, dtype=np.int32),
            before=np.array([0, *accumulate(idle)], dtype=np.int32),
        )
        self._largest = largest
        self._most = max(idle)
        self._total = sum(idle)
        self._blocks: list[PlaceBlocks] = []
        """each of one block, with at least one configuration"""
        self._number: dict[tuple[int, int], int | None] = {}
        """positions in `_blocks`, by GPUs and room (see `within`); None: there is no such configuration"""
        self._numbers: dict[TypelessWishes, list[int]] = {}
        self._laid = joined([])
        """`_blocks` joined, or the first of them where some were added since"""

    def blocks(self) -> PlaceBlocks:
        """The blocks that were asked for so far, in the order of their numbers."""
        if len(self._laid.rows) < len(self._blocks):
            self._laid = joined(self._blocks)
        return self._laid

    def numbers(self, wishes: Wishes) -> list[int]:
        """The numbers of the blocks that a job may choose from."""
        asked = wishes.demand, wishes.sensitive, wishes.rules
        known = self._numbers.get(asked)
        if known is None:
            if len(self._numbers) == WISHES_KEPT:  # most are of jobs that ended
                self._numbers.clear()
            found = map(self._block, self.within(wishes))
            known = self._numbers[asked] = [number for number in found if number is not None]
        return known

    def offers(self, wishes: Wishes, place: PlaceBlocks) -> bool:
        """Whether a job may choose this place on several nodes, given in the order of their positions."""
        spread = int(place.gpus.sum()), 0
        number = self._block(spread) if spread in self.within(wishes) else None
        if number is None:
            return False
        block, width = self._blocks[number], len(place.node)
        if block.cells[0] != width:  # all have as many
            return False
        alike = (block.node.reshape(-1, width) == place.node) & (block.gpus.reshape(-1, width) == place.gpus)
        return bool(alike.all(axis=1).any())

    def within(self, wishes: Wishes) -> Iterator[tuple[int, int]]:
        """Pairs (GPUs, room): the counts of the demand that the idle GPUs are enough for.

        Room is how many GPUs must be idle on the one node that gives them all; 0: on several nodes.
        """
        rules = wishes.rules
        for gpus in wishes.demand:
            if gpus > self._total:  # and so are all that follow
                break
            if (room := rules.room(gpus)) <= self._most:
                yield gpus, room
            if not wishes.sensitive or rules.spreads(wishes.demand, gpus, self._largest):
                yield gpus, 0

    def _block(self, wanted: tuple[int, int]) -> int | None:
        """The number of a block, given by GPUs and room."""
        if wanted not in self._number:
            gpus, room = wanted
            block = _aggregated(self._spare, gpus, room) if room else _distributed(self._spare, gpus)
            self._number[wanted] = len(self._blocks) if len(block.cells) else None
            if len(block.cells):
                self._blocks.append(block)
        return self._number[wanted]


def pools_of(nodes: Sequence[ViewNode]) -> dict[GpuType, IdlePool]:
    """The pool of each type that has idle GPUs."""
    largest: dict[GpuType, int] = {}
    spare: dict[GpuType, list[tuple[int, int]]] = {}
    for position, node in enumerate(nodes):
        if node.gpus > largest.get(node.gpu_type, 0):
            largest[node.gpu_type] = node.gpus
        if node.idle:
            spare.setdefault(node.gpu_type, []).append((position, node.idle))
    return {gpu_type: _pool(tuple(found), largest[gpu_type]) for gpu_type, found in spare.items()}


_pool = lru_cache(maxsize=POOLS_KEPT)(IdlePool)


def _aggregated(spare: Spare, gpus: int, room: int) -> PlaceBlocks:
    node = spare.node[spare.idle >= room]
    return _block(np.ones_like(node), node, np.full_like(node, gpus))


def _distributed(spare: Spare, gpus: int) -> PlaceBlocks:
    for length in range(2, min(len(spare.node), gpus) + 1):
        reach = spare.before[length:] - spare.before[:-length]
        if (reach >= gpus).any():
            return _runs(spare, reach, gpus, length)
    return _block(NO_INTS, NO_INTS, NO_INTS)


def _runs(spare: Spare, reach: Ints, gpus: int, length: int) -> PlaceBlocks:
    """The runs of `length` nodes that hold `gpus` GPUs and need their last node for it."""
    before_last = reach - spare.idle[length - 1 :]
    first = np.flatnonzero((reach >= gpus) & (before_last < gpus))
    cells = first[:, None] + np.arange(length)
    taken = spare.idle[cells]
    taken[:, -1] = gpus - before_last[first]
    lengths = np.full(len(first), length, dtype=np.int32)
    return _block(lengths, spare.node[cells].ravel(), taken.ravel())


def _block(cells: Ints, node: Ints, gpus: Ints) -> PlaceBlocks:
    return PlaceBlocks(np.array([len(cells)], dtype=np.int32), cells, node, gpus)


def chained(columns: Sequence[Ints]) -> Ints:
    return np.concatenate([NO_INTS, *columns])
