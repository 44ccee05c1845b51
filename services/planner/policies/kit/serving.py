"""Serves a queue in its order: which jobs run where, and which wait. Pure.

One walk for every policy that decides by order alone. It goes down the queue and gives each job the
first of: the place it has, a place that disturbs no job that keeps running, any place. What does not
fit is skipped; in a strict queue it holds up all of its line that come after it, unless it would not
fit the empty cluster either.

Preemptive queues are walked twice: the first walk finds which running jobs keep running at all, the
second leaves alone only those, so that a job that runs on is moved only where nothing else helps.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from schemas.ids import GpuType, JobId, NodeId
from schemas.placement import Configuration
from services.planner.policies.kit.gangs import Pools, Style, free_by_type, place


class QueuedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job as the queue sees it."""

    job_id: JobId
    gpus: int
    """0: no count of its demand fits the empty cluster"""
    types: tuple[GpuType, ...]
    """those it can run on, the best first"""
    held: Configuration = {}
    """where it runs, or is about to"""
    style: Style = Style.FEWEST_NODES
    line: str = ""
    """of a strict queue: jobs are held up by jobs of the same line only"""


class Served(msgspec.Struct, frozen=True, kw_only=True):
    placed: dict[JobId, Configuration]
    behind: dict[JobId, JobId | None]
    """those left waiting: the job that holds each up; None: nothing fits it now"""


class Room:
    """Free GPUs by node: `free`, all of them; `spare`, those held by no job that shall keep running."""

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
        for held in kept.values():
            self._shift(self.spare, self._spare_sums, held, -1)

    def has(self, place: Configuration) -> bool:
        free = self.free
        for node, gpus in place.items():
            if gpus > free.get(node, 0):
                return False
        return bool(place)

    def release(self, job_id: JobId) -> None:
        """The job is next: its own place disturbs nobody any more."""
        held = self._kept.pop(job_id, None)
        if held:
            self._shift(self.spare, self._spare_sums, held, 1)

    def take(self, place: Configuration) -> None:
        assert self.has(place), "GPUs are given once"
        self._shift(self.free, self._free_sums, place, -1)
        self._shift(self.spare, self._spare_sums, place, -1)
        self._most = max(self._free_sums.values())

    def find(self, client: QueuedJob) -> Configuration | None:
        """A place for a job, best one that disturbs nobody. Room only shrinks: what failed will fail."""
        wish = (client.gpus, client.types, client.style)
        if not 0 < client.gpus <= self._most or wish in self._full:
            return None
        rooms = ((self.spare, self._spare_sums), (self.free, self._free_sums))
        for gpus, sums in rooms if self._kept else rooms[1:]:
            found = place(
                client.gpus, types=client.types, pools=self._pools, free=gpus, style=client.style, sums=sums
            )
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
    """`queue`: the first served first. Without preemption running jobs come before all others."""
    spare = _spare(idle, [client.held for client in queue if client.held])
    if spare is not None:
        found = _beside(queue, pools, spare, strict=strict, preemptive=preemptive)
        if found is not None:
            return found
    return walked(queue, pools, idle, strict=strict, preemptive=preemptive)


def walked(
    queue: Sequence[QueuedJob], pools: Pools, idle: Mapping[NodeId, int], *, strict: bool, preemptive: bool
) -> Served:
    """As `served`, by the walks that find out whom preemption ends."""
    running = {client.job_id: client.held for client in queue if client.held}
    if not preemptive:
        room = Room(pools, idle, running)
        stayers_first = sorted(queue, key=lambda client: not room.has(client.held))
        return _walk(stayers_first, room, strict=strict)
    first = _walk(queue, Room(pools, idle, running), strict=strict)
    staying = {job_id: held for job_id, held in running.items() if job_id in first.placed}
    if len(staying) == len(running):
        return first
    return _walk(queue, Room(pools, idle, staying), strict=strict)


def _spare(idle: Mapping[NodeId, int], held: Iterable[Configuration]) -> dict[NodeId, int] | None:
    """What is left beside all that is held; None where not all of that has room."""
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
    """All running jobs stay and the others get what is spare: the same walk in fewer steps.

    None where somebody might get a place by preemption.
    """
    waiting = [client for client in queue if not client.held]
    others = Served(placed={}, behind={})
    if waiting:
        others = _walk(waiting, Room(pools, spare, {}), strict=strict)
    if not preemptive:
        staying = {client.job_id: client.held for client in queue if client.held}
        return Served(placed=staying | others.placed, behind=others.behind)
    placed: dict[JobId, Configuration] = {}
    in_need = False
    for client in queue:
        place = client.held or others.placed.get(client.job_id)
        if place:
            if in_need and client.held:
                return None
            placed[client.job_id] = place
        elif client.gpus:
            in_need = True
    return Served(placed=placed, behind=others.behind)


def _walk(queue: Sequence[QueuedJob], room: Room, *, strict: bool) -> Served:
    placed: dict[JobId, Configuration] = {}
    behind: dict[JobId, JobId | None] = {}
    blocked: dict[str, JobId] = {}
    for client in queue:
        if client.held:
            room.release(client.job_id)
        by = blocked.get(client.line) if client.gpus else None
        where = None
        if by is None:
            stays = client.held and room.has(client.held)
            where = client.held if stays else room.find(client)
        if where is not None:
            placed[client.job_id] = where
            room.take(where)
            continue
        behind[client.job_id] = by
        if strict and client.gpus:
            blocked.setdefault(client.line, client.job_id)
    return Served(placed=placed, behind=behind)
