"""The groups of a plan: those of the plan before, or new ones where these are due. Pure.

GPUs are grouped again when the nodes or the known workloads change. A group in use keeps its GPUs until it is
idle; then it is formed again, together with all other idle groups. The GPUs of a job that another policy
placed are a group.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import blake2b

import msgspec
import numpy as np

from schemas.ids import GpuType, JobId, NodeId
from schemas.placement import Configuration
from services.planner.policies.contract.view import ViewNode
from services.planner.policies.hlas.grouping import grouped, on_nodes
from services.planner.policies.hlas.memory import GpuGroup, HlasMemory

GPUS_OF_A_GROUP = 4
"""the mean number of GPUs in a group, unless the option `groups` says how many groups there are"""


class Formed(msgspec.Struct, frozen=True):
    """The groups of a plan."""

    groups: tuple[GpuGroup, ...]
    held: dict[JobId, tuple[int, ...]]
    """by running job: the positions of its groups"""

    @property
    def idle(self) -> list[int]:
        """Positions of the groups that no job has."""
        taken = {group for groups in self.held.values() for group in groups}
        return [group for group in range(len(self.groups)) if group not in taken]


def group_count(gpus: int, asked: int) -> int:
    """U, the number of groups. `asked`: the option `groups`; 0: one for every `GPUS_OF_A_GROUP` GPUs."""
    return min(asked or -(-gpus // GPUS_OF_A_GROUP), gpus)


def formed(
    nodes: Sequence[ViewNode],
    groups: int,
    before: HlasMemory,
    running: Mapping[JobId, Configuration],
    speeds: Mapping[str, dict[GpuType, float]],
) -> Formed:
    """The groups of a plan. `groups`: U; `running`: GPUs of running jobs; `speeds`: as in `HlasMemory`."""
    basis = _basis(nodes, groups, speeds)
    room = Counter({node.node_id: node.gpus for node in nodes})
    for place in running.values():
        room.subtract(place)
    kept: dict[int, JobId | None] = {}
    own: dict[JobId, GpuGroup] = {}
    for job_id, place in running.items():
        old = _old_groups(before, job_id, place, room)
        kept |= dict.fromkeys(old, job_id)
        if not old:
            own[job_id] = GpuGroup(place, "")
    idle = [index for index in range(len(before.groups)) if index not in kept]
    if _are_up_to_date([before.groups[index] for index in idle], basis, room):
        kept |= dict.fromkeys(idle, None)
        fresh: tuple[GpuGroup, ...] = ()
    else:
        size = sum(node.gpus for node in nodes) / max(groups, 1)
        runs = [before.groups[index] for index in kept] + list(own.values())
        running_count = sum(max(round(sum(group.place.values()) / size), 1) for group in runs)
        places = _fresh(nodes, room, groups - running_count, speeds)
        fresh = tuple([GpuGroup(place, basis) for place in places])
    return _numbered([(before.groups[index], kept[index]) for index in sorted(kept)], own, fresh)


def _numbered(
    kept: Sequence[tuple[GpuGroup, JobId | None]], own: Mapping[JobId, GpuGroup], fresh: Sequence[GpuGroup]
) -> Formed:
    rows = [*kept, *[(group, job_id) for job_id, group in own.items()], *[(group, None) for group in fresh]]
    held: dict[JobId, tuple[int, ...]] = {}
    for index, (_, job_id) in enumerate(rows):
        if job_id is not None:
            held[job_id] = (*held.get(job_id, ()), index)
    return Formed(tuple([group for group, _ in rows]), held)


def _old_groups(
    before: HlasMemory, job_id: JobId, place: Configuration, room: Counter[NodeId]
) -> tuple[int, ...]:
    """The groups that the job had, if it runs on their GPUs only; else none.

    GPUs of these groups that the job does not use are taken out of `room`.
    """
    known = before.jobs.get(job_id)
    if known is None or not known.groups:
        return ()
    rest = Counter[NodeId]()
    for group in known.groups:
        rest.update(before.groups[group].place)
    rest.subtract(place)
    if any(gpus < 0 or gpus > room[node_id] for node_id, gpus in rest.items()):
        return ()
    room.subtract(rest)
    return known.groups


def _are_up_to_date(idle: Sequence[GpuGroup], basis: str, room: Counter[NodeId]) -> bool:
    found = Counter[NodeId]()
    for group in idle:
        found.update(group.place)
    return +found == +room and all(group.basis == basis for group in idle)


def _fresh(
    nodes: Sequence[ViewNode],
    room: Counter[NodeId],
    groups: int,
    speeds: Mapping[str, dict[GpuType, float]],
) -> tuple[Configuration, ...]:
    """New groups of the GPUs in `room`: as many as `groups`, but at least one, and no more than GPUs."""
    types = sorted({node.gpu_type for node in nodes if room[node.node_id] > 0})
    rows = [
        (node.node_id, types.index(node.gpu_type), room[node.node_id])
        for node in nodes
        if room[node.node_id] > 0
    ]
    supply = np.zeros(len(types), dtype=np.int32)
    for _, kind, gpus in rows:
        supply[kind] += gpus
    if not rows:
        return ()
    table = [[known.get(kind, 0.0) for kind in types] for known in speeds.values()]
    speed = np.array(table, dtype=np.float64).reshape(len(table), len(types))
    return on_nodes(grouped(speed, supply, min(max(groups, 1), int(supply.sum()))), rows)


def _basis(nodes: Sequence[ViewNode], groups: int, workloads: Mapping[str, object]) -> str:
    """A hash of what the groups are formed for: nodes, number of groups, workloads."""
    shape = [(node.node_id, node.gpu_type, node.gpus) for node in nodes]
    return blake2b(msgspec.msgpack.encode((shape, groups, sorted(workloads))), digest_size=8).hexdigest()
