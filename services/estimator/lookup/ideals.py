"""Theory's throughput of the gangs that a workload ran in, each computed once until the theory changes."""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from schemas.calibration import Path
from schemas.ids import Fingerprint, GpuType
from services.estimator.lookup.theory_table import TheoryTable, gangs_of, workload_theory
from services.estimator.store.contract import Shape, Store
from services.estimator.theory.formula import ThroughputCache

WORKLOADS_KEPT = 10_000

Paths = tuple[Path, ...]


class _Ideal(msgspec.Struct, frozen=True):
    """Theory's throughputs of one workload on one GPU type."""

    theory: int
    """revision of the workload's theory on the type"""
    known: dict[Paths, dict[Shape, float | None]]
    """by the paths of gradients: samples/s per GPU; None: theory has no answer"""


class Ideals:
    def __init__(self) -> None:
        self._kept: dict[Fingerprint, dict[GpuType, _Ideal]] = {}

    def of(
        self,
        fingerprint: Fingerprint,
        shapes: Sequence[Shape],
        *,
        store: Store,
        cache: ThroughputCache,
        table: TheoryTable,
    ) -> list[float | None]:
        """Theory's samples/s per GPU, by shape; None: no answer. Raises StoreUnavailable."""
        if fingerprint not in self._kept and len(self._kept) > WORKLOADS_KEPT:
            self._kept.clear()
        own = self._kept.setdefault(fingerprint, {})
        by_type: dict[GpuType, dict[Shape, float | None]] = {}
        for gpu_type, paths in table.types.items():
            theory = store.revision(fingerprint, (gpu_type,)).theory
            if gpu_type not in own or own[gpu_type].theory != theory:
                own[gpu_type] = _Ideal(theory, {})
            by_type[gpu_type] = own[gpu_type].known.setdefault(paths, {})
        new = [one for one in shapes if one.gpu_type in by_type and one not in by_type[one.gpu_type]]
        if new:
            for one, value in zip(new, _computed(fingerprint, new, store, cache, table), strict=True):
                by_type[one.gpu_type][one] = value
        nothing: Mapping[Shape, float | None] = {}
        return [by_type.get(one.gpu_type, nothing).get(one) for one in shapes]


def _computed(
    fingerprint: Fingerprint,
    shapes: Sequence[Shape],
    store: Store,
    cache: ThroughputCache,
    table: TheoryTable,
) -> list[float | None]:
    own = workload_theory(fingerprint, table.types, store, table.law)
    found: list[float | None] = [None] * len(shapes)
    rows = [row for row, shape in enumerate(shapes) if shape.gpu_type in own.kinds]
    if rows:
        kind = np.array([own.kinds[shapes[row].gpu_type] for row in rows], dtype=np.int64)
        nodes = np.array([shapes[row].nodes for row in rows], dtype=np.int64)
        gpus = np.array([shapes[row].gpus for row in rows], dtype=np.int64)
        gangs = gangs_of(own.table, np.zeros_like(kind), kind, nodes=nodes, gpus=gpus)
        for row, value in zip(rows, cache.per_gpu_throughput(gangs).tolist(), strict=True):
            found[row] = value
    return found
