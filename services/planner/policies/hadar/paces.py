"""The pace of gangs by GPU type and number of nodes: what the estimator is asked, and its answers. Pure.

A gang of W GPUs over unlike nodes runs at W · min X, where X is the pace of one GPU in a gang of W over so
many nodes. So the speed of every mixed gang follows from one row for each type and number of nodes: W GPUs on
a node of the type, which is named several times if it stands for several nodes like it. Jobs of one workload,
with equal types and W, share these rows.
"""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import NamedTuple

import msgspec
import numpy as np

from schemas.ids import JobId
from services.planner.policies.contract.configurations import Configurations
from services.planner.policies.contract.estimates import Estimated
from services.planner.policies.contract.view import ViewJob
from services.planner.policies.hadar.jobs import GpusByNode, HadarJob, Paces
from services.planner.policies.hadar.room import Levels
from services.planner.solver.problem import NOTHING
from shared.domain.arrays import Ints

EACH = 16
"""numbers of nodes up to which each is asked about; above it only some are, see `counts`"""


class Asker(msgspec.Struct, frozen=True):
    """A job with its one GPU count, and the place that it may keep."""

    job: ViewJob
    gpus: int
    present: GpusByNode


class Cell(NamedTuple):
    """A GPU type, and over how many nodes a gang is."""

    kind: int
    """position of the type"""
    nodes: int


class Asked(msgspec.Struct, frozen=True):
    """The rows that the estimator is asked about, and which row answers for what."""

    configurations: Configurations
    rows: dict[JobId, dict[Cell, int]]
    """by job and cell: a row of the job itself, or of another job that is alike"""
    present: dict[JobId, int]
    """by job that may keep its place: the row of that place"""

    def paces(self, asker: Asker, estimates: Estimated, kinds: int) -> Paces:
        """The paces of a job by `kinds` types and number of nodes; 0 where there is no estimate."""
        rows = self.rows[asker.job.job_id]
        most = max((cell.nodes for cell in rows), default=0)
        found = [[0.0] * most for _ in range(kinds)]
        for cell, row in rows.items():
            rate = float(estimates.throughput[row])
            found[cell.kind][cell.nodes - 1] = rate / asker.gpus if rate > 0 else 0.0
        return tuple(map(tuple, found))

    def row_of(self, job: HadarJob, place: GpusByNode, levels: Levels) -> int:
        """The row that answers for the slowest type of a place; NOTHING: it was not asked about."""
        kinds = {levels.kind[node] for node, _ in place}
        slowest = min(kinds, key=lambda kind: job.paces[kind][len(place) - 1])
        return self.rows[job.job_id].get(Cell(slowest, len(place)), NOTHING)


def with_present(paces: Paces, asker: Asker, throughput: float, levels: Levels) -> Paces:
    """The paces, with that of the job's present place as it was planned, where it has no estimate now."""
    count = len(asker.present)
    width = max([count, *map(len, paces)])
    rows = [[*row, *(0.0,) * (width - len(row))] for row in paces]
    for kind in {levels.kind[node] for node, _ in asker.present}:
        rows[kind][count - 1] = rows[kind][count - 1] or throughput / asker.gpus
    return tuple(map(tuple, rows))


class _Rows(msgspec.Struct):
    """The columns of `Configurations` while rows are added."""

    job: list[int] = []
    start: list[int] = msgspec.field(default_factory=lambda: [0])
    node: list[int] = []
    gpus: list[int] = []

    def add(self, job: int, place: Iterable[tuple[int, int]]) -> int:
        """Add a row; returns its number."""
        for node, gpus in place:
            self.node.append(node)
            self.gpus.append(gpus)
        self.job.append(job)
        self.start.append(len(self.node))
        return len(self.job) - 1


def asked(askers: Sequence[Asker], levels: Levels) -> Asked:
    """The rows for all of these jobs."""
    rows, made = dict[JobId, dict[Cell, int]](), _Rows()
    present = dict[JobId, int]()
    known: dict[tuple[object, ...], dict[Cell, int]] = {}
    first = _largest_by_type(levels)
    for index, asker in enumerate(askers):
        job = asker.job
        alike = (job.workload or job.job_id, job.gpu_types, asker.gpus)
        if alike not in known:
            known[alike] = _added(made, index, asker, levels, first)
        rows[job.job_id] = known[alike]
        if asker.present:
            present[job.job_id] = made.add(index, asker.present)
    configurations = Configurations(
        jobs=tuple(asker.job.job_id for asker in askers),
        nodes=levels.names,
        job=_ints(made.job),
        start=_ints(made.start),
        node=_ints(made.node),
        gpus=_ints(made.gpus),
    )
    return Asked(configurations, rows, present)


def _added(made: _Rows, index: int, asker: Asker, levels: Levels, first: Sequence[int]) -> dict[Cell, int]:
    """Add the rows of a job; returns the row that answers for each type and number of nodes."""
    found: dict[Cell, int] = {}
    usable = [kind for kind, name in enumerate(levels.types) if name in asker.job.gpu_types]
    most = min(asker.gpus, sum(levels.nodes[kind] for kind in usable))
    for kind in usable:
        before = 0 if levels.size_of[levels.base[first[kind]]] >= asker.gpus else 1
        for count in counts(most):
            if count > before:
                row = made.add(index, _divided(first[kind], asker.gpus, count))
                found |= {Cell(kind, between): row for between in range(before + 1, count + 1)}
                before = count
    return found


@cache
def counts(most: int) -> tuple[int, ...]:
    """The numbers of nodes that are asked about: each up to EACH, then in steps of a quarter, and `most`.

    A gang on a number between two of these is taken to be as fast as on the next larger one.
    """
    found, count = [], 1
    while count < most:
        found.append(count)
        count = max(count + 1, count * 5 // 4) if count >= EACH else count + 1
    return (*found, most)


def _largest_by_type(levels: Levels) -> list[int]:
    """By type, the first of its largest nodes."""
    of_type: list[list[int]] = [[] for _ in levels.types]
    for node, kind in enumerate(levels.kind):
        of_type[kind].append(node)
    return [max(own, key=lambda node: levels.size_of[levels.base[node]]) for own in of_type]


@cache
def _shares(gpus: int, nodes: int) -> tuple[int, ...]:
    each, more = divmod(gpus, nodes)
    return (each + 1,) * more + (each,) * (nodes - more)


def _divided(node: int, gpus: int, nodes: int) -> Iterable[tuple[int, int]]:
    """The GPUs divided as evenly as possible over `nodes` nodes like this one, each named as this one."""
    return ((node, share) for share in _shares(gpus, nodes))


def _ints(values: Sequence[int]) -> Ints:
    return np.array(values, dtype=np.int32)
