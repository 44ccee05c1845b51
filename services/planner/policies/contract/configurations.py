"""The configurations a plan may choose from, as columns; no object per configuration. Pure.

Configuration c is for `jobs[job[c]]` and takes `gpus[k]` GPUs on `nodes[node[k]]`,
k = start[c] … start[c + 1] − 1 (compressed sparse rows). Rows of one job are adjacent. Where `samples` has
entries, those GPUs take `samples[k]` samples of an iteration together. At 8,192 GPUs
there are 12 million rows, so a column is int32 and nothing is copied that need not be. A row that is only
asked about, never chosen, may name a node several times: it stands for as many nodes like it.

Per type and per R_k (Hops section 3.6):

- aggregated: one on every node with at least R_k idle GPUs. The paper prints `R_k < S_t`; a job that
  takes a node's last GPU must be allowed, so it is ≤.
- distributed, low-sensitivity jobs: over nodes of the type that follow one another in node order (those
  without an idle GPU are stepped over), each filled before the next; the smallest number of nodes, at
  least two, on which R_k fits anywhere; all runs of that length. A run whose first nodes suffice is no
  distributed configuration and is dropped.
- distributed, sensitive jobs: the same, only for an R_k larger than the largest node of the type. The
  paper prints "less than", which would spread just the jobs that fit one node.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import count

import msgspec
import numpy as np
import numpy.typing as npt

from schemas.ids import GpuType, JobId, NodeId
from schemas.placement import Configuration
from services.planner.policies.contract.view import ViewJob, ViewNode
from shared.domain.arrays import Ints

NO_INTS = np.empty(0, dtype=np.int32)


class Pieces(msgspec.Struct, frozen=True):
    """Runs of rows: one job's for one GPU count on one type. Those of equal shape have equal cells."""

    start: Ints
    """first row of each piece, and the end of the last"""
    shape: Ints
    """by piece"""


class Configurations(msgspec.Struct, frozen=True, kw_only=True):
    """See the module for what the columns mean. All are int32."""

    jobs: tuple[JobId, ...]
    nodes: tuple[NodeId, ...]
    job: Ints
    start: Ints
    node: Ints
    gpus: Ints
    samples: Ints = NO_INTS
    """of an iteration, by cell; 0 in all cells of a row: a batch on every GPU. Empty: so in every row"""
    pieces: Pieces | None = None
    """None: nothing is known of rows that repeat one another"""

    def __len__(self) -> int:
        return len(self.job)

    def at(self, row: int) -> Configuration:
        return {self.nodes[node]: gpus for node, gpus in self.cells(row).items()}

    def cells(self, row: int) -> dict[int, int]:
        """GPUs by position of the node."""
        part = slice(self.start[row], self.start[row + 1])
        found: dict[int, int] = {}
        for node, gpus in zip(self.node[part].tolist(), self.gpus[part].tolist(), strict=True):
            found[node] = found.get(node, 0) + gpus
        return found


class _Block(msgspec.Struct, frozen=True):
    """Some configurations of one GPU count: cells one after another, and the cells of each."""

    node: Ints
    gpus: Ints
    cells: Ints


class _Offer(msgspec.Struct, frozen=True):
    number: int
    """of the block in this plan"""
    block: _Block


class _Menu(msgspec.Struct, frozen=True):
    """Blocks that one job may choose from, one after another."""

    number: Ints
    """of each block in this plan"""
    rows: Ints
    """of each block"""
    columns: _Block


class _Pool(msgspec.Struct, frozen=True):
    """The nodes of one type."""

    position: bytes
    """in the list of all nodes, int32"""
    idle: bytes
    """GPUs, int32"""
    most: int
    """idle GPUs of one node"""
    total: int
    """idle GPUs of all"""
    largest: int
    """GPUs of the largest node, idle or not"""


NO_POOL = _Pool(position=b"", idle=b"", most=0, total=0, largest=0)

_Wish = tuple[GpuType, int, bool]
"""some GPUs of one type: on one node, or spread"""
_Shape = tuple[tuple[GpuType, ...], tuple[int, ...], bool]
"""types, demand, whether it is sensitive: jobs of one shape have the same wishes"""


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

