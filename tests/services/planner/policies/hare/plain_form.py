"""`blocks` in its plain form, which looks at every GPU and at every room for each job. Slow."""

import heapq
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

import msgspec

from services.planner.policies.hare.parts import (
    FULL,
    GAINS,
    RESIDENTS_MOST,
    TURNS_MOST,
    Block,
    BlockJob,
    HareRoom,
    Held,
)
from shared.domain.sums import plain_sum


class PlainRoom(HareRoom, kw_only=True):
    unused: list[int] = []
    """its GPUs on which no job has tasks, once some job has tasks on others"""
    full: bool = False
    """none of its GPUs takes another job"""


class _Offer(msgspec.Struct, frozen=True):
    """GPUs on which a job may get tasks: of a room, or for a new one."""

    gpus: Sequence[int]
    room: PlainRoom | None = None
    """None: a room is made, of `held` or else of the GPUs on which the job gets tasks"""
    held: int | None = None
    """the position of the `Held` of which the room is made"""


def plain_blocks(
    queue: Iterable[BlockJob],
    nodes: Sequence[Sequence[int]],
    held: Sequence[Held] = (),
    residents_max: int = RESIDENTS_MOST,
) -> list[PlainRoom]:
    """The rooms in which some job gets tasks; the first job of the queue is served first.

    `nodes`: the GPUs of each. `residents_max`: jobs with tasks on one GPU at most, except those that keep it.
    """
    jobs = list(queue)
    plan = _Plan(jobs, nodes, held, residents_max)
    for number, job in enumerate(jobs):
        if job.kept:
            plan.keep(number, job)
        else:
            plan.seat(number, job)
    return [room for room in plan.rooms if room.blocks]


