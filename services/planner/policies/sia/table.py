"""The GPU types and counts that Sia may give to jobs: as columns for the estimator, and as a table. Pure.

A type and a count have no place, so their goodput is the mean over where they may be: on every node of the
type that holds the count, or else over every run of its nodes, each filled. Jobs of one workload train at
one speed, so the first of them is asked about for all.

A type of which nothing is known has the curve of another (see `projected`). So every type is asked about at
all counts that a job may get on any: also at counts that the type does not give, or has not the GPUs for.
Such rows stand for nodes like the type's own, and cannot be chosen.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import cycle, islice

import msgspec
import numpy as np

from schemas.ids import GpuType, NodeId
from schemas.placement import Configuration
from services.planner.policies.contract.configurations import Configurations
from services.planner.policies.contract.estimates import Estimated
from services.planner.policies.contract.view import ViewJob, ViewNode
from services.planner.policies.sia.utilities import in_reach, power_sizes
from services.planner.solver.problem import NOTHING
from shared.domain.arrays import Flags, Floats, Ints

Option = tuple[GpuType, int]
"""a GPU type and a GPU count"""
Offer = tuple[Option, ...]
"""what a job may be given: many jobs have the same"""


PLACES_AT_MOST = 16
"""of a type and a count; of more, as many, spread evenly over the type's nodes"""


class Stock(msgspec.Struct, frozen=True, kw_only=True):
    """What there is of a type, idle or not."""

    gpus: int
    regular: frozenset[int]
    """the authors' counts: powers of two within a node, whole nodes"""


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of what: jobs × types × sizes, each cell the position of its answer."""

    types: tuple[GpuType, ...]
    sizes: Ints
    row: Ints
    """[J, T, K]: the answer about what a job may be given, or NOTHING"""
    asked: Ints
    """[J, T, K]: likewise, about all that is asked"""
    answer: Ints
    """by row of `wanted`: the answer that it belongs to"""

    def spread(self, column: Floats) -> Floats:
        """A column as a table, of all that is asked about; NaN where there is no row."""
        return np.where(self.asked == NOTHING, np.nan, column[self.asked])

    def at(self, job: int, cell: int) -> tuple[int, int, int]:
        """Where a cell of a job's flattened table stands."""
        return job, *divmod(cell, len(self.sizes))

    def option(self, cell: int) -> Option:
        kind, size = divmod(cell, len(self.sizes))
        return self.types[kind], int(self.sizes[size])

    def cells(self, options: Sequence[Option | None]) -> Ints:
        """By job: the cell of an option, or NOTHING."""
        number = {self.option(cell): cell for cell in range(self.row[0].size)}
        return np.array([NOTHING if one is None else number[one] for one in options], dtype=np.int32)


def by_type(nodes: Iterable[ViewNode]) -> dict[GpuType, list[ViewNode]]:
    """Types in alphabetical order, nodes in theirs."""
    found: dict[GpuType, list[ViewNode]] = {}
    for node in nodes:
        found.setdefault(node.gpu_type, []).append(node)
    return dict(sorted(found.items()))


def node_gpus(nodes: Iterable[ViewNode]) -> int:
    """GPUs of the largest node, idle or not."""
    return max(node.gpus for node in nodes)


def present_options(jobs: Iterable[ViewJob], nodes: Iterable[ViewNode]) -> list[Option | None]:
    """The type and the count each job has now; None without any, or where that is no place any more."""
    known = {node.node_id: node for node in nodes}
    return [_option_of(job.present.gang.configuration if job.present else {}, known) for job in jobs]


def stocks(nodes: Iterable[ViewNode]) -> dict[GpuType, Stock]:
    return {
        gpu_type: Stock(
            gpus=sum(node.gpus for node in own),
            regular=frozenset(power_sizes(node_gpus(own), len(own))),
        )
        for gpu_type, own in by_type(nodes).items()
    }


def counts(job: ViewJob, stock: Mapping[GpuType, Stock], *, powers: bool) -> dict[GpuType, set[int]]:
    """The GPU counts a job may get of each type, as far as the type has so many.

    With `powers`, the authors' own: those of them that the demand has, or if it has none, all of it.
    """
    own = [gpu_type for gpu_type in job.gpu_types if gpu_type in stock]
    every = {name: {gpus for gpus in job.demand if gpus <= stock[name].gpus} for name in own}
    regular = {name: every[name] & stock[name].regular for name in own}
    return regular if powers and any(regular.values()) else every


def options_of(sizes: Mapping[GpuType, set[int]], largest: int, factor: float, now: Option | None) -> Offer:
    """What a job may be given: what is in reach of the `largest` count it has run with, and what it has."""
    reach = in_reach(sorted(set().union(*sizes.values())), largest, factor)
    found = {(gpu_type, gpus) for gpu_type, own in sizes.items() for gpus in own.intersection(reach)}
    return tuple(sorted(found if now is None else found | {now}))