BLOCKS_KEPT = 1_000
"""from plan to plan: a first plan has mostly the idle GPUs of the last one"""


def configurations_for(
    jobs: Sequence[ViewJob],
    nodes: Sequence[ViewNode],
    threshold: float,
    *,
    stay: bool = False,
    rules: PlaceRules = OURS,
) -> Configurations:
    """All configurations of `jobs` on the idle GPUs of `nodes`; `threshold` is σ.

    With `stay`, a job's present configuration is among them even if it is one that nothing above
    generates.
    """
    pools = _pools(nodes)
    counter = count()
    known: dict[_Wish, _Offer | None] = {}
    menus: dict[_Shape, _Menu] = {}
    position = {node.node_id: index for index, node in enumerate(nodes)} if stay else {}
    served: list[tuple[int, _Menu]] = []
    """positions of jobs, and what each of them may choose from"""
    for index, job in enumerate(jobs):
        shape = _shape(job, threshold)
        if shape not in menus:
            menus[shape] = _menu(_offered(shape, pools, rules, known, counter))
        held_now = _present(job, nodes, position) if stay else None
        if held_now is not None and not _offers(menus[shape], held_now):
            served.append((index, _menu([_Offer(next(counter), held_now)])))
        served.append((index, menus[shape]))
    return _joined(jobs, nodes, served)


def placeable(
    jobs: Sequence[ViewJob], nodes: Sequence[ViewNode], threshold: float, rules: PlaceRules = OURS
) -> list[ViewJob]:
    """Those that have a configuration on the idle GPUs, in the order given."""
    pools = _pools(nodes)
    known: dict[_Shape, bool] = {}

    def fits(shape: _Shape) -> bool:
        if shape not in known:
            known[shape] = any(
                spread or rules.room(gpus) <= pools[gpu_type].most
                for gpu_type, gpus, spread in _wishes(shape, pools, rules)
            )
        return known[shape]

    return [job for job in jobs if fits(_shape(job, threshold))]


def explicit(chosen: Sequence[tuple[JobId, Configuration]], nodes: Sequence[ViewNode]) -> Configurations:
    """As `listed`, one place a job."""
    return listed([(job_id, (place,)) for job_id, place in chosen], nodes)


def listed(
    chosen: Sequence[tuple[JobId, Sequence[Configuration]]], nodes: Sequence[ViewNode]
) -> Configurations:
    """Columns of places given one by one, in the order given, on nodes among `nodes`.

    A place may take nodes of several types. A job comes once, with all its places, and may have none.
    """
    places = [place for _, offered in chosen for place in offered]
    used = {node for place in places for node in place}
    names = [node.node_id for node in nodes if node.node_id in used] if used else []
    position = {node_id: index for index, node_id in enumerate(names)}
    cells = [(position[node], gpus) for place in places for node, gpus in place.items()]
    return Configurations(
        jobs=tuple(job_id for job_id, _ in chosen),
        nodes=tuple(position),
        job=_ints(index for index, (_, offered) in enumerate(chosen) for _ in offered),
        start=_starts(_ints(map(len, places))),
        node=_ints(node for node, _ in cells),
        gpus=_ints(gpus for _, gpus in cells),
    )


def held(wanted: Configurations, present: Mapping[JobId, Configuration]) -> Ints:
    """The rows that are the present configuration of their job. Rows come in the order of the jobs."""
    position = {node_id: index for index, node_id in enumerate(wanted.nodes)}
    edges = np.searchsorted(wanted.job, np.arange(len(wanted.jobs) + 1)).tolist()
    rows: list[int] = []
    for index, job_id in enumerate(wanted.jobs):
        place = present.get(job_id, {})
        if place and all(node_id in position for node_id in place):
            cells = {position[node_id]: gpus for node_id, gpus in place.items()}
            rows.extend(_same(wanted, edges[index], edges[index + 1], cells))
    return _ints(rows)