class _Plan:
    def __init__(
        self,
        jobs: Sequence[BlockJob],
        nodes: Sequence[Sequence[int]],
        held: Sequence[Held],
        residents_max: int,
    ) -> None:
        gpus = sum(map(len, nodes))
        self._jobs, self._nodes, self._held, self._residents_max = jobs, nodes, held, residents_max
        self._used, self._residents, self._memory = [0.0] * gpus, [0] * gpus, [0.0] * gpus
        self._longest_s = [math.inf] * gpus
        """by GPU: the longest round that a further job may have there"""
        self._room_of: list[PlainRoom | None] = [None] * gpus
        self._held_of: list[int | None] = [None] * gpus
        """by GPU: the position of its `Held`, unless a room has been made of that"""
        self._own = {job: number for number, one in enumerate(held) for job in one.jobs}
        self.rooms: list[PlainRoom] = []
        for number, one in enumerate(held):
            for gpu in one.gpus:
                self._held_of[gpu] = number
            if one.fixed:
                self._open(PlainRoom(gpus=one.gpus, held=number, open=one.open))
        for job in jobs:
            for gpu in job.kept:
                self._add_resident(job, gpu)

    def keep(self, number: int, job: BlockJob) -> None:
        """Give a job that may not be moved the tasks that it has."""
        exchange_s = job.exchange_s(sorted(job.kept))
        left = {gpu: max(1.0 - self._used[gpu], 1.0 - FULL) for gpu in job.kept}
        busy_s = max(count * job.task_s[gpu] / left[gpu] for gpu, count in job.kept.items())
        own = Block(job=number, tasks=dict(job.kept), exchange_s=exchange_s, round_s=busy_s + exchange_s)
        room = self._room_of[next(iter(job.kept))]
        assert room is not None, "of what is fixed there are rooms from the beginning"
        self._assign(job, own, room)

    def seat(self, number: int, job: BlockJob) -> None:
        """Give a job tasks in the room of least cost; none, if there is no room that it can use."""
        free = self._free(job)
        each_s = [
            own / left if left and own <= left * longest_s else math.inf
            for own, left, longest_s in zip(job.task_s, free, self._longest_s, strict=True)
        ]
        rates = [1.0 / own for own in each_s]
        offers = [
            (self._cost(number, offer, _least_s(job, offer, rates), ()), place, offer)
            for place, offer in enumerate(self._offers(each_s))
        ]
        found: tuple[float, Block, _Offer] | None = None
        for least, _, offer in sorted(offers, key=lambda one: one[:2]):
            if found and least >= found[0]:
                break
            if found and self._cost(number, offer, min([each_s[gpu] for gpu in offer.gpus]), ()) >= found[0]:
                continue  # a round is no shorter than its shortest task
            own = self._in_time(number, job, offer.gpus, each_s)
            if own is None:
                continue
            cost = self._cost(number, offer, own.round_s, own.tasks) + self._displaced_s(number, offer, own)
            if found is None or cost < found[0]:
                found = cost, own, offer
        if found is not None:
            _, own, offer = found
            self._assign(job, own, offer.room or self._new_room(offer, own))
            for gpu in own.tasks:
                self._add_resident(job, gpu)

    def _in_time(
        self, number: int, job: BlockJob, gpus: Sequence[int], each_s: Sequence[float]
    ) -> Block | None:
        """The job's tasks dealt to those of these GPUs where its round is not too long; None: to none."""
        own = _dealt(number, job, gpus, each_s, self._preferred(job))
        while own is not None and own.round_s > min(self._longest_s[gpu] for gpu in own.tasks):
            gpus = [gpu for gpu in gpus if own.round_s <= self._longest_s[gpu]]
            own = _dealt(number, job, gpus, each_s, self._preferred(job))
        return own

    def _free(self, job: BlockJob) -> list[float]:
        """By GPU: the share of its time that the job could have; 0: the job may not have tasks there."""
        takes = job.memory or [0.0] * len(self._used)
        fits = [not there or there + own <= 1.0 for there, own in zip(self._memory, takes, strict=True)]
        return [
            1.0 - used if used < FULL and residents < self._residents_max and may else 0.0
            for used, residents, may in zip(self._used, self._residents, fits, strict=True)
        ]

    def _cost(self, number: int, offer: _Offer, round_s: float, used: Collection[int]) -> float:
        """The cost for the job itself, if its rounds take `round_s` there.

        `used`: the GPUs on which it gets tasks; empty: not known yet.
        """
        job, own = self._jobs[number], self._own.get(number)
        if own is not None and own == (offer.room.held if offer.room else offer.held):
            return job.worth * round_s
        gains = GAINS if own is not None else 1.0
        gpus = offer.room.gpus if offer.room else offer.gpus if offer.held is not None else sorted(used)
        warm = job.switching_s < job.moving_s and (not gpus or job.stands_by(gpus))
        return job.worth * round_s * gains + (job.switching_s if warm else job.moving_s)

    def _displaced_s(self, number: int, offer: _Offer, own: Block) -> float:
        """The cost for jobs that have to move, since the job takes over their GPUs or all their time."""
        if offer.room is not None or (offer.held is not None and self._load(own) < FULL):
            return 0.0
        held = {one for gpu in own.tasks if (one := self._held_of[gpu]) is not None}
        jobs = {job for one in held for job in self._held[one].jobs} - {number}
        return plain_sum(self._jobs[job].moving_s for job in sorted(jobs))

    def _load(self, own: Block) -> float:
        """The share of time that the job takes of the GPU that it uses most."""
        task_s = self._jobs[own.job].task_s
        return max(tasks * task_s[gpu] for gpu, tasks in own.tasks.items()) / own.round_s

    def _offers(self, each_s: Sequence[float]) -> Iterator[_Offer]:
        """The GPUs on which a job could get tasks.

        First new rooms of GPUs that no job holds, then rooms, then held GPUs that could become a room, last
        new rooms that include held GPUs.
        """
        unclaimed = [
            [gpu for gpu in node if self._room_of[gpu] is None and each_s[gpu] < math.inf]
            for node in self._nodes
        ]
        nodes = [gpus for gpus in unclaimed if gpus]
        idle = [[gpu for gpu in gpus if self._held_of[gpu] is None] for gpus in nodes]
        yield from _new_rooms(idle, each_s)
        for room in self.rooms:
            if room.open and not room.full:
                yield _Offer(room.gpus, room)
                if 0 < len(room.unused) < len(room.gpus):
                    yield _Offer(room.unused, room)
        for number, one in enumerate(self._held):
            if one.open and self._held_of[one.gpus[0]] == number:
                yield _Offer(one.gpus, held=number)
        if nodes != idle:
            yield from _new_rooms(nodes, each_s)

    def _preferred(self, job: BlockJob) -> Callable[[int], int]:
        """The rank of a GPU among equally fast ones: the job's own nodes first, GPUs held by others last."""
        return lambda gpu: 0 if gpu in job.own_node_gpus else 1 if self._held_of[gpu] is None else 2

    def _new_room(self, offer: _Offer, own: Block) -> PlainRoom:
        """A new room by the offer: of held GPUs as they are, or of the GPUs that the block uses."""
        if offer.held is not None:
            return self._open(PlainRoom(gpus=tuple(offer.gpus), held=offer.held))
        for one in {self._held_of[gpu] for gpu in own.tasks} - {None}:
            assert one is not None
            for gpu in self._held[one].gpus:
                self._held_of[gpu] = None
        return self._open(PlainRoom(gpus=tuple(sorted(own.tasks)), held=None))

    def _open(self, room: PlainRoom) -> PlainRoom:
        for gpu in room.gpus:
            self._room_of[gpu], self._held_of[gpu] = room, None
        self.rooms.append(room)
        return room

    def _add_resident(self, job: BlockJob, gpu: int) -> None:
        self._residents[gpu] += 1
        self._memory[gpu] += job.memory[gpu] if job.memory else 0.0

    def _assign(self, job: BlockJob, own: Block, room: PlainRoom) -> None:
        room.blocks = [*room.blocks, own]
        for gpu, tasks in own.tasks.items():
            self._used[gpu] += tasks * job.task_s[gpu] / own.round_s
            self._longest_s[gpu] = min(self._longest_s[gpu], TURNS_MOST * own.round_s)
        room.unused = [gpu for gpu in room.gpus if not self._used[gpu]]
        room.full = all(self._used[gpu] >= FULL for gpu in room.gpus)


