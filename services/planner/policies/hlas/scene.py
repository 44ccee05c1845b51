"""What HLAS decides: the order of the jobs, and which groups and tasks each gets. Pure."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np

from schemas.ids import GpuType, JobId, NodeId
from schemas.placement import Configuration, Gang
from services.planner.policies.contract.view import ViewNode
from services.planner.policies.hlas.contenders import Contender
from services.planner.policies.hlas.forming import Formed, formed, group_count
from services.planner.policies.hlas.memory import HlasMemory, with_speeds
from services.planner.policies.hlas.options import HlasOptions
from services.planner.policies.hlas.room import GpuRoom, present_places, summed, take
from services.planner.policies.hlas.service import Claimant, served
from services.planner.policies.hlas.tasks import gang, groups_needed
from shared.domain.arrays import Flags


class Arrangement(msgspec.Struct, frozen=True, kw_only=True):
    """The decision, before throughputs are known."""

    formed: Formed
    speeds: dict[str, dict[GpuType, float]]
    """speeds of all known workloads, as in `HlasMemory`"""
    queue: tuple[Contender, ...]
    """all jobs in order, with their groups and gangs"""


def scene(
    room: GpuRoom, before: HlasMemory, waiting: Sequence[Contender], options: HlasOptions
) -> Arrangement:
    """The decision for these jobs. `waiting`: all jobs, running ones too, each in its queue of now."""
    gpus = sum(node.gpus for node in room.nodes)
    groups = group_count(gpus, options.groups)
    speeds = with_speeds(before, [(one.job.workload or one.job.job_id, one.rates) for one in waiting])
    shape = formed(room.nodes, groups, before, room.running, speeds)
    need = {one.job.job_id: groups_needed(one.scale, gpus, groups) for one in waiting}
    partial_first = options.hlas_fill == "one-each"
    queue = _ordered(waiting, shape, need if partial_first else dict.fromkeys(need, 0))
    places = present_places(room, shape)
    usable = _Usable(room.nodes, places)
    kinds = {node.node_id: node.gpu_type for node in room.nodes}
    claimants = [
        Claimant(
            need=need[one.job.job_id],
            usable=usable.by(one.rates),
            held=shape.held.get(one.job.job_id, ()),
            warm=_warm(one, kinds, places),
            fixed=one.job.stays,
        )
        for one in queue
    ]
    idle = [group for group in shape.idle if places[group]]
    got = served(claimants, idle, partial_first=partial_first)
    owned = [msgspec.structs.replace(one, groups=each) for one, each in zip(queue, got, strict=True)]
    return Arrangement(formed=shape, speeds=speeds, queue=tuple(_with_gangs(room, shape, owned, options)))


def _ordered(waiting: Sequence[Contender], shape: Formed, need: Mapping[JobId, int]) -> list[Contender]:
    """The jobs in the order in which they are served. Ties go to the earlier submission, then the smaller id.

    `need`: how many groups each job has tasks for. Within a queue, jobs that have fewer groups than that, and
    not none, come first.
    """

    def urgency(one: Contender) -> tuple[object, ...]:
        place, further, entered_at = one.queue_place.urgency(one.rounds)
        held = len(shape.held.get(one.job.job_id, ()))
        partial = 0 < held < need.get(one.job.job_id, 0)
        return place, not partial, further, entered_at, one.job.submitted_at, one.job.job_id

    return sorted(waiting, key=urgency)


def _warm(one: Contender, kinds: Mapping[NodeId, GpuType], places: Sequence[Configuration]) -> frozenset[int]:
    """The groups where a process of the job stands by for each GPU that the job can use."""
    if not one.job.warm:
        return frozenset()
    own = [{on: gpus for on, gpus in place.items() if kinds[on] in one.rates} for place in places]
    return frozenset(group for group, place in enumerate(own) if one.job.stands_by(place))


class _Usable:
    """Which groups a job can use, by the types that it can run on."""

    def __init__(self, nodes: Sequence[ViewNode], places: Sequence[Configuration]) -> None:
        kinds = {node.node_id: node.gpu_type for node in nodes}
        self._kinds = [frozenset([kinds[node_id] for node_id in place]) for place in places]
        self._known: dict[frozenset[GpuType], Flags] = {}

    def by(self, rates: Mapping[GpuType, float]) -> Flags:
        wanted = frozenset(rates)
        if wanted not in self._known:
            self._known[wanted] = np.array(
                [not wanted.isdisjoint(kinds) for kinds in self._kinds], dtype=bool
            )
        return self._known[wanted]


def _with_gangs(
    room: GpuRoom, shape: Formed, queue: Sequence[Contender], options: HlasOptions
) -> Iterator[Contender]:
    """The jobs with their gangs. A job that keeps its groups keeps its gang."""
    keeps = {
        one.job.job_id
        for one in queue
        if one.job.present is not None
        and one.job.job_id in room.running
        and (one.job.stays or one.groups == shape.held.get(one.job.job_id))
    }
    kind_of = {node.node_id: node.gpu_type for node in room.nodes}
    free = room.free(keeps)
    for one in queue:
        if one.job.job_id in keeps:
            assert one.job.present is not None, "as above"
            yield msgspec.structs.replace(one, gang=one.job.present.gang)
            continue
        whole = summed([shape.groups[group].place for group in one.groups])
        place = {node_id: gpus for node_id, gpus in whole.items() if kind_of[node_id] in one.rates}
        found = _gang(one, take(place, dict(free)), kind_of, options)
        if found is not None:
            take(found.configuration, free)
        yield msgspec.structs.replace(one, gang=found, groups=one.groups if found else ())


def _gang(
    one: Contender, place: Configuration, kind_of: Mapping[NodeId, GpuType], options: HlasOptions
) -> Gang | None:
    """The gang of a job on a place: its present one, if that is the same; None: the place is empty."""
    if not place:
        return None
    task_s = {node_id: one.job.batch_size / one.rates[kind_of[node_id]] for node_id in place}
    found = gang(place, task_s, one.scale, options.hlas_fill)
    present = one.job.present
    return present.gang if present is not None and present.gang == found else found
