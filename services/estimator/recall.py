"""Predictions from an exported store, without a service: a library for emulated worlds."""

from collections.abc import Iterable, Sequence
from itertools import islice

import numpy as np

from schemas.archive import NodeLine, entry_of, header_of, workload_of
from schemas.calibration import Ring
from schemas.cluster import Node
from schemas.ids import GpuType
from schemas.jobs import Workload
from schemas.measurements import TimeModules
from schemas.placement import Gang
from schemas.questions import ImportStore
from services.estimator.lookup.columns import of_gang
from services.estimator.lookup.layers import EvidenceThreshold, estimate
from services.estimator.lookup.residuals import Residuals
from services.estimator.store.archive import enter
from services.estimator.store.contract import Store
from services.estimator.store.memory_store import MemoryStore
from services.estimator.theory.paths import exchange, paths_of

NO_AGEING_S = 1e12
"""half-life of observations from an export: so long that they do not age"""
ANY_EVIDENCE = EvidenceThreshold(observations=1, seconds=0.0)
LINES_AT_ONCE = 10_000


class UnreadableExport(ValueError):
    """A line of an export cannot be read; `line` counts from 1."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line


class Recall:
    """Answers as the estimator does, from observations and, where there are none, from theory."""

    def __init__(self, store: Store, cluster: tuple[Node, ...] = ()) -> None:
        """`cluster`: the nodes that the observations are of, as far as they are known."""
        self._store = store
        self._cluster = cluster
        self._residuals = Residuals()

    def workloads(self) -> list[Workload]:
        """The workloads whose time modules are known."""
        return [workload_of(fingerprint) for fingerprint in self._store.workloads()]

    def throughput(self, workload: Workload, nodes: Sequence[Node], gang: Gang) -> float:
        """samples/s of the whole gang; NaN: nothing is known. `nodes`: of the gang's members, in order."""
        wanted = of_gang(workload.fingerprint, nodes, gang, workload.batch_size)
        answer = estimate(wanted, self._store, ANY_EVIDENCE, cluster=self._cluster, residuals=self._residuals)
        return float(answer.throughput[0])

    def modules(self, workload: Workload, gpu_type: GpuType) -> TimeModules | None:
        known = self._store.theory([workload.fingerprint]).get(workload.fingerprint)
        return known.modules.get(gpu_type) if known else None

    def all_reduce_s(self, ring: Ring, size: float) -> float:
        """Seconds of an all-reduce of `size` bytes, on the path of the ring's first node (Hops eq. 2)."""
        node = ring.members[0][0]
        latency_s, bandwidth = exchange(
            [paths_of(node, self._store.bandwidths().get(node.gpu_type))],
            np.zeros(1, dtype=np.int64),
            np.array([ring.distributed]),
            fewest=np.array([min(gpus for _, gpus in ring.members)]),
            gpus=np.array([ring.gpus]),
        )
        moved = size if ring.distributed else size * (ring.gpus - 1) / ring.gpus
        return float(latency_s[0] + moved / bandwidth[0])


def recalled(export: Iterable[bytes]) -> Recall:
    """What an export has recorded; `export`: its lines, the header first. Raises UnreadableExport."""
    lines = iter(export)
    try:
        header_of(next(lines, b""))
    except ValueError as error:
        raise UnreadableExport(1, str(error)) from None
    store, nodes, first = MemoryStore(NO_AGEING_S), list[Node](), 2
    while page := tuple(islice(lines, LINES_AT_ONCE)):
        taken = enter(store, ImportStore(lines=page))
        if taken.wrong is not None:
            raise UnreadableExport(first + taken.wrong[0], taken.wrong[1])
        nodes += [one.node for one in map(entry_of, page) if isinstance(one, NodeLine)]
        first += len(page)
    return Recall(store, tuple(nodes))
