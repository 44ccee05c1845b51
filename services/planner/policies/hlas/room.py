"""Which GPUs running jobs hold when a plan begins, and which can be given to jobs. Pure."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from schemas.ids import JobId, NodeId
from schemas.placement import Configuration, Relaxed
from schemas.plans import PlanKind
from services.planner.policies.contract.view import View, ViewNode
from services.planner.policies.hlas.forming import Formed
from services.planner.policies.hlas.memory import HlasMemory


class GpuRoom(msgspec.Struct, frozen=True, kw_only=True):
    """The GPUs of a plan."""

    nodes: tuple[ViewNode, ...]
    """the nodes that run relaxed gangs"""
    running: dict[JobId, Configuration]
    """the GPUs of jobs that run and can go on"""
    shows_running: bool
    """whether the view has the running jobs, so that their GPUs count as idle; the view of a fragment plan
    does not have them"""

    def free(self, but: Iterable[JobId] | None = None) -> dict[NodeId, int]:
        """Idle GPUs by node, without those of the jobs `but`; None: without those of all running jobs."""
        free = {node.node_id: node.idle for node in self.nodes}
        if self.shows_running:
            for job_id in self.running if but is None else but:
                for node_id, gpus in self.running[job_id].items():
                    free[node_id] -= gpus
        return free


def nodes_of(view: View) -> tuple[ViewNode, ...]:
    """The nodes that run relaxed gangs."""
    return tuple([node for node in view.nodes if Relaxed.tag() in node.modes])


def room_of(view: View, before: HlasMemory) -> GpuRoom:
    nodes = nodes_of(view)
    shows_running = view.kind is PlanKind.FIRST
    if shows_running:
        free = {node.node_id: node.idle for node in nodes}
        first = sorted(view.jobs, key=lambda job: not job.stays)
        held = [(job.job_id, job.present.gang.configuration) for job in first if job.present is not None]
    else:
        free = {node.node_id: node.gpus for node in nodes}
        shown = {job.job_id for job in view.jobs}
        others = [(job_id, job) for job_id, job in before.jobs.items() if job_id not in shown and job.groups]
        held = [(job_id, summed([before.groups[one].place for one in job.groups])) for job_id, job in others]
    return GpuRoom(nodes=nodes, running=dict(_fitting(held, free)), shows_running=shows_running)


def _fitting(
    held: Iterable[tuple[JobId, Configuration]], free: dict[NodeId, int]
) -> Iterator[tuple[JobId, Configuration]]:
    for job_id, place in held:
        if all(gpus <= free.get(node_id, 0) for node_id, gpus in place.items()):
            take(place, free)
            yield job_id, place


def take(place: Configuration, free: dict[NodeId, int]) -> Configuration:
    """As many GPUs of the place as are free; they are taken out of `free`."""
    found = {node_id: min(gpus, free.get(node_id, 0)) for node_id, gpus in place.items()}
    for node_id, gpus in found.items():
        if gpus:
            free[node_id] -= gpus
    return {node_id: gpus for node_id, gpus in found.items() if gpus}


def summed(places: Sequence[Configuration]) -> Configuration:
    found: Configuration = {}
    for place in places:
        for node_id, gpus in place.items():
            found[node_id] = found.get(node_id, 0) + gpus
    return found


def present_places(room: GpuRoom, shape: Formed) -> list[Configuration]:
    """By group: its GPUs that can be used now. Those of an idle group may be taken by measurements."""
    free, idle = room.free(), set(shape.idle)
    return [
        take(group.place, free) if index in idle else group.place for index, group in enumerate(shape.groups)
    ]
