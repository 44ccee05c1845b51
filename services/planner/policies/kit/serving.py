"""Serves a queue in its order: which jobs run where, and which wait. Pure.

Every policy that decides by order alone uses this walk down the queue. It gives each job the first of these
places that is free: the place that it has, a place on no GPU of a job that keeps running, any place. A job
that does not fit is skipped. In a strict queue it holds up all jobs of its line that come after it, unless it
would not fit the empty cluster either.

A preemptive queue is walked twice. The first walk finds which running jobs go on running at all; the second
avoids the GPUs of those only, so a job that goes on is moved only where nothing else is free. If the second
leaves out a job that the first placed, since others took the only GPUs that it can use, it is done again with
that job ahead of all others, on its place of the first walk. If this does not place all of them soon, the
first walk counts.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from schemas.ids import GpuType, JobId, NodeId
from schemas.placement import Configuration
from services.planner.policies.kit.gangs import Pools, Style, free_by_type, place

SECOND_WALKS = 4
"""second walks at most; each takes as long as the first"""


class QueuedJob(msgspec.Struct, frozen=True, kw_only=True):
    """What the walk needs of a job."""

    job_id: JobId
    gpus: int
    """0: no count of its demand fits the empty cluster"""
    types: tuple[GpuType, ...]
    """those it can run on, the best first"""
    held: Configuration = {}
    """where it runs, or is about to; empty: it waits"""
    style: Style = Style.FEWEST_NODES
    line: str = ""
    """in a strict queue, a job is held up by jobs of the same line only"""


class Served(msgspec.Struct, frozen=True, kw_only=True):
    placed: dict[JobId, Configuration]
    behind: dict[JobId, JobId | None]
    """by waiting job: the job that holds it up; None: it fits nowhere now"""


class Room:
    """Free GPUs by node during a walk.

    `free`: all GPUs that are not given away yet. `spare`: those of them that are not held by a job that shall
    keep running.
    """

    def __init__(self, pools: Pools, idle: Mapping[NodeId, int], kept: Mapping[JobId, Configuration]) -> None:
        self.free = dict(idle)
        self.spare = dict(idle)
        self._pools = pools
        self._kept = dict(kept)
        self._type_of = {node: gpu_type for gpu_type, pool in pools.items() for node in pool.nodes}
        self._free_sums = free_by_type(pools, self.free)
        self._spare_sums = dict(self._free_sums)
        self._most = max(self._free_sums.values(), default=0)
        """free GPUs of the type that has most"""
        self._full: set[tuple[int, tuple[GpuType, ...], Style]] = set()
        """GPU count, types and style of jobs that found no place"""
        for held in kept.values():
            self._shift(self.spare, self._spare_sums, held, -1)

    def has(self, place: Configuration) -> bool:
        free = self.free
        for node, gpus in place.items():
            if gpus > free.get(node, 0):
                return False
        return bool(place)

    def release(self, job_id: JobId) -> None:
        """The job is next, so the GPUs it holds are spare for it."""
        held = self._kept.pop(job_id, None)
        if held:
            self._shift(self.spare, self._spare_sums, held, 1)

    def take(self, place: Configuration) -> None:
        assert self.has(place), "GPUs are given once"
        self._shift(self.free, self._free_sums, place, -1)
        self._shift(self.spare, self._spare_sums, place, -1)
        self._most = max(self._free_sums.values())

    def find(self, job: QueuedJob) -> Configuration | None:
        """A place for a job, on spare GPUs if possible.

        GPUs are only taken, never given back, so a job like one that found no place finds none.
        """
        wish = (job.gpus, job.types, job.style)
        if not 0 < job.gpus <= self._most or wish in self._full:
            return None
        rooms = ((self.spare, self._spare_sums), (self.free, self._free_sums))
        for gpus, sums in rooms if self._kept else rooms[1:]:
            found = place(job.gpus, types=job.types, pools=self._pools, free=gpus, style=job.style, sums=sums)
            if found is not None:
                return found
        self._full.add(wish)
        return None

    def _shift(
        self, gpus: dict[NodeId, int], sums: dict[GpuType, int], place: Configuration, sign: int
    ) -> None:
        for node, count in place.items():
            if node in gpus:
                before = gpus[node]
                gpus[node] = after = before + sign * count
                sums[self._type_of[node]] += max(after, 0) - max(before, 0)


def served(
    queue: Sequence[QueuedJob], pools: Pools, idle: Mapping[NodeId, int], *, strict: bool, preemptive: bool
) -> Served:
    """The places of a queue, the first job served first.

    Without `preemptive`, running jobs come before all others.
    """
    spare = _spare(idle, [job.held for job in queue if job.held])
    if spare is not None:
        found = _beside(queue, pools, spare, strict=strict, preemptive=preemptive)
        if found is not None:
            return found
    return walked(queue, pools, idle, strict=strict, preemptive=preemptive)


def walked(
    queue: Sequence[QueuedJob], pools: Pools, idle: Mapping[NodeId, int], *, strict: bool, preemptive: bool
) -> Served:
    """As `served`, by the full walks of the module's docstring."""
    running = {job.job_id: job.held for job in queue if job.held}
    if not preemptive:
        room = Room(pools, idle, running)
        stayers_first = sorted(queue, key=lambda job: not room.has(job.held))
        return _walk(stayers_first, room, strict=strict)
    first = _walk(queue, Room(pools, idle, running), strict=strict)
    staying = {job_id: held for job_id, held in running.items() if job_id in first.placed}
    if len(staying) == len(running):
        return first
    for _ in range(SECOND_WALKS):
        again = _walk(queue, Room(pools, idle, staying), strict=strict)
        lost = first.placed.keys() - again.placed.keys()
        if not lost:
            return again
        queue = _ahead(queue, {job_id: first.placed[job_id] for job_id in lost})
    return first


