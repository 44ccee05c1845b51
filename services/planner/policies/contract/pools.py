"""The configurations that jobs may choose from on idle GPUs, type by type. Pure.

Per type and per R_k (Hops section 3.6):

- aggregated: one on every node with at least R_k idle GPUs. The paper prints `R_k < S_t`; a job that
  takes a node's last GPU must be allowed, so it is ≤.
- distributed, low-sensitivity jobs: over nodes of the type that follow one another in node order (those
  without an idle GPU are stepped over), each filled before the next; the smallest number of nodes, at
  least two, on which R_k fits anywhere; all runs of that length. A run whose first nodes suffice is no
  distributed configuration and is dropped.
- distributed, sensitive jobs: the same, only for an R_k larger than the largest node of the type. The
  paper prints "less than", which would spread just the jobs that fit one node.

All of it follows from where the nodes of a type are in the list, how many of their GPUs are idle and how
large the largest is. A pool is found by these three, a supply by its pools, and by nothing else: so what was
laid out is used again in every plan that finds the same GPUs idle. In most first plans that is all but what
profiling has.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from schemas.ids import GpuType
from services.planner.policies.contract.view import ViewNode
from shared.domain.arrays import Ints

NO_INTS = np.empty(0, dtype=np.int32)

POOLS_KEPT = 64
SUPPLIES_KEPT = 16
"""from plan to plan"""
ROWS_KEPT = 100_000
"""of the menus of one supply"""


class PlaceRules(msgspec.Struct, frozen=True):
    """Which configurations there are, where ours are not the paper's."""

    fills: bool = True
    """a job may take a node's last idle GPU: R ≤ S_t; else R < S_t, as printed"""
    wider: bool = True
    """a sensitive job is spread for each R larger than the largest node; else for all, if R_1 is smaller
    than that, as printed"""

    def room(self, gpus: int) -> int:
        """The idle GPUs of a node that may give so many."""
        return gpus if self.fills else gpus + 1

    def spreads(self, demand: tuple[int, ...], gpus: int, largest: int) -> bool:
        """Whether a sensitive job may have so many GPUs on several nodes."""
        return gpus > largest if self.wider else demand[0] < largest


OURS = PlaceRules()


class Wishes(NamedTuple):
    """What a job asks of a pool."""

    gpu_types: tuple[GpuType, ...]
    demand: tuple[int, ...]
    sensitive: bool
    """it is spread only where no node has room for it"""
    rules: PlaceRules


class PlaceBlock(msgspec.Struct, frozen=True):
    """Some configurations of one GPU count: cells one after another, and the cells of each."""

    node: Ints
    gpus: Ints
    cells: Ints


class Menu(msgspec.Struct, frozen=True):
    """Blocks that one job may choose from, one after another."""

    number: Ints
    """of each block in its supply"""
    rows: Ints
    """of each block"""
    columns: PlaceBlock

    @classmethod
    def of(cls, blocks: Sequence[tuple[int, PlaceBlock]]) -> "Menu":
        """Numbers, and the blocks that have them."""
        found = [block for _, block in blocks]
        return cls(
            number=np.array([number for number, _ in blocks], dtype=np.int32),
            rows=np.array([len(block.cells) for block in found], dtype=np.int32),
            columns=PlaceBlock(
                np.concatenate([NO_INTS, *[block.node for block in found]]),
                np.concatenate([NO_INTS, *[block.gpus for block in found]]),
                np.concatenate([NO_INTS, *[block.cells for block in found]]),
            ),
        )


class IdlePool:
    """The nodes of one type: their positions in the list of all, and their idle GPUs."""

    def __init__(self, position: Ints, idle: Ints, largest: int) -> None:
        """`largest`: GPUs of the largest node, idle or not."""
        self._position = position
        self._idle = idle
        self._largest = largest
        self._most = int(idle.max())
        self._total = int(idle.sum())
        self._blocks: dict[tuple[int, int], PlaceBlock] = {}
        """by GPUs and room"""

    def within(self, wishes: Wishes) -> Iterator[tuple[int, int]]:
        """Counts that there are enough idle GPUs for, on one node or spread.

        With the idle GPUs that the one node has that gives them all; 0: they are spread.
        """
        rules = wishes.rules
        for gpus in wishes.demand:
            if gpus > self._total:  # and so are all that follow
                break
            if (room := rules.room(gpus)) <= self._most:
                yield gpus, room
            if not wishes.sensitive or rules.spreads(wishes.demand, gpus, self._largest):
                yield gpus, 0

    def block(self, gpus: int, room: int) -> PlaceBlock:
        known = self._blocks.get((gpus, room))
        if known is None:
            block = _aggregated(self._idle, gpus, room) if room else _distributed(self._idle, gpus)
            known = PlaceBlock(self._position[block.node], block.gpus, block.cells)
            self._blocks[gpus, room] = known
        return known


