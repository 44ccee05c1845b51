"""What Sia may give to whom: GPU types and counts, as columns for the estimator and back as a table. Pure.

A type and a count have no place, so their goodput is that of representative nodes: the first of the type
that holds the count, or else its first ones, each filled.

A type of which nothing is known has the curve of another (see `projected`). So every type is asked about at
all counts that a job may get on any: also at counts that the type does not give, or has not the GPUs for.
Such rows stand for nodes like the type's own, and cannot be chosen.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import cycle

import msgspec
import numpy as np

from schemas.ids import GpuType, JobId, NodeId
from schemas.placement import Configuration
from services.planner.policies.contract.configurations import Configurations
from services.planner.policies.contract.view import ViewJob, ViewNode
from services.planner.policies.sia.utilities import in_reach, power_sizes
from services.planner.solver.problem import NOTHING, subset
from shared.domain.arrays import Floats, Ints

Option = tuple[GpuType, int]
"""a GPU type and a GPU count"""
Offer = tuple[Option, ...]
"""what a job may be given: many jobs have the same"""


class Stock(msgspec.Struct, frozen=True, kw_only=True):
    """What there is of a type, idle or not."""

    gpus: int
    regular: frozenset[int]
    """the authors' counts: powers of two within a node, whole nodes"""


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """Where the rows of `wanted` stand: jobs × types × sizes."""

    types: tuple[GpuType, ...]
    sizes: Ints
    row: Ints
    """[J, T, K]: the row in `wanted` of what a job may be given, or NOTHING"""
    asked: Ints
    """[J, T, K]: likewise, of all that is asked about"""

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
        """By job: the cell of an option that has a row, or NOTHING."""
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


def columns(jobs: Sequence[JobId], options: Sequence[Offer], nodes: Sequence[ViewNode]) -> Configurations:
    """What is asked about each job that has these options, on representative nodes."""
    position = {node.node_id: index for index, node in enumerate(nodes)}
    pools = by_type(nodes)
    distinct = {own: _asked(own) for own in set(options)}
    known = {option: index for index, option in enumerate(sorted(set().union(*distinct.values())))}
    places = [list(_representative(pools[kind], gpus)) for kind, gpus in known]
    place_of = {own: _ints(known[option] for option in asked) for own, asked in distinct.items()}
    asked = [place_of[own] for own in options]
    begin = np.cumsum([0, *(len(cells) for cells in places)], dtype=np.int32)
    start, cells = subset(begin, np.concatenate([_ints(()), *asked]))
    return Configurations(
        jobs=tuple(jobs),
        nodes=tuple(position),
        job=np.repeat(np.arange(len(jobs), dtype=np.int32), [len(own) for own in asked]),
        start=start,
        node=_ints(position[node_id] for own in places for node_id, _ in own)[cells],
        gpus=_ints(gpus for own in places for _, gpus in own)[cells],
    )


def table_of(wanted: Configurations, options: Sequence[Offer], nodes: Sequence[ViewNode]) -> Table:
    """Of `columns` with at least one row."""
    types = tuple(by_type(nodes))
    kinds = np.array([types.index(node.gpu_type) for node in nodes], dtype=np.int32)
    gpus = np.add.reduceat(wanted.gpus, wanted.start[:-1])
    sizes, size = np.unique(gpus, return_inverse=True)
    asked = np.full((len(wanted.jobs), len(types), len(sizes)), NOTHING, dtype=np.int32)
    asked[wanted.job, kinds[wanted.node[wanted.start[:-1]]], size] = np.arange(len(wanted))
    distinct = {own: index for index, own in enumerate(dict.fromkeys(options))}
    given = np.zeros((len(distinct), *asked.shape[1:]), dtype=np.bool_)
    for own, index in distinct.items():
        for kind, count in own:
            given[index, types.index(kind), np.searchsorted(sizes, count)] = True
    row = np.where(given[[distinct[own] for own in options]], asked, NOTHING)
    return Table(types=types, sizes=sizes.astype(np.int32), row=row, asked=asked)


def _asked(options: Offer) -> list[Option]:
    """Every type of the options at every count of them."""
    types, every = {gpu_type for gpu_type, _ in options}, {gpus for _, gpus in options}
    return [(gpu_type, gpus) for gpu_type in sorted(types) for gpus in sorted(every)]


def _option_of(place: Configuration, nodes: Mapping[NodeId, ViewNode]) -> Option | None:
    fits = all(node_id in nodes and gpus <= nodes[node_id].gpus for node_id, gpus in place.items())
    types = {nodes[node_id].gpu_type for node_id in place} if fits else set()
    return (types.pop(), sum(place.values())) if len(types) == 1 else None


def _representative(nodes: Sequence[ViewNode], gpus: int) -> Iterator[tuple[NodeId, int]]:
    """GPUs by node, each filled before the next; where there are too few nodes, by as many like them."""
    one = next((node for node in nodes if node.gpus >= gpus), None)
    if one is not None:
        yield one.node_id, gpus
        return
    for node in cycle(nodes):
        if not gpus:
            break
        taken = min(node.gpus, gpus)
        yield node.node_id, taken
        gpus -= taken


def _ints(values: Iterable[int]) -> Ints:
    return np.array(list(values), dtype=np.int32)
