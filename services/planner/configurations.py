"""The configurations a plan may choose from, as columns; no object per configuration. Pure.

Configuration c is for `jobs[job[c]]` and takes `gpus[k]` GPUs on `nodes[node[k]]`,
k = start[c] … start[c + 1] − 1 (compressed sparse rows). Rows of one job are adjacent.

Per type and per R_k (Hops section 3.6):

- aggregated: one on every node with at least R_k idle GPUs. The paper prints `R_k < S_t`; a job that
  takes a node's last GPU must be allowed, so it is ≤.
- distributed, low-sensitivity jobs: over nodes of the type that follow one another in node order (those
  without an idle GPU are stepped over), each filled before the next; the smallest number of nodes, at
  least two, on which R_k fits anywhere; all runs of that length. A run whose first nodes suffice is no
  distributed configuration and is dropped.
- distributed, sensitive jobs: the same, only for an R_k larger than the largest node of the type. The
  paper prints "less than", which would spread just the jobs that fit one node.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from schemas.ids import GpuType, JobId, NodeId
from schemas.plans import Configuration
from services.planner.view import ViewJob, ViewNode

Ints = npt.NDArray[np.int32]


class Configurations(msgspec.Struct, frozen=True, kw_only=True):
    """See the module for what the columns mean. All are int32."""

    jobs: tuple[JobId, ...]
    nodes: tuple[NodeId, ...]
    job: Ints
    start: Ints
    node: Ints
    gpus: Ints

    def __len__(self) -> int:
        return len(self.job)

    def at(self, row: int) -> Configuration:
        cells = slice(self.start[row], self.start[row + 1])
        pairs = zip(self.node[cells].tolist(), self.gpus[cells].tolist(), strict=True)
        return {self.nodes[node]: gpus for node, gpus in pairs}


class _Block(msgspec.Struct, frozen=True):
    """Some configurations of one GPU count: cells one after another, and the cells of each."""

    node: Ints
    gpus: Ints
    cells: Ints


class _Pool(msgspec.Struct, frozen=True):
    """The nodes of one type."""

    position: Ints
    """in the list of all nodes"""
    idle: Ints
    largest: int
    """GPUs of the largest node, idle or not"""


def configurations_for(
    jobs: Sequence[ViewJob], nodes: Sequence[ViewNode], threshold: float, *, stay: bool = False
) -> Configurations:
    """All configurations of `jobs` on the idle GPUs of `nodes`; `threshold` is σ.

    With `stay`, a job's present configuration is among them even if it is one that nothing above
    generates (twice, if something does).
    """
    pools = _pools(nodes)
    blocks: dict[tuple[GpuType, int, bool], list[_Block]] = {}
    owned: list[tuple[int, _Block]] = []
    for index, job in enumerate(jobs):
        sensitive = job.sensitivity > threshold
        if stay:
            owned.extend((index, block) for block in _present(job, nodes))
        for gpu_type, gpus in _wishes(job, pools):
            key = (gpu_type, gpus, sensitive)
            if key not in blocks:
                blocks[key] = list(_blocks(pools[gpu_type], gpus, sensitive=sensitive))
            owned.extend((index, block) for block in blocks[key])
    return _joined(jobs, nodes, owned)


def explicit(chosen: Sequence[tuple[JobId, Configuration]], nodes: Sequence[ViewNode]) -> Configurations:
    """Columns of configurations given one by one, a job each, on nodes among `nodes`."""
    position = {node.node_id: index for index, node in enumerate(nodes)}
    cells = [(position[node], gpus) for _, place in chosen for node, gpus in place.items()]
    return Configurations(
        jobs=tuple(job for job, _ in chosen),
        nodes=tuple(position),
        job=np.arange(len(chosen), dtype=np.int32),
        start=_starts(_ints(len(place) for _, place in chosen)),
        node=_ints(node for node, _ in cells),
        gpus=_ints(gpus for _, gpus in cells),
    )


def spread(idle: Ints, gpus: int) -> Iterator[dict[int, int]]:
    """The distributed configurations of `gpus` GPUs over nodes of one type: GPUs by position."""
    block = _distributed(idle, gpus)
    ends = np.cumsum(block.cells).tolist()
    for begin, end in zip([0, *ends], ends, strict=False):
        yield dict(zip(block.node[begin:end].tolist(), block.gpus[begin:end].tolist(), strict=True))


def _pools(nodes: Sequence[ViewNode]) -> dict[GpuType, _Pool]:
    positions: dict[GpuType, list[int]] = {}
    for index, node in enumerate(nodes):
        positions.setdefault(node.gpu_type, []).append(index)
    return {gpu_type: _pool(nodes, found) for gpu_type, found in positions.items()}


def _pool(nodes: Sequence[ViewNode], positions: list[int]) -> _Pool:
    return _Pool(
        position=np.array(positions, dtype=np.int32),
        idle=np.array([nodes[index].idle for index in positions], dtype=np.int32),
        largest=max(nodes[index].gpus for index in positions),
    )


def _wishes(job: ViewJob, pools: dict[GpuType, _Pool]) -> Iterator[tuple[GpuType, int]]:
    for gpu_type in job.gpu_types:
        if gpu_type in pools:
            yield from ((gpu_type, gpus) for gpus in job.demand)


def _blocks(pool: _Pool, gpus: int, *, sensitive: bool) -> Iterator[_Block]:
    found = [_aggregated(pool.idle, gpus)]
    if not sensitive or gpus > pool.largest:
        found.append(_distributed(pool.idle, gpus))
    for block in found:
        if len(block.cells):
            yield _Block(pool.position[block.node], block.gpus, block.cells)


def _present(job: ViewJob, nodes: Sequence[ViewNode]) -> Iterator[_Block]:
    """A distributed configuration that the job has now and may keep."""
    place = job.present.configuration if job.present is not None else {}
    found = {index: place[node.node_id] for index, node in enumerate(nodes) if node.node_id in place}
    if 1 < len(place) == len(found) and all(gpus <= nodes[index].idle for index, gpus in found.items()):
        yield _Block(_ints(found), _ints(found.values()), _ints([len(found)]))


def _ints(values: Iterable[int]) -> Ints:
    return np.array(list(values), dtype=np.int32)


def _aggregated(idle: Ints, gpus: int) -> _Block:
    fits = np.flatnonzero(idle >= gpus).astype(np.int32)
    return _Block(fits, np.full_like(fits, gpus), np.ones_like(fits))


def _distributed(idle: Ints, gpus: int) -> _Block:
    used = np.flatnonzero(idle > 0).astype(np.int32)
    free = idle[used]
    sums = np.concatenate(([0], np.cumsum(free)))
    for length in range(2, min(len(used), gpus) + 1):
        reach = sums[length:] - sums[:-length]
        if (reach >= gpus).any():
            return _runs(used, free, reach, gpus, length)
    return _aggregated(idle[:0], gpus)


def _runs(used: Ints, free: Ints, reach: npt.NDArray[np.int64], gpus: int, length: int) -> _Block:
    """The runs of `length` nodes that hold `gpus` GPUs and need their last node for it."""
    before_last = reach - free[length - 1 :]
    first = np.flatnonzero((reach >= gpus) & (before_last < gpus))
    cells = first[:, None] + np.arange(length)
    taken = free[cells]
    taken[:, -1] = gpus - before_last[first]
    lengths = np.full(len(first), length, dtype=np.int32)
    return _Block(used[cells].ravel(), taken.ravel().astype(np.int32), lengths)


def _joined(
    jobs: Sequence[ViewJob], nodes: Sequence[ViewNode], owned: list[tuple[int, _Block]]
) -> Configurations:
    none = np.empty(0, dtype=np.int32)
    owner = np.array([index for index, _ in owned], dtype=np.int32)
    counts = np.array([len(block.cells) for _, block in owned], dtype=np.int64)
    return Configurations(
        jobs=tuple(job.job_id for job in jobs),
        nodes=tuple(node.node_id for node in nodes),
        job=np.repeat(owner, counts),
        start=_starts(np.concatenate([none, *(block.cells for _, block in owned)])),
        node=np.concatenate([none, *(block.node for _, block in owned)]),
        gpus=np.concatenate([none, *(block.gpus for _, block in owned)]),
    )


def _starts(cells: Ints) -> Ints:
    return np.concatenate(([0], np.cumsum(cells))).astype(np.int32)
