"""The configurations a plan may choose from, as columns; no object per configuration. Pure.

Configuration c is for `jobs[job[c]]` and takes `gpus[k]` GPUs on `nodes[node[k]]`,
k = start[c] … start[c + 1] − 1 (compressed sparse rows). A *row* is a configuration, a *cell* one of its
nodes with the GPUs there. Rows of one job are adjacent. Where `samples` has entries, the GPUs of cell k
take `samples[k]` samples of an iteration together. At 8,192 GPUs there are 12 million rows, so a column is
int32 and is copied only where it must be. Long columns are indexed by `take`: numpy is twice as quick with it
where the indices are int32.

A row that a policy only asks about, and never chooses, may name a node several times: each further time
stands for one more node like it.

`pools` says which configurations a job has on the idle GPUs of a type.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np

from schemas.ids import GpuType, JobId, NodeId
from schemas.placement import Configuration
from services.planner.policies.contract.pools import (
    NO_INTS,
    OURS,
    IdlePool,
    PlaceBlocks,
    PlaceRules,
    Wishes,
    joined,
    pools_of,
)
from services.planner.policies.contract.view import ViewJob, ViewNode
from services.planner.solver.problem import subset
from shared.domain.arrays import Floats, Ints


class Pieces(msgspec.Struct, frozen=True):
    """The rows cut into pieces: a job's rows for one GPU count on one type.

    Pieces of equal shape have equal cells, whichever job they are for.
    """

    start: Ints
    """first row of each piece, and the end of the last"""
    shape: Ints
    """by piece: a number that stands for its cells"""


class Configurations(msgspec.Struct, frozen=True, kw_only=True):
    """See the module for what the columns mean. All are int32."""

    jobs: tuple[JobId, ...]
    nodes: tuple[NodeId, ...]
    job: Ints
    start: Ints
    node: Ints
    gpus: Ints
    samples: Ints = NO_INTS
    """of an iteration, by cell; 0 in all cells of a row: a batch on every GPU. Empty: this holds for all"""
    pieces: Pieces | None = None
    """None: it is not known which rows have equal cells"""

    def __len__(self) -> int:
        return len(self.job)

    def of_each_job(self, fold: np.ufunc, values: Floats) -> Floats:
        """By job, `fold` over its rows' values; NaN where it has none. Rows come in the order of the jobs."""
        found = np.full(len(self.jobs), np.nan)
        if len(self):
            begins = np.ones(len(self), dtype=np.bool_)
            np.not_equal(self.job[1:], self.job[:-1], out=begins[1:])
            first = begins.nonzero()[0]
            found[self.job[first]] = fold.reduceat(values, first)
        return found

    def at(self, row: int) -> Configuration:
        """The row's GPUs by node id."""
        return {self.nodes[node]: gpus for node, gpus in self.cells(row).items()}

    def cells(self, row: int) -> dict[int, int]:
        """The row's GPUs by position of the node in `nodes`."""
        part = slice(self.start[row], self.start[row + 1])
        found: dict[int, int] = {}
        for node, gpus in zip(self.node[part].tolist(), self.gpus[part].tolist(), strict=True):
            found[node] = found.get(node, 0) + gpus
        return found


def configurations_for(
    jobs: Sequence[ViewJob],
    nodes: Sequence[ViewNode],
    threshold: float,
    *,
    stay: bool = False,
    rules: PlaceRules = OURS,
) -> Configurations:
    """All configurations of `jobs` on the idle GPUs of `nodes`; `threshold` is σ.

    With `stay`, a job's present configuration on several nodes is among them even where the rules of `pools`
    do not generate it.
    """
    pools = pools_of(nodes)
    position = {node.node_id: index for index, node in enumerate(nodes)} if stay else {}
    served, own = list[_Served](), list[PlaceBlocks]()
    for index, job in enumerate(jobs):
        wishes = _wishes(job, threshold, rules)
        held_now = _present(job, nodes, position) if stay else None
        if held_now is not None and not _offers(pools, wishes, held_now, nodes):
            served.append((index, OWN, [len(own)]))
            own.append(held_now)
        offered = [(one, pools[one].numbers(wishes)) for one in wishes.gpu_types if one in pools]
        served += [(index, gpu_type, numbers) for gpu_type, numbers in offered]
    blocks = {gpu_type: pool.blocks() for gpu_type, pool in pools.items()}
    return _joined(jobs, nodes, {**blocks, OWN: joined(own)}, served)


OWN = GpuType("")
"""stands where a pool's type stands, for present configurations: only the job that has one may choose it"""

_Served = tuple[int, GpuType, Sequence[int]]
"""the position of a job, the type of a pool, and the numbers of its blocks that the job may choose from"""


def placeable(
    jobs: Sequence[ViewJob], nodes: Sequence[ViewNode], threshold: float, rules: PlaceRules = OURS
) -> list[ViewJob]:
    """The jobs that have a configuration on the idle GPUs, in the order given."""
    pools = pools_of(nodes)
    return [job for job in jobs if _fits(pools, _wishes(job, threshold, rules))]