def columns(jobs: Sequence[ViewJob], options: Sequence[Offer], nodes: Sequence[ViewNode]) -> Configurations:
    """What is asked about jobs that have these options: of each workload, under its first job's name."""
    position = {node.node_id: index for index, node in enumerate(nodes)}
    asked: dict[int, set[Option]] = {}
    for first, own in zip(_firsts(jobs), options, strict=True):
        asked.setdefault(first, set()).update(_asked(own))
    pools, places = by_type(nodes), dict[Option, list[list[tuple[NodeId, int]]]]()
    for kind, gpus in set().union(*asked.values()):
        places[kind, gpus] = list(_anywhere(pools[kind], gpus))
    rows = [
        (first, place) for first in sorted(asked) for own in sorted(asked[first]) for place in places[own]
    ]
    cells = [cell for _, place in rows for cell in place]
    return Configurations(
        jobs=tuple(job.job_id for job in jobs),
        nodes=tuple(position),
        job=_ints(first for first, _ in rows),
        start=np.cumsum([0, *(len(place) for _, place in rows)], dtype=np.int32),
        node=_ints(position[node_id] for node_id, _ in cells),
        gpus=_ints(gpus for _, gpus in cells),
    )


def table_of(
    wanted: Configurations, jobs: Sequence[ViewJob], options: Sequence[Offer], nodes: Sequence[ViewNode]
) -> Table:
    """Of `columns` with at least one row."""
    types = tuple(by_type(nodes))
    kinds = np.array([types.index(node.gpu_type) for node in nodes], dtype=np.int32)
    gpus = np.add.reduceat(wanted.gpus, wanted.start[:-1])
    sizes, size = np.unique(gpus, return_inverse=True)
    shape = (len(jobs), len(types), len(sizes))
    cell = np.ravel_multi_index((wanted.job, kinds[wanted.node[wanted.start[:-1]]], size), shape)
    known, answer = np.unique(cell, return_inverse=True)
    answers = np.full(shape, NOTHING, dtype=np.int32)
    answers.reshape(-1)[known] = np.arange(len(known))
    every = answers[_firsts(jobs)]
    table = Table(
        types=types, sizes=sizes.astype(np.int32), row=every, asked=every, answer=answer.astype(np.int32)
    )
    row = np.where(_marked(options, table), every, NOTHING)
    asked = np.where(_marked([tuple(_asked(own)) for own in options], table), every, NOTHING)
    return msgspec.structs.replace(table, row=row, asked=asked)


def answered(table: Table, estimates: Estimated) -> Estimated:
    """By answer: the mean over the rows about it that are known, and the layer of the first of them."""
    rows = np.flatnonzero(~np.isnan(estimates.throughput))
    answer, number = table.answer[rows], int(table.answer.max()) + 1
    first = np.full(number, NOTHING, dtype=np.int32)
    first[answer[::-1]] = rows[::-1]
    one = np.where(first == NOTHING, np.nan, estimates.throughput[first])
    beyond = np.bincount(answer, estimates.throughput[rows] - one[answer], minlength=number)
    count = np.bincount(answer, minlength=number)
    mean = one + beyond / np.maximum(count, 1)  # of equal values the mean is that value, to the last digit
    return Estimated(throughput=mean, layer=estimates.layer[first])


def _firsts(jobs: Sequence[ViewJob]) -> list[int]:
    """By job: the first of its workload; a job without a workload is like no other."""
    names = [job.workload or job.job_id for job in jobs]
    first: dict[str, int] = {}
    return [first.setdefault(name, index) for index, name in enumerate(names)]


def _marked(options: Sequence[Offer], table: Table) -> Flags:
    """[J, T, K]: which cells are among the job's options."""
    distinct = {own: index for index, own in enumerate(dict.fromkeys(options))}
    given = np.zeros((len(distinct), *table.row.shape[1:]), dtype=np.bool_)
    for own, index in distinct.items():
        for kind, count in own:
            given[index, table.types.index(kind), np.searchsorted(table.sizes, count)] = True
    marked: Flags = given[[distinct[own] for own in options]]
    return marked


def _asked(options: Offer) -> list[Option]:
    """Every type of the options at every count of them."""
    types, every = {gpu_type for gpu_type, _ in options}, {gpus for _, gpus in options}
    return [(gpu_type, gpus) for gpu_type in sorted(types) for gpus in sorted(every)]


def _option_of(place: Configuration, nodes: Mapping[NodeId, ViewNode]) -> Option | None:
    fits = all(node_id in nodes and gpus <= nodes[node_id].gpus for node_id, gpus in place.items())
    types = {nodes[node_id].gpu_type for node_id in place} if fits else set()
    return (types.pop(), sum(place.values())) if len(types) == 1 else None


def _anywhere(nodes: Sequence[ViewNode], gpus: int) -> Iterator[list[tuple[NodeId, int]]]:
    """Every node that holds so many GPUs; where none does, every run of them, in a ring, each filled.

    Where there are too few nodes, a run goes round the ring: it stands for as many nodes like them.
    """
    holding = [node for node in nodes if node.gpus >= gpus]
    if holding:
        yield from ([(holding[index].node_id, gpus)] for index in _evenly(len(holding)))
        return
    for begin in _evenly(len(nodes)):
        yield list(_filled(islice(cycle(nodes), begin, None), gpus))


def _evenly(count: int) -> list[int]:
    """Positions among so many: all, or `PLACES_AT_MOST` of them."""
    most = min(count, PLACES_AT_MOST)
    return [index * count // most for index in range(most)]


def _filled(nodes: Iterable[ViewNode], gpus: int) -> Iterator[tuple[NodeId, int]]:
    for node in nodes:
        taken = min(node.gpus, gpus)
        yield node.node_id, taken
        gpus -= taken
        if not gpus:
            return


def _ints(values: Iterable[int]) -> Ints:
    return np.array(list(values), dtype=np.int32)
