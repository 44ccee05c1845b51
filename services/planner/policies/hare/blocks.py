"""Shares of GPUs in place of a list of tasks: what scales of Hare's offline problem. Pure.

The jobs of the least time left over weight come first. Each takes GPUs for the D tasks of a round, one after
the other where the task ends first on what is left of the GPU:

    k_m := 0;    D times: m = argmin (k_m + 1) · p_m / (1 − u_m) over u_m < FULL,  k_m += 1
    T = max_m k_m · p_m / (1 − u_m) + exchange;                                    u_m += k_m · p_m / T

u_m is the share of GPU m that is spoken for. So while a job exchanges gradients, and on GPUs that wait for
slower ones of its round, others compute.

GPUs are divided into *rooms*, and no job has tasks in two of them: whoever is the first on GPUs makes a
room of those on which it has tasks, and who comes later joins one or makes another. So no rota grows beyond
the GPUs that its first job took. Of all rooms, those that are there and those that could be made on one node,
on one GPU or anywhere, a job takes the one with the least

    (rounds left · weight) · T + what is lost by all who then move

A room of the last plan goes on as long as nobody makes another of its GPUs, so an arrival that joins it
moves nobody; and nobody moves for rounds that are little shorter, since the next event may bring others.
A job has no tasks on a GPU where it would not have one round in TURNS_MOST of the shortest there: its
turn would hold up the others by more than the share that is left; nor where as many jobs are as may be,
or without the memory for it beside them.
"""

import heapq
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from shared.domain.sums import plain_sum

RESIDENTS_MOST = 16
"""jobs whose processes one GPU holds, by default: as of the setting `residents_max`"""
TURNS_MOST = 8
"""rounds of a job in a cycle"""
GAINS = 1.25
"""times as long as at its new place a round of a job takes where it is, at the least, for it to move"""
FULL = 0.98
"""a GPU of which so much is spoken for takes no more jobs"""


class BlockJob(msgspec.Struct, frozen=True, kw_only=True):
    tasks: int
    """D: of a round"""
    task_s: Sequence[float]
    """p [M]: by GPU; inf where it cannot run"""
    exchange_s: Callable[[Sequence[int]], float]
    """of a round with tasks on these GPUs"""
    worth: float = 1.0
    """rounds left times weight: what a second of a round is worth"""
    moving_s: float = 0.0
    """lost when it starts anew, times its weight; 0: it has not run yet"""
    switching_s: float = 0.0
    """the same, to GPUs where its processes stand by"""
    stands_by: Callable[[Sequence[int]], bool] = lambda _: False
    """whether they do on all of these GPUs"""
    memory: Sequence[float] = ()
    """[M]: share of a GPU's memory that it takes; empty: nobody knows"""
    liked: frozenset[int] = frozenset()
    """GPUs that it takes before others that are as good"""
    kept: Mapping[int, int] = {}
    """tasks of a round that it has and keeps, by GPU that has any; none: it may have any"""


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """GPUs on which jobs are by now, together."""

    gpus: tuple[int, ...]
    jobs: frozenset[int]
    """by position in the queue"""
    fixed: bool = False
    """nobody may be moved"""
    open: bool = True
    """others may join"""


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """A job's part in the plan."""

    job: int
    """by position in the queue"""
    tasks: dict[int, int]
    """of a round, by GPU that has any"""
    exchange_s: float
    round_s: float
    """T: from one round to the next, beside those before it in the queue"""


class HareRoom(msgspec.Struct, kw_only=True):
    gpus: tuple[int, ...]
    held: int | None
    """the position of what it goes on from; None: it is new"""
    open: bool = True
    blocks: list[Block] = []
    unused: list[int] = []
    """of its GPUs those where nobody has tasks, once somebody has tasks on others"""
    full: bool = False
    """none of its GPUs takes another job"""


class _Offer(msgspec.Struct, frozen=True):
    gpus: Sequence[int]
    room: HareRoom | None = None
    """None: one is made, of `held` or of the GPUs that are used"""
    held: int | None = None