def _new_rooms(nodes: Sequence[Sequence[int]], each_s: Sequence[float]) -> Iterator[_Offer]:
    """New rooms: on the GPU with the shortest task, on one node, or anywhere."""
    anywhere = [gpu for gpus in nodes for gpu in gpus]
    if anywhere:
        yield _Offer([min(anywhere, key=lambda gpu: (each_s[gpu], gpu))])
    for gpus in nodes:
        if 1 < len(gpus) < len(anywhere):
            yield _Offer(gpus)
    if len(anywhere) > 1:
        yield _Offer(anywhere)


def _least_s(job: BlockJob, offer: _Offer, rates: Sequence[float]) -> float:
    """A lower bound on the seconds of a round: that of tasks which can be divided at will."""
    rate = plain_sum([rates[gpu] for gpu in offer.gpus])
    return job.tasks / rate if rate else math.inf


def _dealt(
    number: int, job: BlockJob, gpus: Sequence[int], each_s: Sequence[float], preferred: Callable[[int], int]
) -> Block | None:
    """The job's tasks dealt to these GPUs; None: it can use none of them.

    `each_s`: by GPU, the seconds of a task on what is left of its time.
    """
    usable = [(each_s[gpu], preferred(gpu), gpu) for gpu in gpus if each_s[gpu] < math.inf]
    if not usable:
        return None
    ends = usable if len(usable) <= job.tasks else heapq.nsmallest(job.tasks, usable)
    heapq.heapify(ends)
    tasks: dict[int, int] = {}
    for _ in range(job.tasks):
        _, rank, gpu = ends[0]
        tasks[gpu] = tasks.get(gpu, 0) + 1
        heapq.heapreplace(ends, ((tasks[gpu] + 1) * each_s[gpu], rank, gpu))
    exchange_s = job.exchange_s(sorted(tasks))
    return Block(
        job=number,
        tasks=dict(sorted(tasks.items())),
        exchange_s=exchange_s,
        round_s=max(count * each_s[gpu] for gpu, count in tasks.items()) + exchange_s,
    )
