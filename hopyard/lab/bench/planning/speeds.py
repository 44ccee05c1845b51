"""Throughputs as the estimator would give them had it measured the emulated world without noise. Pure.

What every process takes for the parts of an iteration comes from the world itself; eq. 1 makes a gang's
throughput of it, and the slowest node decides. Either every server of a type
counts as its first one, as the theory and type layers have it, or each is known for what it is, as the
entity layer comes to know it: a few per cent apart, and not alike for every workload.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from loadgen.catalogue.specs import shipped
from loadgen.world.gang import member
from loadgen.world.servers import traits
from schemas.cluster import Node
from schemas.ids import GpuType
from schemas.jobs import Workload
from schemas.questions import LAYERS
from services.agent.work.world import DoesNotFit
from services.planner.policies.contract.configurations import Configurations
from services.planner.policies.contract.estimates import Estimated
from shared.domain.arrays import Floats
from shared.domain.iteration import communication_s, iteration_s

Cells = npt.NDArray[np.int64]


class WorldSpeeds:
    """Throughputs of some workloads on the nodes of one cluster."""

    def __init__(self, nodes: Sequence[Node], *, seed: int, unlike: bool) -> None:
        """`seed`: of the emulated world; `unlike`: servers of one type differ."""
        first: dict[GpuType, int] = {}
        for index, node in enumerate(nodes):
            first.setdefault(node.gpu_type, index)
        self._nodes = nodes
        self._seed = seed
        self._unlike = unlike
        self._first = first
        self._stands_for = {
            node.node_id: index if unlike else first[node.gpu_type] for index, node in enumerate(nodes)
        }
        paths = [traits(seed, node.node_id).network if unlike else 1.0 for node in nodes]
        self._link = np.array([node.link_bandwidth for node in nodes]) * paths
        self._network = np.array([node.network_bandwidth for node in nodes]) * paths

    def single(self, workload: Workload) -> dict[GpuType, float]:
        """Samples/s on one GPU of each type that has the memory, types in alphabetical order."""
        return self._by_type(workload, gpus=1)

    def paired(self, workload: Workload) -> dict[GpuType, float]:
        """Samples/s per GPU of two on two nodes."""
        return self._by_type(workload, gpus=2)

    def estimates(self, wanted: Configurations, workloads: Sequence[Workload]) -> Estimated:
        """Estimates of configurations on these nodes; `workloads` by job of `wanted`."""
        known = sorted(set(workloads), key=str)
        kind = np.array([known.index(workload) for workload in workloads], dtype=np.int64)
        total = np.add.reduceat(wanted.gpus, wanted.start[:-1]).astype(np.int64)
        owner = np.repeat(np.arange(len(wanted)), np.diff(wanted.start))
        standing = np.array([self._stands_for[name] for name in wanted.nodes], dtype=np.int64)
        cells = np.stack(
            [
                kind[wanted.job[owner]],
                standing[wanted.node],
                total[owner],
                np.diff(wanted.start)[owner] > 1,
            ]
        )
        slowest = np.minimum.reduceat(self._rates(known, cells), wanted.start[:-1])
        layer = LAYERS.index("entity" if self._unlike else "theory")
        return Estimated(throughput=slowest * total, layer=np.full(len(wanted), layer, dtype=np.uint8))

    def _rates(self, workloads: Sequence[Workload], cells: Cells) -> Floats:
        """Per-GPU samples/s: rows workload, node, GPUs of the gang, whether it is spread; a column a cell."""
        widths = (len(workloads), len(self._nodes), int(cells[2].max()) + 1, 2)
        codes, back = np.unique(np.ravel_multi_index(tuple(cells), widths), return_inverse=True)
        kind, node, gpus, spread = np.unravel_index(codes, widths)
        pairs, which = np.unique(kind * widths[1] + node, return_inverse=True)
        table = np.array(
            [self._parts(workloads[pair // widths[1]], pair % widths[1]) for pair in pairs.tolist()]
        )
        data, forward, backward, update, parameters, pattern = table[which].T
        exchange = communication_s(
            parameters=parameters,
            gpus=gpus,
            distributed=spread,
            bandwidth=np.where(spread, self._network[node], self._link[node]),
        )
        step_s = iteration_s(
            data_s=data,
            forward_s=forward,
            backward_s=backward,
            update_s=update,
            communication_s=exchange,
            pattern=pattern,
        )
        rates: Floats = np.array([workload.batch_size for workload in workloads])[kind] / step_s
        return rates[back]

    def _by_type(self, workload: Workload, gpus: int) -> dict[GpuType, float]:
        types = [kind for kind in sorted(self._first) if self._fits(workload, self._first[kind])]
        cells = np.array([(0, self._first[kind], gpus, gpus > 1) for kind in types], dtype=np.int64)
        return dict(zip(types, self._rates([workload], cells.T).tolist(), strict=True)) if types else {}

    def _fits(self, workload: Workload, index: int) -> bool:
        try:
            member(shipped(), self._seed, workload, self._nodes[index], workload.batch_size)
        except DoesNotFit:
            return False
        return True

    def _parts(self, workload: Workload, index: int) -> tuple[float, ...]:
        """T_d, T_f, T_b, T_u, parameters and pattern of a process on a node, alone."""
        one = member(shipped(), self._seed, workload, self._nodes[index], workload.batch_size)
        times, model = one.times, one.model
        parts = times.forward_s, times.backward_s, times.update_s, model.parameters, float(model.pattern)
        return (one.data.mean_s, *parts)