def _same(wanted: Configurations, begin: int, end: int, cells: Mapping[int, int]) -> Iterator[int]:
    """The rows from `begin` to before `end` that take just these GPUs by node."""
    node, gpus = next(iter(cells.items()))
    part = slice(wanted.start[begin], wanted.start[end])
    hits = np.flatnonzero((wanted.node[part] == node) & (wanted.gpus[part] == gpus)) + part.start
    rows = np.searchsorted(wanted.start, hits, side="right") - 1
    return (row for row in rows.tolist() if wanted.cells(row) == cells)


def spread(idle: Ints, gpus: int) -> Iterator[dict[int, int]]:
    """The distributed configurations of `gpus` GPUs over nodes of one type: GPUs by position."""
    block = _distributed(idle, gpus)
    ends = np.cumsum(block.cells).tolist()
    for begin, end in zip([0, *ends], ends, strict=False):
        yield dict(zip(block.node[begin:end].tolist(), block.gpus[begin:end].tolist(), strict=True))


def _pools(nodes: Sequence[ViewNode]) -> dict[GpuType, _Pool]:
    positions: dict[GpuType, list[int]] = {}
    for index, node in enumerate(nodes):
        positions.setdefault(node.gpu_type, []).append(index)
    return {gpu_type: _pool(nodes, found) for gpu_type, found in positions.items()}


def _pool(nodes: Sequence[ViewNode], positions: list[int]) -> _Pool:
    idle = [nodes[index].idle for index in positions]
    return _Pool(
        position=_ints(positions).tobytes(),
        idle=_ints(idle).tobytes(),
        most=max(idle),
        total=sum(idle),
        largest=max([nodes[index].gpus for index in positions]),
    )


def _shape(job: ViewJob, threshold: float) -> _Shape:
    return job.gpu_types, job.demand, job.sensitivity > threshold


def _wishes(shape: _Shape, pools: Mapping[GpuType, _Pool], rules: PlaceRules) -> Iterator[_Wish]:
    """Those that a type has enough idle GPUs for, be they on one node or not."""
    gpu_types, demand, sensitive = shape
    for gpu_type in gpu_types:
        pool = pools.get(gpu_type, NO_POOL)
        for gpus in demand:
            if gpus > pool.total:  # and so are all that follow
                break
            yield gpu_type, gpus, False
            if not sensitive or rules.spreads(demand, gpus, pool.largest):
                yield gpu_type, gpus, True


def _offered(
    shape: _Shape,
    pools: Mapping[GpuType, _Pool],
    rules: PlaceRules,
    known: dict[_Wish, _Offer | None],
    counter: Iterator[int],
) -> list[_Offer]:
    """The blocks of a shape; each wish is looked at once, whatever shapes have it."""
    offered: list[_Offer] = []
    for wish in _wishes(shape, pools, rules):
        if wish not in known:
            block = _found(wish, pools, rules)
            known[wish] = None if block is None else _Offer(next(counter), block)
        offer = known[wish]
        if offer is not None:
            offered.append(offer)
    return offered


def _found(wish: _Wish, pools: Mapping[GpuType, _Pool], rules: PlaceRules) -> _Block | None:
    gpu_type, gpus, spread = wish
    pool, room = pools[gpu_type], 0 if spread else rules.room(gpus)
    if room > pool.most:
        return None
    block = _block(pool.position, pool.idle, gpus, room)
    return block if len(block.cells) else None


@lru_cache(maxsize=BLOCKS_KEPT)
def _block(position: bytes, idle: bytes, gpus: int, room: int) -> _Block:
    """Some GPUs on nodes at these positions with so many idle GPUs each (columns of int32).

    `room`: idle GPUs of the one node that gives them all; 0: they are spread.
    """
    free = np.frombuffer(idle, dtype=np.int32)
    block = _aggregated(free, gpus, room) if room else _distributed(free, gpus)
    return _Block(np.frombuffer(position, dtype=np.int32)[block.node], block.gpus, block.cells)


