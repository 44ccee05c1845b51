"""Places the gangs of a Gavel round, once it is known which job runs on which GPU type. Pure.

Larger gangs come first. `consolidated` is our way, `in_worker_order` that of the authors' code.
"""

from collections.abc import Container, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, count, islice
from typing import TypeVar

import msgspec

from schemas.ids import GpuType, JobId, NodeId
from schemas.placement import Configuration
from services.planner.policies.contract.view import ViewNode
from services.planner.policies.kit.gangs import Pools, place

Worker = TypeVar("Worker", bound=Hashable)
Gpu = tuple[NodeId, int]
"""a GPU: its node, and its number there"""
Gpus = dict[NodeId, tuple[int, ...]]
"""the numbers of some GPUs by node"""


class RoundJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that runs in the coming round."""

    job_id: JobId
    gpus: int
    gpu_type: GpuType
    held: Configuration = {}
    """where it has so many GPUs of this type now; empty: it has others, or none"""
    known: bool = True
    """shares have been computed for it"""


def consolidated(
    runs: Sequence[RoundJob], pools: Pools, idle: Mapping[NodeId, int]
) -> dict[JobId, Configuration]:
    """The place of each job that finds one, by GPUs that nodes have `idle`.

    A job keeps its GPUs if no larger one took them. Otherwise it goes on the fewest nodes, if possible
    without taking GPUs that another job could keep.
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


def _fewest(run: RoundJob, pools: Pools, rooms: Sequence[Mapping[NodeId, int]]) -> Configuration | None:
    """A place on the fewest nodes; of two places on as few, that in the first of the `rooms` (free GPUs)."""
    tries = (place(run.gpus, types=(run.gpu_type,), pools=pools, free=room) for room in rooms)
    return min((found for found in tries if found is not None), key=len, default=None)


def _shift(gpus: dict[NodeId, int], where: Configuration, sign: int) -> None:
    for node, number in where.items():
        gpus[node] += sign * number


# ---- the authors' way


def in_worker_order(
    runs: Sequence[RoundJob], nodes: Sequence[ViewNode], before: Mapping[JobId, Gpus]
) -> dict[JobId, Gpus]:
    """The GPUs of each job by `assigned`, type by type. `before`: the GPUs that each was given last."""
    previous = _previous(runs, before)
    inside = _by_node(gpu for own in previous.values() for gpu in own)
    result: dict[JobId, Gpus] = {}
    for gpu_type in dict.fromkeys(run.gpu_type for run in runs):
        workers = [gpu for node in nodes if node.gpu_type == gpu_type for gpu in _usable(node, inside)]
        here = [run for run in runs if run.gpu_type == gpu_type]
        for job_id, taken in assigned(here, workers, previous).items():
            result[job_id] = _by_node(taken)
    return result


def assigned(
    runs: Sequence[RoundJob], workers: Sequence[Worker], previous: Mapping[JobId, Sequence[Worker]]
) -> dict[JobId, tuple[Worker, ...]]:
    """The workers (GPUs) of each job, for the jobs of one type in the order in which they were taken.

    `workers`: of the type, server by server; `previous`: those of the last round. Of gangs of one size those
    that can keep their workers come first. The others take the next free workers in order, even if another
    server has room for the whole gang. A job without shares gets none, although its GPUs were set aside.
    """
    result: dict[JobId, tuple[Worker, ...]] = {}
    used: set[Worker] = set()
    own = set(workers)
    for size in sorted({run.gpus for run in runs}, reverse=True):
        alike = [run for run in runs if run.gpus == size]
        for run in alike:
            before = previous.get(run.job_id, ())
            if before and own.issuperset(before) and used.isdisjoint(before):
                result[run.job_id] = tuple(before)
                used.update(before)
        for run in alike:
            if run.job_id not in result and run.known:
                result[run.job_id] = tuple([worker for worker in workers if worker not in used][:size])
                used.update(result[run.job_id])
    assert len(used) == sum(map(len, result.values())), "a worker goes to one job"
    return result


def _previous(runs: Sequence[RoundJob], before: Mapping[JobId, Gpus]) -> dict[JobId, list[Gpu]]:
    """The GPUs of each job that holds some: as remembered, else the first of each node that are not taken."""
    remembered = {run.job_id: before.get(run.job_id, {}) for run in runs if run.held}
    result = {
        run.job_id: _flat(remembered[run.job_id])
        for run in runs
        if run.held and counts(remembered[run.job_id]) == run.held
    }
    taken = {gpu for own in result.values() for gpu in own}
    for run in runs:
        if run.held and run.job_id not in result:
            result[run.job_id] = [
                gpu for node, gpus in run.held.items() for gpu in islice(_untaken(node, taken), gpus)
            ]
            taken.update(result[run.job_id])
    return result


def counts(gpus: Gpus) -> Configuration:
    return {node: len(numbers) for node, numbers in gpus.items()}


def _untaken(node: NodeId, taken: Container[Gpu]) -> Iterator[Gpu]:
    return ((node, number) for number in count() if (node, number) not in taken)


def _usable(node: ViewNode, inside: Gpus) -> list[Gpu]:
    """As many GPUs of a node as the plan may use: those `inside`, then the first of the others.

    A number may be beyond the node's GPUs, where a job outside the view has taken one with a smaller number.
    """
    own = sorted((node.node_id, number) for number in inside.get(node.node_id, ()))
    return sorted(islice(chain(own, _untaken(node.node_id, own)), max(node.idle, 0)))


def _flat(gpus: Gpus) -> list[Gpu]:
    return [(node, number) for node, numbers in gpus.items() for number in numbers]


def _by_node(gpus: Iterable[Gpu]) -> Gpus:
    found: dict[NodeId, list[int]] = {}
    for node, number in gpus:
        found.setdefault(node, []).append(number)
    return {node: tuple(numbers) for node, numbers in found.items()}
