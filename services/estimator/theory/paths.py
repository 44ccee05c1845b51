"""The paths of gradients: latency and bandwidth by shape of gang (Hops eq. 2, with a latency). Pure.

    T_c = latency + moved / B,    moved = bytes · (N − 1) / N inside a node, bytes between nodes

Eq. 2 has one B for all gangs of a GPU type. A ring across both sockets of a server, or one that shares a
network card with fewer others, has another; and for small gradients the latency is most of T_c (Hockney
1994). So a gang gets the path that was measured with the number of GPUs nearest to its own. Over several
nodes the number compared is that of the node with the fewest GPUs, whose card is the slowest; the path was
measured with a ring of M GPUs on two nodes. A ring of N GPUs takes N − 1 steps where that one took M − 1,
each of an N-th of the bytes (Patarasuk and Yuan 2009; docs/adr/0047):

    T_c = latency + step · (N − M) + bytes / B · ((N − 1) / N) / ((M − 1) / M)

`step` is the latency of a step in the largest ring that was measured, of L GPUs: its latency / (L − 1). The
latency of a small ring is mostly the noise of the fit, which a multiple of it would multiply.
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

ANY = 0
"""`gpus` of a path that stands for all gangs: eq. 2 as printed"""
PAIR = 2
"""nodes of a ring that measures a path between nodes (`calibration.between`)"""


def paths_of(node: Node, measured: Bandwidth | None, law: Law = OURS) -> tuple[Path, ...]:
    """The paths measured for the node's type, by shape or by eq. 2; else those of the cluster file."""
    found = measured.paths if measured and law.shapes else ()
    link = (measured and measured.link) or node.link_bandwidth
    network = (measured and measured.network) or node.network_bandwidth
    plain = (
        Path(distributed=False, gpus=ANY, latency_s=0.0, bandwidth=link),
        Path(distributed=True, gpus=ANY, latency_s=0.0, bandwidth=network),
    )
    there = {path.distributed for path in found}
    return (*found, *(path for path in plain if path.distributed not in there))


def exchange(
    kinds: Sequence[Sequence[Path]],
    kind: Whole,
    distributed: npt.NDArray[np.bool_],
    *,
    fewest: Whole,
    gpus: Whole,
) -> tuple[Column, Column]:
    """Latency, seconds, and B, bytes/s, by row.

    `kinds`: the paths of each kind of node; the other columns are by row. `fewest`: GPUs of the node that has
    the fewest; `gpus`: GPUs of all nodes.
    """
    known: dict[tuple[int, bool, int, int], tuple[float, float]] = {}
    lines = []
    for row in zip(kind.tolist(), distributed.tolist(), fewest.tolist(), gpus.tolist(), strict=True):
        line = known.get(row)
        if line is None:
            index, spread, least, every = row
            alike = [one for one in kinds[index] if one.distributed == spread]
            line = known[row] = _line(_path(alike, least), every, alike)
        lines.append(line)
    latency_s, bandwidth = np.array(lines, dtype=np.float64).reshape(-1, 2).T
    return latency_s, bandwidth


def _line(path: Path, gpus: int, alike: Sequence[Path]) -> tuple[float, float]:
    """Latency and bandwidth of a ring of `gpus`; inside a node eq. 2 accounts for their number.

    `alike`: all paths of the kind of node, between nodes or inside one as `path` is.
    """
    if not path.distributed or path.gpus == ANY:
        return path.latency_s, path.bandwidth
    measured, largest = PAIR * path.gpus, max(alike, key=lambda one: one.gpus)
    step_s = largest.latency_s / (PAIR * largest.gpus - 1)
    latency_s = max(path.latency_s + step_s * (gpus - measured), 0.0)
    return latency_s, path.bandwidth * ((measured - 1) / measured) / ((gpus - 1) / gpus)


def _path(paths: Sequence[Path], gpus: int) -> Path:
    return paths[_nearest(tuple(path.gpus for path in paths), gpus)] if len(paths) > 1 else paths[0]


@lru_cache(maxsize=4_096)
def _nearest(counts: tuple[int, ...], gpus: int) -> int:
    """Position of the count nearest in ratio to a number of GPUs."""
    return int(np.abs(np.log(gpus) - np.log(counts)).argmin())
