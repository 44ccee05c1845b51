"""The paths of gradients, as measured gang by gang (Hops eq. 2, with a latency). Pure.

    T_c = latency + moved / B,    moved = bytes · (N − 1) / N inside a node, bytes between nodes

Eq. 2 has one B for all gangs of a GPU type. A ring across both sockets of a server, or one that shares a
network card with fewer others, has another; and for small gradients the latency is most of T_c (Hockney
1994). So a gang has the path that was measured with the number of GPUs nearest to its own.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from schemas.calibration import Path
from schemas.cluster import Node
from services.estimator.store.contract import Bandwidth
from services.estimator.store.table import Whole
from shared.domain.iteration import OURS, Column, Law


def paths_of(node: Node, measured: Bandwidth | None, law: Law = OURS) -> tuple[Path, ...]:
    """As measured for the node's type, gang by gang or by eq. 2; else as the cluster file has it."""
    found = measured.paths if measured and law.shapes else ()
    link = (measured and measured.link) or node.link_bandwidth
    network = (measured and measured.network) or node.network_bandwidth
    plain = (
        Path(distributed=False, gpus=1, latency_s=0.0, bandwidth=link),
        Path(distributed=True, gpus=1, latency_s=0.0, bandwidth=network),
    )
    there = {path.distributed for path in found}
    return (*found, *(path for path in plain if path.distributed not in there))


def exchange(
    kinds: Sequence[Sequence[Path]], kind: Whole, distributed: npt.NDArray[np.bool_], gpus: Column
) -> tuple[Column, Column]:
    """Latency, seconds, and B, bytes/s, by row. `kinds`: paths of each; `gpus`: of one node, on average."""
    known: dict[tuple[int, bool, float], Path] = {}
    paths = []
    for row in zip(kind.tolist(), distributed.tolist(), gpus.tolist(), strict=True):
        path = known.get(row)
        if path is None:
            index, spread, each = row
            path = known[row] = _path([one for one in kinds[index] if one.distributed == spread], each)
        paths.append(path)
    return np.array([path.latency_s for path in paths]), np.array([path.bandwidth for path in paths])


def _path(paths: Sequence[Path], gpus: float) -> Path:
    return paths[_nearest(tuple(path.gpus for path in paths), gpus)] if len(paths) > 1 else paths[0]


@lru_cache(maxsize=4_096)
def _nearest(counts: tuple[int, ...], gpus: float) -> int:
    """Position of the count nearest in ratio to a number of GPUs."""
    return int(np.abs(np.log(gpus) - np.log(counts)).argmin())
