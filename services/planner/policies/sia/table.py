"""The GPU types and counts that Sia may give to jobs: as columns for the estimator, and as a table. Pure.

A type and a count say nothing of nodes. So their goodput is the mean over the places where they may be: each
node of the type that has so many GPUs; if none has, each run of its nodes, filled one after the other. Jobs
of one workload train at one speed, so the estimator is asked only about the first of them.

A type of which nothing is known gets the curve of another (see `projected`). So the estimator is asked about
each type at all counts that the job may get on any type, even at counts for which the type has too few GPUs.
Such a row stands for further nodes like the type's own, and cannot be chosen.
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
"""the options that a job may be given"""


PLACES_AT_MOST = 16
"""most places that are asked about for a type and a count; if there are more, a sample spread evenly over
the nodes"""


class Stock(msgspec.Struct, frozen=True, kw_only=True):
    """The GPUs of a type, idle or not."""

    gpus: int
    regular: frozenset[int]
    """the authors' counts: powers of two within a node, whole nodes"""


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """Where the answers of the estimator are: by job, type and size.

    An *answer* is the mean of all rows about one workload, type and size.
    """

    types: tuple[GpuType, ...]
    sizes: Ints
    row: Ints
    """[J, T, K]: the number of the answer about an option that the job may be given; else NOTHING"""
    asked: Ints
    """[J, T, K]: the same for every option that was asked about"""
    answer: Ints
    """by row of `wanted`: the number of the answer that it belongs to"""

    def spread(self, column: Floats) -> Floats:
        """Values by answer as a table [J, T, K]; NaN where nothing was asked."""
        return np.where(self.asked == NOTHING, np.nan, column[self.asked])

    def at(self, job: int, cell: int) -> tuple[int, int, int]:
        """The indices (job, type, size) of a cell of a job's flattened table."""
        return job, *divmod(cell, len(self.sizes))

    def option(self, cell: int) -> Option:
        """The type and the count of a cell."""
        kind, size = divmod(cell, len(self.sizes))
        return self.types[kind], int(self.sizes[size])

    def cells(self, options: Sequence[Option | None]) -> Ints:
        """By job: the cell of an option, or NOTHING."""
        number = {self.option(cell): cell for cell in range(self.row[0].size)}
        return np.array([NOTHING if one is None else number[one] for one in options], dtype=np.int32)


def by_type(nodes: Iterable[ViewNode]) -> dict[GpuType, list[ViewNode]]:
    """The nodes of each type, in the order given; types in alphabetical order."""
    found: dict[GpuType, list[ViewNode]] = {}
    for node in nodes:
        found.setdefault(node.gpu_type, []).append(node)
    return dict(sorted(found.items()))


def node_gpus(nodes: Iterable[ViewNode]) -> int:
    """GPUs of the largest node, idle or not."""
    return max(node.gpus for node in nodes)


def present_options(jobs: Iterable[ViewJob], nodes: Iterable[ViewNode]) -> list[Option | None]:
    """The type and the count that each job has now.

    None for a job without GPUs, on several types, or on a node that is not in `nodes` any more.
    """
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
    """The GPU counts of a job's demand that each type has enough GPUs for.

    With `powers` only those among the authors' counts; all of them if none is.
    """
    own = [gpu_type for gpu_type in job.gpu_types if gpu_type in stock]
    every = {name: {gpus for gpus in job.demand if gpus <= stock[name].gpus} for name in own}
    regular = {name: every[name] & stock[name].regular for name in own}
    return regular if powers and any(regular.values()) else every


def options_of(sizes: Mapping[GpuType, set[int]], largest: int, factor: float, now: Option | None) -> Offer:
    """The options of a job: those in reach of the `largest` count it has run with, and `now`, what it has."""
    reach = in_reach(sorted(set().union(*sizes.values())), largest, factor)
    found = {(gpu_type, gpus) for gpu_type, own in sizes.items() for gpus in own.intersection(reach)}
    return tuple(sorted(found if now is None else found | {now}))