def blocks(
    queue: Iterable[BlockJob],
    nodes: Sequence[Sequence[int]],
    held: Sequence[Held] = (),
    residents_max: int = RESIDENTS_MOST,
) -> list[HareRoom]:
    """The rooms in which somebody gets GPUs, the first in the queue served first.

    `nodes`: the GPUs of each. `residents_max`: jobs with tasks on one GPU; more only where they keep it.
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
        """of a round of somebody who comes"""
        self._room_of: list[HareRoom | None] = [None] * gpus
        self._held_of: list[int | None] = [None] * gpus
        """what is held and not yet a room"""
        self._own = {job: number for number, one in enumerate(held) for job in one.jobs}
        self.rooms: list[HareRoom] = []
        for number, one in enumerate(held):
            for gpu in one.gpus:
                self._held_of[gpu] = number
            if one.fixed:
                self._open(HareRoom(gpus=one.gpus, held=number, open=one.open))
        for job in jobs:
            for gpu in job.kept:
                self._comes(job, gpu)

    def keep(self, number: int, job: BlockJob) -> None:
        exchange_s = job.exchange_s(sorted(job.kept))
        left = {gpu: max(1.0 - self._used[gpu], 1.0 - FULL) for gpu in job.kept}
        busy_s = max(count * job.task_s[gpu] / left[gpu] for gpu, count in job.kept.items())
        own = Block(job=number, tasks=dict(job.kept), exchange_s=exchange_s, round_s=busy_s + exchange_s)
        room = self._room_of[next(iter(job.kept))]
        assert room is not None, "of what is fixed there are rooms from the beginning"
        self._speaks_for(job, own, room)

    def seat(self, number: int, job: BlockJob) -> None:
        """In no room, if there is none that it can use."""
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
            own = _dealt(number, job, offer.gpus, each_s, self._preferred(job))
            if own is None or own.round_s > min(self._longest_s[gpu] for gpu in own.tasks):
                continue
            cost = self._cost(number, offer, own.round_s, own.tasks) + self._others_s(number, offer, own)
            if found is None or cost < found[0]:
                found = cost, own, offer
        if found is not None:
            _, own, offer = found
            self._speaks_for(job, own, offer.room or self._made(offer, own))
            for gpu in own.tasks:
                self._comes(job, gpu)

    def _free(self, job: BlockJob) -> list[float]:
        """The share of each GPU that is left for the job; 0: it may not go there."""
        takes = job.memory or [0.0] * len(self._used)
        fits = [not there or there + own <= 1.0 for there, own in zip(self._memory, takes, strict=True)]
        return [
            1.0 - used if used < FULL and residents < self._residents_max and may else 0.0
            for used, residents, may in zip(self._used, self._residents, fits, strict=True)
        ]

    def _cost(self, number: int, offer: _Offer, round_s: float, used: Collection[int]) -> float:
        """Of the job itself, were its rounds so long there. `used`: GPUs with tasks; none: not known yet."""
        job, own = self._jobs[number], self._own.get(number)
        if own is not None and own == (offer.room.held if offer.room else offer.held):
            return job.worth * round_s
        gains = GAINS if own is not None else 1.0
        gpus = offer.room.gpus if offer.room else offer.gpus if offer.held is not None else sorted(used)
        warm = job.switching_s < job.moving_s and (not gpus or job.stands_by(gpus))
        return job.worth * round_s * gains + (job.switching_s if warm else job.moving_s)

    def _others_s(self, number: int, offer: _Offer, own: Block) -> float:
        """Of those who move for it: it makes a room of their GPUs, or leaves them nothing there."""
        if offer.room is not None or (offer.held is not None and self._load(own) < FULL):
            return 0.0
        held = {one for gpu in own.tasks if (one := self._held_of[gpu]) is not None}
        jobs = {job for one in held for job in self._held[one].jobs} - {number}
        return plain_sum(self._jobs[job].moving_s for job in sorted(jobs))

    def _load(self, own: Block) -> float:
        """Of the GPU that it uses most."""
        task_s = self._jobs[own.job].task_s
        return max(tasks * task_s[gpu] for gpu, tasks in own.tasks.items()) / own.round_s

    def _offers(self, each_s: Sequence[float]) -> Iterator[_Offer]:
        """GPUs of which it could make a room, those first that nobody has; rooms; what could go on as one."""
        unclaimed = [
            [gpu for gpu in node if self._room_of[gpu] is None and each_s[gpu] < math.inf]
            for node in self._nodes
        ]
        nodes = [gpus for gpus in unclaimed if gpus]
        idle = [[gpu for gpu in gpus if self._held_of[gpu] is None] for gpus in nodes]
        yield from _made_of(idle, each_s)
        for room in self.rooms:
            if room.open and not room.full:
                yield _Offer(room.gpus, room)
                if 0 < len(room.unused) < len(room.gpus):
                    yield _Offer(room.unused, room)
        for number, one in enumerate(self._held):
            if one.open and self._held_of[one.gpus[0]] == number:
                yield _Offer(one.gpus, held=number)
        if nodes != idle:
            yield from _made_of(nodes, each_s)

    def _preferred(self, job: BlockJob) -> Callable[[int], int]:
        """Of GPUs that are as good: its own first, those of others last."""
        return lambda gpu: 0 if gpu in job.liked else 1 if self._held_of[gpu] is None else 2

    def _made(self, offer: _Offer, own: Block) -> HareRoom:
        if offer.held is not None:
            return self._open(HareRoom(gpus=tuple(offer.gpus), held=offer.held))
        for one in {self._held_of[gpu] for gpu in own.tasks} - {None}:
            assert one is not None
            for gpu in self._held[one].gpus:
                self._held_of[gpu] = None
        return self._open(HareRoom(gpus=tuple(sorted(own.tasks)), held=None))

    def _open(self, room: HareRoom) -> HareRoom:
        for gpu in room.gpus:
            self._room_of[gpu], self._held_of[gpu] = room, None
        self.rooms.append(room)
        return room

    def _comes(self, job: BlockJob, gpu: int) -> None:
        self._residents[gpu] += 1
        self._memory[gpu] += job.memory[gpu] if job.memory else 0.0

    def _speaks_for(self, job: BlockJob, own: Block, room: HareRoom) -> None:
        room.blocks = [*room.blocks, own]
        for gpu, tasks in own.tasks.items():
            self._used[gpu] += tasks * job.task_s[gpu] / own.round_s
            self._longest_s[gpu] = min(self._longest_s[gpu], TURNS_MOST * own.round_s)
        room.unused = [gpu for gpu in room.gpus if not self._used[gpu]]
        room.full = all(self._used[gpu] >= FULL for gpu in room.gpus)


def _made_of(nodes: Sequence[Sequence[int]], each_s: Sequence[float]) -> Iterator[_Offer]:
    """One GPU, one node's, or any."""
    anywhere = [gpu for gpus in nodes for gpu in gpus]
    if anywhere:
        yield _Offer([min(anywhere, key=lambda gpu: (each_s[gpu], gpu))])
    for gpus in nodes:
        if 1 < len(gpus) < len(anywhere):
            yield _Offer(gpus)
    if len(anywhere) > 1:
        yield _Offer(anywhere)


def _least_s(job: BlockJob, offer: _Offer, rates: Sequence[float]) -> float:
    """No round is shorter, were its tasks as small as one likes."""
    rate = plain_sum([rates[gpu] for gpu in offer.gpus])
    return job.tasks / rate if rate else math.inf


def _dealt(
    number: int, job: BlockJob, gpus: Sequence[int], each_s: Sequence[float], preferred: Callable[[int], int]
) -> Block | None:
    """`each_s`: of a task on what is left of each GPU. None: it can use none of these."""
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


def components(plan: Sequence[Block]) -> Iterator[list[Block]]:
    """Blocks that share GPUs, directly or by way of others; each in the order of the plan."""
    owner: dict[int, int] = {}
    parent = list(range(len(plan)))

    def root(one: int) -> int:
        while parent[one] != one:
            parent[one] = one = parent[parent[one]]
        return one

    for number, block in enumerate(plan):
        for gpu in block.tasks:
            first, other = sorted((root(owner.setdefault(gpu, number)), root(number)))
            parent[other] = first
    groups: dict[int, list[Block]] = {}
    for number, block in enumerate(plan):
        groups.setdefault(root(number), []).append(block)
    yield from groups.values()