def _menu(offers: Sequence[_Offer]) -> _Menu:
    blocks = [offer.block for offer in offers]
    return _Menu(
        number=_ints([offer.number for offer in offers]),
        rows=_ints([len(block.cells) for block in blocks]),
        columns=_Block(
            np.concatenate([NO_INTS, *[block.node for block in blocks]]),
            np.concatenate([NO_INTS, *[block.gpus for block in blocks]]),
            np.concatenate([NO_INTS, *[block.cells for block in blocks]]),
        ),
    )


def _present(job: ViewJob, nodes: Sequence[ViewNode], position: Mapping[NodeId, int]) -> _Block | None:
    """A distributed configuration that the job has now and may keep."""
    place = job.present.gang.configuration if job.present is not None else {}
    found = {position[node_id]: gpus for node_id, gpus in place.items() if node_id in position}
    if 1 < len(place) == len(found) and all(gpus <= nodes[index].idle for index, gpus in found.items()):
        order = sorted(found)
        return _Block(_ints(order), _ints(found[index] for index in order), _ints([len(found)]))
    return None


def _offers(menu: _Menu, one: _Block) -> bool:
    """Whether a block of a single configuration is among the rows of a menu; cells in order of position."""
    columns, length = menu.columns, len(one.node)
    first = np.cumsum(columns.cells) - columns.cells
    alike = first[columns.cells == length]
    alike = alike[columns.node[alike] == one.node[0]]
    return any(
        np.array_equal(columns.node[begin : begin + length], one.node)
        and np.array_equal(columns.gpus[begin : begin + length], one.gpus)
        for begin in alike.tolist()
    )


def _ints(values: Iterable[int]) -> Ints:
    return np.array(list(values), dtype=np.int32)


def _aggregated(idle: Ints, gpus: int, room: int) -> _Block:
    fits = np.flatnonzero(idle >= room).astype(np.int32)
    return _Block(fits, np.full_like(fits, gpus), np.ones_like(fits))


def _distributed(idle: Ints, gpus: int) -> _Block:
    used = np.flatnonzero(idle > 0).astype(np.int32)
    free = idle[used]
    sums = np.concatenate(([0], np.cumsum(free)))
    for length in range(2, min(len(used), gpus) + 1):
        reach = sums[length:] - sums[:-length]
        if (reach >= gpus).any():
            return _runs(used, free, reach, gpus, length)
    return _aggregated(idle[:0], gpus, gpus)


def _runs(used: Ints, free: Ints, reach: npt.NDArray[np.int64], gpus: int, length: int) -> _Block:
    """The runs of `length` nodes that hold `gpus` GPUs and need their last node for it."""
    before_last = reach - free[length - 1 :]
    first = np.flatnonzero((reach >= gpus) & (before_last < gpus))
    cells = first[:, None] + np.arange(length)
    taken = free[cells]
    taken[:, -1] = gpus - before_last[first]
    lengths = np.full(len(first), length, dtype=np.int32)
    return _Block(used[cells].ravel(), taken.ravel().astype(np.int32), lengths)


def _joined(
    jobs: Sequence[ViewJob], nodes: Sequence[ViewNode], served: list[tuple[int, _Menu]]
) -> Configurations:
    menus = [menu for _, menu in served]
    rows = [len(menu.columns.cells) for menu in menus]
    return Configurations(
        jobs=tuple([job.job_id for job in jobs]),
        nodes=tuple([node.node_id for node in nodes]),
        job=np.repeat(_ints([index for index, _ in served]), rows),
        start=_starts(np.concatenate([NO_INTS, *[menu.columns.cells for menu in menus]])),
        node=np.concatenate([NO_INTS, *[menu.columns.node for menu in menus]]),
        gpus=np.concatenate([NO_INTS, *[menu.columns.gpus for menu in menus]]),
        pieces=Pieces(
            _starts(np.concatenate([NO_INTS, *[menu.rows for menu in menus]])),
            np.concatenate([NO_INTS, *[menu.number for menu in menus]]),
        ),
    )


def _starts(lengths: Ints) -> Ints:
    starts = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, dtype=np.int32, out=starts[1:])
    return starts