def _ahead(queue: Sequence[QueuedJob], places: Mapping[JobId, Configuration]) -> Sequence[QueuedJob]:
    """The queue with some jobs before all others, each with the place that it gets."""
    rest = [job for job in queue if job.job_id not in places]
    taken = [job for job in queue if job.job_id in places]
    return [msgspec.structs.replace(job, held=places[job.job_id]) for job in taken] + rest


def _spare(idle: Mapping[NodeId, int], held: Iterable[Configuration]) -> dict[NodeId, int] | None:
    """The idle GPUs that the `held` places leave; None where these do not all fit the idle GPUs."""
    spare = dict(idle)
    for own in held:
        for node, gpus in own.items():
            left = spare.get(node, 0) - gpus
            if left < 0:
                return None
            spare[node] = left
    return spare


def _beside(
    queue: Sequence[QueuedJob], pools: Pools, spare: dict[NodeId, int], *, strict: bool, preemptive: bool
) -> Served | None:
    """The walk if all running jobs stay and the others get spare GPUs; it takes fewer steps.

    None where a waiting job might get a place by preemption: the full walk has to decide.
    """
    waiting = [job for job in queue if not job.held]
    others = Served(placed={}, behind={})
    if waiting:
        others = _walk(waiting, Room(pools, spare, {}), strict=strict)
    if not preemptive:
        staying = {job.job_id: job.held for job in queue if job.held}
        return Served(placed=staying | others.placed, behind=others.behind)
    placed: dict[JobId, Configuration] = {}
    waits_before = False
    for job in queue:
        place = job.held or others.placed.get(job.job_id)
        if place:
            if waits_before and job.held:
                return None
            placed[job.job_id] = place
        elif job.gpus:
            waits_before = True
    return Served(placed=placed, behind=others.behind)


def _walk(queue: Sequence[QueuedJob], room: Room, *, strict: bool) -> Served:
    placed: dict[JobId, Configuration] = {}
    behind: dict[JobId, JobId | None] = {}
    blocked: dict[str, JobId] = {}
    for job in queue:
        if job.held:
            room.release(job.job_id)
        by = blocked.get(job.line) if job.gpus else None
        where = None
        if by is None:
            stays = job.held and room.has(job.held)
            where = job.held if stays else room.find(job)
        if where is not None:
            placed[job.job_id] = where
            room.take(where)
            continue
        behind[job.job_id] = by
        if strict and job.gpus:
            blocked.setdefault(job.line, job.job_id)
    return Served(placed=placed, behind=behind)