def possible_counts(
    job: ViewJob, nodes: Sequence[ViewNode], threshold: float, rules: PlaceRules = OURS
) -> dict[GpuType, list[int]]:
    """The GPU counts of the job's demand that the idle GPUs are enough for, ascending, by type."""
    pools, wishes = pools_of(nodes), _wishes(job, threshold, rules)
    found = {
        gpu_type: list(dict.fromkeys(gpus for gpus, _ in pools[gpu_type].within(wishes)))
        for gpu_type in wishes.gpu_types
        if gpu_type in pools
    }
    return {gpu_type: counts for gpu_type, counts in found.items() if counts}


def _fits(pools: Mapping[GpuType, IdlePool], wishes: Wishes) -> bool:
    """Whether some type has enough idle GPUs for one of the job's counts."""
    for gpu_type in wishes.gpu_types:
        pool = pools.get(gpu_type)
        if pool is not None and next(pool.within(wishes), None) is not None:
            return True
    return False


def _wishes(job: ViewJob, threshold: float, rules: PlaceRules) -> Wishes:
    return Wishes(job.gpu_types, job.demand, job.sensitivity > threshold, rules)


def explicit(chosen: Sequence[tuple[JobId, Configuration]], nodes: Sequence[ViewNode]) -> Configurations:
    """As `listed`, with one place for each job."""
    return listed([(job_id, (place,)) for job_id, place in chosen], nodes)


def listed(
    chosen: Sequence[tuple[JobId, Sequence[Configuration]]], nodes: Sequence[ViewNode]
) -> Configurations:
    """The places given for each job as columns, in the order given; their nodes are among `nodes`.

    A place may take nodes of several types. Each job is listed once, with all its places, or none.
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


NOWHERE = -1
"""the position of no node"""


def held(wanted: Configurations, present: Mapping[JobId, Configuration]) -> Ints:
    """The rows that are the `present` configuration of their job, in ascending order."""
    position = {node_id: index for index, node_id in enumerate(wanted.nodes)}
    places: dict[int, dict[int, int]] = {}
    """by position of the job: its GPUs by position of the node"""
    for index, job_id in enumerate(wanted.jobs):
        place = present.get(job_id)
        if place and place.keys() <= position.keys():
            places[index] = {position[node_id]: gpus for node_id, gpus in place.items()}
    if not places:
        return NO_INTS
    one = np.zeros((3, len(wanted.jobs)), dtype=np.int32)
    """by job: the first node of its present place, its GPUs there, and how many nodes it has; 0: no place"""
    one[:, list(places)] = np.array([(*next(iter(place.items())), len(place)) for place in places.values()]).T
    node, gpus, nodes = (column.take(wanted.job) for column in one)
    widths = wanted.start[1:] - wanted.start[:-1]
    node[widths != nodes] = NOWHERE
    hits = np.flatnonzero((wanted.node == np.repeat(node, widths)) & (wanted.gpus == np.repeat(gpus, widths)))
    rows = np.searchsorted(wanted.start, hits, side="right") - 1
    found = zip(rows.tolist(), wanted.job[rows].tolist(), strict=True)
    return _ints([row for row, job in found if len(places[job]) == 1 or wanted.cells(row) == places[job]])


def _present(job: ViewJob, nodes: Sequence[ViewNode], position: Mapping[NodeId, int]) -> PlaceBlocks | None:
    """The job's present configuration as a block of its own; None unless it is on several nodes and fits."""
    place = job.present.gang.configuration if job.present is not None else {}
    found = {position[node_id]: gpus for node_id, gpus in place.items() if node_id in position}
    if 1 < len(place) == len(found) and all(gpus <= nodes[index].idle for index, gpus in found.items()):
        order = sorted(found)
        return PlaceBlocks(
            _ints([1]), _ints([len(found)]), _ints(order), _ints(found[index] for index in order)
        )
    return None


def _offers(
    pools: Mapping[GpuType, IdlePool], wishes: Wishes, place: PlaceBlocks, nodes: Sequence[ViewNode]
) -> bool:
    """Whether the pools offer the job this distributed configuration anyway."""
    gpu_type = nodes[place.node[0]].gpu_type
    return gpu_type in wishes.gpu_types and pools[gpu_type].offers(wishes, place)


def _ints(values: Iterable[int]) -> Ints:
    return np.fromiter(values, dtype=np.int32)


def _joined(
    jobs: Sequence[ViewJob],
    nodes: Sequence[ViewNode],
    blocks: Mapping[GpuType, PlaceBlocks],
    served: Sequence[_Served],
) -> Configurations:
    """The rows of all jobs. `blocks`: by type, those that the numbers in `served` refer to."""
    places = joined([*blocks.values()])
    before = dict(
        zip(blocks, _starts(_ints(len(one.rows) for one in blocks.values())).tolist(), strict=False)
    )
    shape = _ints(before[gpu_type] + number for _, gpu_type, numbers in served for number in numbers)
    job = np.repeat(_ints(index for index, _, _ in served), [len(numbers) for _, _, numbers in served])
    first = _starts(places.rows)
    pieces, rows = subset(first, shape)
    _, cells = subset(_starts(places.cells)[first], shape)
    return Configurations(
        jobs=tuple([job.job_id for job in jobs]),
        nodes=tuple([node.node_id for node in nodes]),
        job=np.repeat(job, places.rows[shape]),
        start=_starts(places.cells.take(rows)),
        node=places.node.take(cells),
        gpus=places.gpus.take(cells),
        pieces=Pieces(pieces, shape),
    )


def _starts(lengths: Ints) -> Ints:
    starts = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, dtype=np.int32, out=starts[1:])
    return starts
