"""Where the gangs of a Gavel round go, once it is known who runs on which GPU type. Pure.

Larger gangs first. `consolidated` is how it should be; `in_worker_order` is how the authors do it.
"""

from collections.abc import Mapping, Sequence

import msgspec

from schemas.ids import GpuType, JobId, NodeId
from schemas.plans import Configuration
from services.planner.programs.placing import Pools, place

Workers = tuple[int, ...]


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A job that runs in the coming round."""

    job_id: JobId
    gpus: int
    gpu_type: GpuType
    held: Configuration = {}
    """where it has just these GPUs of this type now; empty: it has not"""
    known: bool = True
    """it had shares computed"""


def consolidated(runs: Sequence[Run], pools: Pools, idle: Mapping[NodeId, int]) -> dict[JobId, Configuration]:
    """A job keeps its GPUs if no larger one took them; else it goes on the fewest nodes.

    Of as few, on those that drive nobody out, if there are such.
    """
    free, spare = dict(idle), dict(idle)
    for run in runs:
        _shift(spare, run.held, -1)
    result: dict[JobId, Configuration] = {}
    for run in sorted(runs, key=lambda run: -run.gpus):
        _shift(spare, run.held, 1)
        where = run.held if _fits(run.held, free) else _fewest(run, pools, (spare, free))
        if where is not None:
            result[run.job_id] = where
            _shift(free, where, -1)
            _shift(spare, where, -1)
    return result


def _fits(where: Configuration, free: Mapping[NodeId, int]) -> bool:
    return bool(where) and all(gpus <= free[node] for node, gpus in where.items())


def _fewest(run: Run, pools: Pools, rooms: Sequence[Mapping[NodeId, int]]) -> Configuration | None:
    """On the fewest nodes; of as few, those of the first room."""
    tries = (place(run.gpus, types=(run.gpu_type,), pools=pools, free=room) for room in rooms)
    return min((found for found in tries if found is not None), key=len, default=None)


def _shift(gpus: dict[NodeId, int], where: Configuration, sign: int) -> None:
    for node, count in where.items():
        gpus[node] += sign * count


# ---- the authors' way


def in_worker_order(
    runs: Sequence[Run], pools: Pools, idle: Mapping[NodeId, int]
) -> dict[JobId, Configuration]:
    """See `assigned`; a node's workers are its idle GPUs, numbered through."""
    names = [node for pool in pools.values() for node in pool.nodes for _ in range(max(idle[node], 0))]
    numbers: dict[NodeId, list[int]] = {}
    for number, node in enumerate(names):
        numbers.setdefault(node, []).append(number)
    previous = _previous(runs, numbers)
    result: dict[JobId, Configuration] = {}
    for gpu_type, pool in pools.items():
        workers = [number for node in pool.nodes for number in numbers.get(node, ())]
        here = [run for run in runs if run.gpu_type == gpu_type]
        for job_id, taken in assigned(here, workers, previous).items():
            result[job_id] = _nodes([names[number] for number in taken])
    return result


def assigned(
    runs: Sequence[Run], workers: Sequence[int], previous: Mapping[JobId, Workers]
) -> dict[JobId, Workers]:
    """The runs of one type, in the order in which they were taken, on its workers.

    `workers`: ids, server by server; `previous`: those of the last round. Of gangs of one size those come
    first that can keep their workers; the others take what is free in the order of the ids, though
    another server had room for the whole gang. A job without shares has room kept for it and gets none.
    """
    result: dict[JobId, Workers] = {}
    used: set[int] = set()
    own = set(workers)
    for size in sorted({run.gpus for run in runs}, reverse=True):
        alike = [run for run in runs if run.gpus == size]
        for run in alike:
            before = previous.get(run.job_id, ())
            if before and own.issuperset(before) and used.isdisjoint(before):
                result[run.job_id] = before
                used.update(before)
        for run in alike:
            if run.job_id not in result and run.known:
                result[run.job_id] = tuple([worker for worker in workers if worker not in used][:size])
                used.update(result[run.job_id])
    return result


def _previous(runs: Sequence[Run], numbers: Mapping[NodeId, Sequence[int]]) -> dict[JobId, Workers]:
    """Workers of those that have GPUs now, the first of each node for the first that has some there."""
    left = {node: list(own) for node, own in numbers.items()}
    result: dict[JobId, Workers] = {}
    for run in runs:
        if run.held and all(gpus <= len(left.get(node, ())) for node, gpus in run.held.items()):
            result[run.job_id] = tuple(
                left[node].pop(0) for node, gpus in run.held.items() for _ in range(gpus)
            )
    return result


def _nodes(names: Sequence[NodeId]) -> Configuration:
    return {node: names.count(node) for node in dict.fromkeys(names)}
