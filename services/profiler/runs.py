"""Chooses the measurements that begin a round, those that are added to it, and their nodes. Pure."""

from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from itertools import chain
from urllib.parse import quote

import msgspec

from schemas.cluster import Node
from schemas.events import ProfileRun
from schemas.ids import GpuType, JobId, NodeId, PlacementId
from services.profiler.needs import Modules, Types, can_be_measured, needs_of
from services.profiler.state import KnownJob, State

Lacking = tuple[JobId, KnownJob, GpuType]
"""a job, and a type on which it still has to be measured"""


class _Room(msgspec.Struct):
    """Free GPUs of a node while measurements are assigned to nodes."""

    node_id: NodeId
    gpu_type: GpuType
    gpus: int
    free: int
    """GPUs that no measurement holds; a job that trains on one is preempted for the measurement"""
    idle: int
    """GPUs that neither a job nor a measurement holds"""


def opening_runs(
    state: State, fits: Modules, types: Types, round_number: int, patience: int, *, late: Iterable[JobId] = ()
) -> tuple[ProfileRun, ...]:
    """The measurements that a round begins with. They may take GPUs from jobs that train.

    A type is measured on the node with the most idle GPUs or, when no GPU of the type is idle, on the node
    with the most GPUs; the lowest id breaks ties. A GPU gets at most one measurement. A measurement for which
    no GPU is left waits for the next round. `late`: profiled jobs that lack a type.
    """
    lacking = _lacking(state, fits, types, patience, late)
    return _runs(state, lacking, str(round_number), idle_only=False)


def added_runs(
    state: State, fits: Modules, types: Types, patience: int, *, late: Iterable[JobId] = ()
) -> tuple[ProfileRun, ...]:
    """Measurements to add within a round, on idle GPUs only; at most one for each job and type."""
    lacking = _lacking(state, fits, types, patience, late)
    fresh = (one for one in lacking if one[2] not in one[1].added)
    return _runs(state, fresh, f"{state.round}-{state.additions}", idle_only=True)


def _runs(
    state: State, lacking: Iterable[Lacking], serial: str, *, idle_only: bool
) -> tuple[ProfileRun, ...]:
    """A measurement for each type that a job still needs, in the order given.

    Jobs of one workload share its measurements.
    """
    taken = {(run.fingerprint, run.plan.gpu_type) for run in state.runs.values()}
    rooms: list[_Room] | None = None
    planned: dict[PlacementId, ProfileRun] = {}
    for job_id, job, gpu_type in lacking:
        if (job.fingerprint, gpu_type) in taken:
            continue
        rooms = _rooms(state) if rooms is None else rooms
        room = _best(rooms, gpu_type, job.absent, job.failed_on, idle_only=idle_only)
        if room is None:
            continue
        taken.add((job.fingerprint, gpu_type))
        room.free -= 1
        room.idle -= 1
        assert room.free >= 0, "a GPU carries at most one run"
        placement_id = _placement_id(job_id, gpu_type, serial)
        while placement_id in planned or placement_id in state.runs or placement_id in state.ended:
            placement_id = PlacementId(f"{placement_id}_")  # dashes in other names added up to the same
        planned[placement_id] = ProfileRun(
            placement_id=placement_id, job_id=job_id, gpu_type=gpu_type, node_id=room.node_id
        )
    return tuple(planned.values())


def _lacking(
    state: State, fits: Modules, types: Types, patience: int, late: Iterable[JobId]
) -> Iterator[Lacking]:
    """Jobs and the types on which each still has to be measured; late jobs come last, those on hold not."""
    jobs = chain(state.jobs.items(), ((job_id, state.profiled[job_id]) for job_id in late))
    for job_id, job in jobs:
        if job_id not in state.on_hold and can_be_measured(job, state):
            for gpu_type in needs_of(job, state, fits, types, patience).wanted:
                yield job_id, job, gpu_type


def _rooms(state: State) -> list[_Room]:
    runs: dict[NodeId, set[PlacementId]] = {}
    for placement_id, run in state.runs.items():
        runs.setdefault(run.plan.node_id, set()).add(placement_id)
    usable = [known.node for _, known in sorted(state.nodes.items()) if known.usable]
    return [
        _room(node, state.workers[node.node_id], runs.get(node.node_id, set()), state.ended)
        for node in usable
    ]


def _room(
    node: Node, workers: Mapping[PlacementId, int], runs: set[PlacementId], ended: Container[PlacementId]
) -> _Room:
    """`workers`: GPUs of the node by placement; `runs`: measurements that the node has or is to make.

    `ended`: measurements that have ended, or were given up.
    """
    lingering = {pid for pid in workers if pid in ended}  # not yet stopped
    gpus_idle = node.gpus - sum(workers.values()) - len(runs - workers.keys())
    gpus_free = node.gpus - len(runs | lingering)
    return _Room(node.node_id, node.gpu_type, node.gpus, gpus_free, gpus_idle)


def _best(
    rooms: Iterable[_Room],
    gpu_type: GpuType,
    but: Collection[NodeId],
    last: Collection[NodeId],
    *,
    idle_only: bool,
) -> _Room | None:
    """`last`: nodes that are taken only where no other has an idle GPU."""
    fitting = [
        room
        for room in rooms
        if room.gpu_type == gpu_type
        and room.node_id not in but
        and (min(room.free, room.idle) if idle_only else room.free) > 0
    ]
    return min(
        fitting,
        key=lambda room: (
            room.idle <= 0,
            room.node_id in last,
            -max(room.idle, 0),
            -room.gpus,
            room.node_id,
        ),
        default=None,
    )


def _placement_id(job_id: JobId, gpu_type: GpuType, serial: str) -> PlacementId:
    return PlacementId(f"profile-{_token(job_id)}-{_token(gpu_type)}-{serial}")


def _token(name: str) -> str:
    """The name as part of a subject: without dots, blanks and wildcards."""
    return quote(name, safe="").replace(".", "%2E")
