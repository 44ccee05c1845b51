"""What Sia may give to whom: GPU types and counts, as columns for the estimator and back as a table. Pure.

A type and a count have no place, so their goodput is that of representative nodes: the first of the type
that holds the count, or else its first ones, each filled.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np

from schemas.ids import GpuType, JobId, NodeId
from schemas.plans import Configuration
from services.planner.configurations import Configurations, Ints, explicit
from services.planner.problem import NOTHING, Floats, subset
from services.planner.programs.sia_utilities import in_reach, power_sizes
from services.planner.view import ViewJob, ViewNode

Option = tuple[GpuType, int]
"""a GPU type and a GPU count"""


class Stock(msgspec.Struct, frozen=True, kw_only=True):
    """What there is of a type, idle or not."""

    gpus: int
    regular: frozenset[int]
    """the authors' counts: powers of two within a node, whole nodes"""


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """Where the columns of `wanted` stand: jobs × types × sizes."""

    types: tuple[GpuType, ...]
    sizes: Ints
    row: Ints
    """[J, T, K]: the row in `wanted`, or NOTHING"""

    def spread(self, column: Floats) -> Floats:
        """A column as a table; NaN where there is no row."""
        return np.where(self.row == NOTHING, np.nan, column[self.row])

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
    return [_option_of(job.present.configuration if job.present else {}, known) for job in jobs]


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


def options_of(
    sizes: Mapping[GpuType, set[int]], largest: int, factor: float, now: Option | None
) -> list[Option]:
    """What a job may be given: what is in reach of the `largest` count it has run with, and what it has."""
    reach = in_reach(sorted(set().union(*sizes.values())), largest, factor)
    found = {(gpu_type, gpus) for gpu_type, own in sizes.items() for gpus in own.intersection(reach)}
    return sorted(found if now is None else found | {now})


def columns(
    jobs: Sequence[JobId], options: Sequence[Sequence[Option]], nodes: Sequence[ViewNode]
) -> Configurations:
    """The options of each job, on representative nodes."""
    pools = by_type(nodes)
    known = {option: index for index, option in enumerate(sorted(set().union(*options)))}
    places = explicit([(JobId(""), _representative(pools[kind], gpus)) for kind, gpus in known], nodes)
    place = np.array([known[option] for own in options for option in own], dtype=np.int32)
    start, cells = subset(places.start, place)
    counted = np.array([len(own) for own in options], dtype=np.int64)
    return Configurations(
        jobs=tuple(jobs),
        nodes=places.nodes,
        job=np.repeat(np.arange(len(jobs), dtype=np.int32), counted),
        start=start,
        node=places.node[cells],
        gpus=places.gpus[cells],
    )


def table_of(wanted: Configurations, nodes: Sequence[ViewNode]) -> Table:
    """Of `columns` with at least one row."""
    types = tuple(by_type(nodes))
    kinds = np.array([types.index(node.gpu_type) for node in nodes], dtype=np.int32)
    gpus = np.add.reduceat(wanted.gpus, wanted.start[:-1])
    sizes, size = np.unique(gpus, return_inverse=True)
    row = np.full((len(wanted.jobs), len(types), len(sizes)), NOTHING, dtype=np.int32)
    row[wanted.job, kinds[wanted.node[wanted.start[:-1]]], size] = np.arange(len(wanted))
    return Table(types=types, sizes=sizes.astype(np.int32), row=row)


def _option_of(place: Configuration, nodes: Mapping[NodeId, ViewNode]) -> Option | None:
    fits = all(node_id in nodes and gpus <= nodes[node_id].gpus for node_id, gpus in place.items())
    types = {nodes[node_id].gpu_type for node_id in place} if fits else set()
    return (types.pop(), sum(place.values())) if len(types) == 1 else None


def _representative(nodes: Sequence[ViewNode], gpus: int) -> Configuration:
    one = next((node for node in nodes if node.gpus >= gpus), None)
    if one is not None:
        return {one.node_id: gpus}
    place: Configuration = {}
    for node in nodes:
        if gpus:
            place[node.node_id] = min(node.gpus, gpus)
            gpus -= place[node.node_id]
    return place
