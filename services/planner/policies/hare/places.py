"""The places that jobs have now: which of them stay, and which further jobs may join. Pure.

The GPUs of a node are alike. So a place is given any GPUs of its nodes, as many as it holds.
"""

from collections.abc import Mapping, Sequence

import msgspec

from schemas.ids import JobId, NodeId, RotaId
from schemas.placement import Gang
from services.planner.policies.contract.view import View, ViewJob, ViewNode
from shared.domain import gangs, in_turns


class HarePlace(msgspec.Struct, frozen=True, kw_only=True):
    """The GPUs that the jobs of a rota hold together, or that one job holds."""

    rota: RotaId
    """empty: a job has them alone"""
    gpus: tuple[int, ...]
    """by position, ascending"""
    tasks: Mapping[JobId, Mapping[int, int]]
    """tasks of a round, by job and GPU that has any"""
    kept: bool
    """some job there may not be moved, so none is moved"""
    joinable: bool
    """other jobs may take turns there, too"""


def places_of(view: View, nodes: Sequence[ViewNode]) -> tuple[HarePlace, ...]:
    """The places whose GPUs are idle in the view, those that are kept first.

    `nodes`: the nodes whose idle GPUs are numbered, one after the other.
    """
    holders: dict[str, list[tuple[ViewJob, Gang]]] = {}
    for job in view.jobs:
        if job.present is not None:
            gang = job.present.gang
            holders.setdefault(in_turns.holder(job.job_id, gang), []).append((job, gang))
    free = _positions(nodes)
    closed = frozenset(node.node_id for node in nodes if node.closed)
    together = sorted(holders.values(), key=lambda jobs: not _stays(jobs))
    return tuple(place for jobs in together if (place := _place(jobs, free, closed)) is not None)


def _positions(nodes: Sequence[ViewNode]) -> dict[NodeId, list[int]]:
    found: dict[NodeId, list[int]] = {}
    first = 0
    for node in nodes:
        found[node.node_id] = list(range(first, first + node.idle))
        first += node.idle
    return found


def _stays(jobs: Sequence[tuple[ViewJob, Gang]]) -> bool:
    return any(job.stays for job, _ in jobs)


def _place(
    jobs: Sequence[tuple[ViewJob, Gang]], free: dict[NodeId, list[int]], closed: frozenset[NodeId]
) -> HarePlace | None:
    """The place of jobs that hold the same GPUs, which are taken from `free`; None: they are not free."""
    gang, kept = jobs[0][1], _stays(jobs)
    if any(len(free.get(one.node, ())) < one.gpus for one in gang.members):
        return None
    gpus = tuple(gpu for one in gang.members for gpu in free[one.node][: one.gpus])
    for one in gang.members:
        free[one.node] = free[one.node][one.gpus :]
    rota = gangs.rota(gang)
    return HarePlace(
        rota=rota,
        gpus=gpus,
        tasks={job.job_id: _tasks(own, gpus) for job, own in jobs},
        kept=kept,
        joinable=bool(rota) and closed.isdisjoint(gang.nodes),
    )


def _tasks(gang: Gang, gpus: Sequence[int]) -> dict[int, int]:
    each = [tasks for member in gangs.tasks(gang) for tasks in member]
    return {gpu: tasks for gpu, tasks in zip(gpus, each, strict=True) if tasks}