def columns(jobs: Sequence[ViewJob], options: Sequence[Offer], nodes: Sequence[ViewNode]) -> Configurations:
    """The rows to ask about, for jobs with these options: of each workload, as rows of its first job."""
    position = {node.node_id: index for index, node in enumerate(nodes)}
    asked: dict[int, set[Option]] = {}
    for first, own in zip(_first_alike(jobs), options, strict=True):
        asked.setdefault(first, set()).update(_asked(own))
    pools, places = by_type(nodes), dict[Option, list[list[tuple[NodeId, int]]]]()
    for kind, gpus in set().union(*asked.values()):
        places[kind, gpus] = list(_all_places(pools[kind], gpus))
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
    """The table that belongs to `wanted`, which `columns` made and which has at least one row."""
    types = tuple(by_type(nodes))
    kinds = np.array([types.index(node.gpu_type) for node in nodes], dtype=np.int32)
    gpus = np.add.reduceat(wanted.gpus, wanted.start[:-1])
    sizes, size = np.unique(gpus, return_inverse=True)
    shape = (len(jobs), len(types), len(sizes))
    cell = np.ravel_multi_index((wanted.job, kinds[wanted.node[wanted.start[:-1]]], size), shape)
    known, answer = np.unique(cell, return_inverse=True)
    answers = np.full(shape, NOTHING, dtype=np.int32)
    answers.reshape(-1)[known] = np.arange(len(known))
    every = answers[_first_alike(jobs)]
    table = Table(
        types=types, sizes=sizes.astype(np.int32), row=every, asked=every, answer=answer.astype(np.int32)
    )
    row = np.where(_among_options(options, table), every, NOTHING)
    asked = np.where(_among_options([tuple(_asked(own)) for own in options], table), every, NOTHING)
    return msgspec.structs.replace(table, row=row, asked=asked)


def answered(table: Table, estimates: Estimated) -> Estimated:
    """By answer: the mean over its rows with an estimate, and the layer of the first of these."""
    rows = np.flatnonzero(~np.isnan(estimates.throughput))
    answer, number = table.answer[rows], int(table.answer.max()) + 1
    first = np.full(number, NOTHING, dtype=np.int32)
    first[answer[::-1]] = rows[::-1]
    one = np.where(first == NOTHING, np.nan, estimates.throughput[first])
    beyond = np.bincount(answer, estimates.throughput[rows] - one[answer], minlength=number)
    count = np.bincount(answer, minlength=number)
    mean = one + beyond / np.maximum(count, 1)  # of equal values the mean is that value, to the last digit
    return Estimated(throughput=mean, layer=estimates.layer[first])


def _first_alike(jobs: Sequence[ViewJob]) -> list[int]:
    """By job: the position of the first job of its workload; its own, if it has no workload."""
    names = [job.workload or job.job_id for job in jobs]
    first: dict[str, int] = {}
    return [first.setdefault(name, index) for index, name in enumerate(names)]


def _among_options(options: Sequence[Offer], table: Table) -> Flags:
    """[J, T, K]: which cells are among the job's options."""
    distinct = {own: index for index, own in enumerate(dict.fromkeys(options))}
    given = np.zeros((len(distinct), *table.row.shape[1:]), dtype=np.bool_)
    for own, index in distinct.items():
        for kind, count in own:
            given[index, table.types.index(kind), np.searchsorted(table.sizes, count)] = True
    marked: Flags = given[[distinct[own] for own in options]]
    return marked


def _asked(options: Offer) -> list[Option]:
    """Each type of the options with each count of the options."""
    types, every = {gpu_type for gpu_type, _ in options}, {gpus for _, gpus in options}
    return [(gpu_type, gpus) for gpu_type in sorted(types) for gpus in sorted(every)]


def _option_of(place: Configuration, nodes: Mapping[NodeId, ViewNode]) -> Option | None:
    fits = all(node_id in nodes and gpus <= nodes[node_id].gpus for node_id, gpus in place.items())
    types = {nodes[node_id].gpu_type for node_id in place} if fits else set()
    return (types.pop(), sum(place.values())) if len(types) == 1 else None


def _all_places(nodes: Sequence[ViewNode], gpus: int) -> Iterator[list[tuple[NodeId, int]]]:
    """Places of `gpus` GPUs: each node that has so many; if none has, each run of nodes, filled in order.

    Runs go round from the last node to the first. If the nodes are too few, a run names them again: each
    further time stands for another node like it.
    """
    holding = [node for node in nodes if node.gpus >= gpus]
    if holding:
        yield from ([(holding[index].node_id, gpus)] for index in _evenly(len(holding)))
        return
    for begin in _evenly(len(nodes)):
        yield list(_filled(islice(cycle(nodes), begin, None), gpus))


def _evenly(count: int) -> list[int]:
    """Positions from 0 to `count` − 1: all of them, or `PLACES_AT_MOST`."""
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
