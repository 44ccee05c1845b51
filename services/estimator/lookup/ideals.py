"""Theory's throughputs, each computed once until the workload's theory on the GPU type changes."""

from collections.abc import Sequence
from math import isnan

import msgspec
import numpy as np

from schemas.calibration import Path
from schemas.ids import Fingerprint, GpuType
from services.estimator.lookup.theory_table import TheoryTable, gangs_of, workload_theory
from services.estimator.store.contract import WORKLOADS_IN_MEMORY, Shape, Store
from services.estimator.store.table import Whole
from services.estimator.theory.formula import Gangs, per_gpu_throughput
from shared.domain.iteration import Column

KEPT_MAX = 100_000
"""throughputs that are kept; once there are more, or too many workloads, all are forgotten"""

Paths = tuple[Path, ...]
_Counts = tuple[int, int, int]
"""nodes of a gang, its GPUs, and those of the node that has the fewest"""
_Known = dict[_Counts, float | None]
"""samples/s per GPU; None: theory has no answer"""


class Alike(msgspec.Struct, frozen=True):
    """Gangs in lockstep, a row each. Theory knows their workloads on their kinds of node."""

    workload: Whole
    """number of the fingerprint"""
    kind: Whole
    """kind of node in the table"""
    path: Whole
    """kind of node whose path it is on"""
    nodes: Whole
    gpus: Whole
    fewest: Whole
    """GPUs of the node that has the fewest"""


class _OnType(msgspec.Struct):
    """Theory's throughputs of one workload on one GPU type."""

    changes: int
    """`Store.changes` of the workload when its revision was looked at last"""
    theory: int
    """revision of the workload's theory on the type"""
    by_paths: dict[Paths, _Known]
    """by the paths of gradients"""


class Ideals:
    """Theory's throughputs by one store and one law."""

    def __init__(self, limit: int = KEPT_MAX) -> None:
        self._limit = limit
        self._kept: dict[Fingerprint, dict[GpuType, _OnType]] = {}
        self._count = 0

    def of(
        self, alike: Alike, table: TheoryTable, fingerprints: Sequence[Fingerprint], store: Store
    ) -> Column:
        """Samples/s per GPU, by row; NaN: theory has no answer. Raises StoreUnavailable."""
        self._make_room()
        where = list(zip(alike.workload.tolist(), alike.kind.tolist(), alike.path.tolist(), strict=True))
        counts = list(zip(alike.nodes.tolist(), alike.gpus.tolist(), alike.fewest.tolist(), strict=True))
        there = {
            (one, kind, path): self._known(fingerprints[one], table.gpu_types[kind], table.paths[path], store)
            for one, kind, path in dict.fromkeys(where)
        }
        known = [there[one] for one in where]
        new = [row for row, (some, one) in enumerate(zip(known, counts, strict=True)) if one not in some]
        if new:
            self._count += len(new)
            some = Alike(*(getattr(alike, name).take(new) for name in Alike.__struct_fields__))
            gangs = gangs_of(
                table,
                some.workload,
                some.kind,
                nodes=some.nodes,
                gpus=some.gpus,
                fewest=some.fewest,
                path=some.path,
            )
            for row, value in zip(new, _answers(gangs), strict=True):
                known[row][counts[row]] = value
        return np.array([some[one] for some, one in zip(known, counts, strict=True)], dtype=np.float64)

    def of_shapes(
        self, fingerprint: Fingerprint, shapes: Sequence[Shape], table: TheoryTable, store: Store
    ) -> list[float | None]:
        """Samples/s per GPU of gangs with equally many GPUs on every node; None: theory has no answer.

        Raises StoreUnavailable.
        """
        self._make_room()
        known = {
            gpu_type: self._known(fingerprint, gpu_type, paths, store)
            for gpu_type, paths in table.types.items()
        }
        new = [one for one in shapes if one.gpu_type in known and _counts(one) not in known[one.gpu_type]]
        if new:
            self._count += len(new)
            for one, value in zip(new, _computed(fingerprint, new, table, store), strict=True):
                known[one.gpu_type][_counts(one)] = value
        nothing: _Known = {}
        return [known.get(one.gpu_type, nothing).get(_counts(one)) for one in shapes]

    def _make_room(self) -> None:
        if self._count > self._limit or len(self._kept) > WORKLOADS_IN_MEMORY:
            self._kept, self._count = {}, 0

    def _known(self, fingerprint: Fingerprint, gpu_type: GpuType, paths: Paths, store: Store) -> _Known:
        types, changes = self._kept.setdefault(fingerprint, {}), store.changes(fingerprint)
        on_type = types.get(gpu_type)
        if on_type is None or on_type.changes != changes:
            theory = store.revision(fingerprint, (gpu_type,)).theory
            if on_type is None or on_type.theory != theory:
                on_type = types[gpu_type] = _OnType(changes, theory, {})
            on_type.changes = changes
        return on_type.by_paths.setdefault(paths, {})


def _counts(shape: Shape) -> _Counts:
    return shape.nodes, shape.gpus, shape.gpus // shape.nodes


def _computed(
    fingerprint: Fingerprint, shapes: Sequence[Shape], table: TheoryTable, store: Store
) -> list[float | None]:
    own = workload_theory(fingerprint, table.types, store, table.law)
    found: list[float | None] = [None] * len(shapes)
    rows = [row for row, shape in enumerate(shapes) if shape.gpu_type in own.kinds]
    if rows:
        kind = np.array([own.kinds[shapes[row].gpu_type] for row in rows], dtype=np.int64)
        nodes = np.array([shapes[row].nodes for row in rows], dtype=np.int64)
        gpus = np.array([shapes[row].gpus for row in rows], dtype=np.int64)
        gangs = gangs_of(own.table, np.zeros_like(kind), kind, nodes=nodes, gpus=gpus)
        for row, value in zip(rows, _answers(gangs), strict=True):
            found[row] = value
    return found


def _answers(gangs: Gangs) -> list[float | None]:
    return [None if isnan(value) else value for value in per_gpu_throughput(gangs).tolist()]
