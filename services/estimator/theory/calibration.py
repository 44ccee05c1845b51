"""Which all-reduces to time, and the paths fitted to the times that they took. Pure.

Eq. 2 has one number for a node's own paths and one for those between nodes, and no latency:

    T_c = bytes / B_link · (N − 1) / N          T_c = bytes / B_net

Real paths depend on the size, on how many GPUs take part and on who else uses them. So a line is fitted to
the times of each shape of ring, by least squares of the relative error, and one B to all of them:

    minimise Σ ((a + x·b − T) / T)²   over latency a ≥ 0, b = 1 / B,  with x = bytes · (N − 1)/N or bytes
"""

from collections.abc import Container, Iterable, Sequence

import msgspec
import numpy as np

from schemas.calibration import AllReduceTimes, Path, Ring
from schemas.cluster import Node
from schemas.ids import GpuType, NodeId
from schemas.numbers import MOST
from services.estimator.store.contract import Bandwidth
from shared.domain.iteration import Column

SIZES = (32e6, 128e6, 512e6, 1.5e9)
"""bytes: gradients of 8 to 375 million parameters"""
REPEATS = 3
NODES_PER_TYPE = 4
"""nodes that are measured of a type at most: those with the most GPUs, which show the most shapes of ring"""
INSIDE_LEAST, BETWEEN_LEAST = 2, 1
"""least GPUs that a node needs for a ring inside it, and for a ring over two nodes"""


class Timing(msgspec.Struct, frozen=True):
    """A ring, and the times of its all-reduces."""

    ring: Ring
    times: AllReduceTimes


def inside(nodes: Iterable[Node]) -> list[Ring]:
    """Rings inside one node: of 2, 4, 8 … GPUs and of all. A node with one GPU has none."""
    chosen = [node for of_type in _by_type(nodes, least=INSIDE_LEAST) for node in of_type]
    return [Ring(members=((node, gpus),)) for node in chosen for gpus in _counts(node.gpus, INSIDE_LEAST)]


def between(nodes: Iterable[Node], paired: Container[NodeId] = ()) -> list[Ring]:
    """Rings over two nodes of a type: 1, 2, 4 … GPUs on each, and all. No node is in two pairs.

    `paired`: nodes that are in pairs already; they are among those that are measured.
    """
    free = [
        [node for node in of_type if node.node_id not in paired]
        for of_type in _by_type(nodes, least=BETWEEN_LEAST, first=paired)
    ]
    pairs = [pair for of_type in free for pair in zip(of_type[::2], of_type[1::2], strict=False)]
    return [
        Ring(members=((a, gpus), (b, gpus)))
        for a, b in pairs
        for gpus in _counts(min(a.gpus, b.gpus), BETWEEN_LEAST)
    ]


def bandwidths(timings: Sequence[Timing], now: float) -> dict[GpuType, Bandwidth]:
    """The bandwidths by type that follow from the timings."""
    types = sorted({timing.ring.members[0][0].gpu_type for timing in timings})
    return {
        gpu_type: _bandwidth([one for one in timings if _is_of(one, gpu_type)], now) for gpu_type in types
    }


def merged(known: Bandwidth | None, found: Bandwidth) -> Bandwidth:
    """The bandwidth found now; paths that were not measured this time stay as they were known."""
    if known is None:
        return found
    paths = {(path.distributed, path.gpus): path for path in (*known.paths, *found.paths)}
    return msgspec.structs.replace(
        found,
        link=found.link or known.link,
        network=found.network or known.network,
        paths=tuple(path for _, path in sorted(paths.items())),
    )


def _is_of(timing: Timing, gpu_type: GpuType) -> bool:
    return timing.ring.members[0][0].gpu_type == gpu_type


def _bandwidth(timings: Sequence[Timing], now: float) -> Bandwidth:
    fits = [_path(alike) for alike in _by_shape(timings).values()]
    errors = [error for _, found in fits for error in found]
    return Bandwidth(
        link=_speed([one for one in timings if not one.ring.distributed]),
        network=_speed([one for one in timings if one.ring.distributed]),
        at=now,
        measurements=len(errors),
        error=float(np.mean(errors)),
        paths=tuple(path for path, _ in fits),
    )


def _by_shape(timings: Iterable[Timing]) -> dict[tuple[bool, int], list[Timing]]:
    """Timings by shape: whether the ring is distributed, and the GPUs of each node."""
    shapes: dict[tuple[bool, int], list[Timing]] = {}
    for one in timings:
        shapes.setdefault((one.ring.distributed, one.ring.members[0][1]), []).append(one)
    return dict(sorted(shapes.items()))


def _path(timings: Sequence[Timing]) -> tuple[Path, list[float]]:
    """The line fitted to the times of rings of one shape, and the relative error of each time."""
    moved, taken = _measured(timings)
    shares = np.stack([1.0 / taken, moved / taken], axis=1)
    latency_s, inverse = np.linalg.lstsq(shares, np.ones(len(taken)))[0]
    if latency_s < 0 or inverse < 1 / MOST:
        latency_s, inverse = 0.0, _inverse(moved, taken)
    path = Path(
        distributed=timings[0].ring.distributed,
        gpus=timings[0].ring.members[0][1],
        latency_s=float(latency_s),
        bandwidth=float(1.0 / inverse),
    )
    return path, np.abs((latency_s + moved * inverse) / taken - 1.0).tolist()


def _speed(timings: Sequence[Timing]) -> float | None:
    """B of eq. 2 for all timings; None: there are none."""
    return 1.0 / _inverse(*_measured(timings)) if timings else None


def _inverse(moved: Column, taken: Column) -> float:
    """1 / B, without a latency: Σ (x / T) / Σ (x / T)²."""
    speed = moved / taken
    return float(speed.sum() / np.square(speed).sum())


def _measured(timings: Sequence[Timing]) -> tuple[Column, Column]:
    """Bytes moved, and seconds taken, of each all-reduce."""
    moved = [
        _moved(one.ring) * size
        for one in timings
        for size in one.times.sizes or SIZES
        for _ in range(REPEATS)
    ]
    taken = [seconds for one in timings for row in one.times.seconds for seconds in row]
    return np.array(moved), np.array(taken)


def _moved(ring: Ring) -> float:
    """Bytes over the path for each byte of gradients, by eq. 2."""
    return 1.0 if ring.distributed else (ring.gpus - 1) / ring.gpus


def _by_type(nodes: Iterable[Node], *, least: int, first: Container[NodeId] = ()) -> list[list[Node]]:
    """The nodes to measure, by type: those that come first, then by number of GPUs, the most first, and id.

    `least`: GPUs of each.
    """
    by_type: dict[GpuType, list[Node]] = {}
    fitting = [node for node in nodes if node.gpus >= least]
    for node in sorted(
        fitting, key=lambda node: (node.gpu_type, node.node_id not in first, -node.gpus, node.node_id)
    ):
        by_type.setdefault(node.gpu_type, []).append(node)
    return [of_type[:NODES_PER_TYPE] for of_type in by_type.values()]


def _counts(gpus: int, least: int) -> list[int]:
    """GPU counts to measure: powers of two from `least` up, and all GPUs."""
    powers = [2**k for k in range(gpus.bit_length()) if least <= 2**k < gpus]
    return [*powers, gpus] if gpus >= least else []