class Supply:
    """All that is idle. Jobs that ask for the same have the same menu."""

    def __init__(self, pools: Mapping[GpuType, IdlePool]) -> None:
        self._pools = pools
        self._numbers: dict[tuple[GpuType, int, int], int] = {}
        """of blocks, by type, GPUs and room"""
        self._menus: dict[Wishes, Menu] = {}
        self._rows = 0

    @property
    def blocks(self) -> int:
        """Numbers below this are in use."""
        return len(self._numbers)

    def fits(self, wishes: Wishes) -> bool:
        """Whether some type has idle GPUs enough."""
        return any(True for _ in self._offered(wishes))

    def menu(self, wishes: Wishes) -> Menu:
        known = self._menus.get(wishes)
        if known is None:
            found = [(one, self._pools[one[0]].block(*one[1:])) for one in self._offered(wishes)]
            known = Menu.of([(self._number(one), block) for one, block in found if len(block.cells)])
            self._keep(wishes, known)
        return known

    def _keep(self, wishes: Wishes, menu: Menu) -> None:
        self._rows += len(menu.columns.cells)
        if self._rows > ROWS_KEPT:  # most are of jobs that ended
            self._menus.clear()
            self._rows = len(menu.columns.cells)
        self._menus[wishes] = menu

    def _offered(self, wishes: Wishes) -> Iterator[tuple[GpuType, int, int]]:
        for gpu_type in wishes.gpu_types:
            pool = self._pools.get(gpu_type)
            if pool is not None:
                for gpus, room in pool.within(wishes):
                    yield gpu_type, gpus, room

    def _number(self, block: tuple[GpuType, int, int]) -> int:
        return self._numbers.setdefault(block, len(self._numbers))


def supply_of(nodes: Sequence[ViewNode]) -> Supply:
    positions: dict[GpuType, list[int]] = {}
    for index, node in enumerate(nodes):
        positions.setdefault(node.gpu_type, []).append(index)
    return _supply(tuple([(gpu_type, _pool_at(nodes, found)) for gpu_type, found in positions.items()]))


@lru_cache(maxsize=SUPPLIES_KEPT)
def _supply(pools: tuple[tuple[GpuType, IdlePool], ...]) -> Supply:
    return Supply(dict(pools))


def _pool_at(nodes: Sequence[ViewNode], positions: list[int]) -> IdlePool:
    return _pool(
        np.array(positions, dtype=np.int32).tobytes(),
        np.array([nodes[index].idle for index in positions], dtype=np.int32).tobytes(),
        max([nodes[index].gpus for index in positions]),
    )


@lru_cache(maxsize=POOLS_KEPT)
def _pool(position: bytes, idle: bytes, largest: int) -> IdlePool:
    """Columns of int32."""
    return IdlePool(np.frombuffer(position, dtype=np.int32), np.frombuffer(idle, dtype=np.int32), largest)


def _aggregated(idle: Ints, gpus: int, room: int) -> PlaceBlock:
    fits = np.flatnonzero(idle >= room).astype(np.int32)
    return PlaceBlock(fits, np.full_like(fits, gpus), np.ones_like(fits))


def _distributed(idle: Ints, gpus: int) -> PlaceBlock:
    used = np.flatnonzero(idle > 0).astype(np.int32)
    free = idle[used]
    sums = np.concatenate(([0], np.cumsum(free)))
    for length in range(2, min(len(used), gpus) + 1):
        reach = sums[length:] - sums[:-length]
        if (reach >= gpus).any():
            return _runs(used, free, reach, gpus, length)
    return _aggregated(idle[:0], gpus, gpus)


def _runs(used: Ints, free: Ints, reach: npt.NDArray[np.int64], gpus: int, length: int) -> PlaceBlock:
    """The runs of `length` nodes that hold `gpus` GPUs and need their last node for it."""
    before_last = reach - free[length - 1 :]
    first = np.flatnonzero((reach >= gpus) & (before_last < gpus))
    cells = first[:, None] + np.arange(length)
    taken = free[cells]
    taken[:, -1] = gpus - before_last[first]
    lengths = np.full(len(first), length, dtype=np.int32)
    return PlaceBlock(used[cells].ravel(), taken.ravel().astype(np.int32), lengths)
