"""Gives jobs shares of GPUs. This replaces Hare's list of all tasks, which is too long to plan. Pure.

Jobs come in ascending order of time left over weight. Each takes GPUs for the D tasks of a round, one after
the other, where the task ends first on what is left of the GPU:

    k_m := 0;    D times: m = argmin (k_m + 1) · p_m / (1 − u_m) over u_m < FULL,  k_m += 1
    T = max_m k_m · p_m / (1 − u_m) + exchange;                                    u_m += k_m · p_m / T

p_m are the seconds of a task on GPU m, u_m is the share of the GPU's time that is given away already, and T
are the seconds of the job's round. While a job exchanges gradients, and on GPUs that wait for slower ones of
its round, other jobs compute.

GPUs are divided into *rooms*, and no job has tasks in two of them. A job makes a new room of GPUs that are in
none, or joins one. So no rota grows beyond the GPUs that its first job took. Of all rooms that exist, or
could be made on one GPU, on one node or anywhere, a job takes the one with the least

    (rounds left · weight) · T + weighted seconds that are lost by all jobs that then move

A room of the last plan goes on unless a job makes another room of its GPUs, so a new job that joins it moves
no other job. And no job moves for a round that is only little shorter (`GAINS`), since the next event may
bring others.

A job gets no tasks on a GPU if

- it would make less than one round in TURNS_MOST rounds of the fastest job there: its turn would delay the
  others by more than the share that is left;
- `residents_max` jobs have tasks there already;
- its memory has no room for the job beside them.
"""

import heapq
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np

from services.planner.policies.hare.ground import NOBODY, BlockPlace, BlockProspect, Ground, RoomOffers
from services.planner.policies.hare.parts import (
    FULL,
    GAINS,
    RESIDENTS_MOST,
    TURNS_MOST,
    Block,
    BlockJob,
    BlockOffer,
    HareRoom,
    Held,
)
from shared.domain.arrays import Flags, Floats

NEARLY = 1.0 + 1e-9
"""more than by what rounding lets a lower bound exceed what it bounds"""


def blocks(
    queue: Iterable[BlockJob],
    nodes: Sequence[Sequence[int]],
    held: Sequence[Held] = (),
    residents_max: int = RESIDENTS_MOST,
    *,
    kinds: Sequence[int] = (),
    alike: Sequence[int] = (),
    hurries: Callable[[], bool] = lambda: False,
) -> list[HareRoom]:
    """The rooms in which some job gets tasks; the first job of the queue is served first.

    `nodes`: the GPUs of each. `residents_max`: jobs with tasks on one GPU at most, except those that keep it.
    `kinds`: by GPU, what `BlockJob` has figures for; by default each is of its own. `alike`: by node, equal
    where an exchange of gradients takes the same time; by default nowhere. `hurries`: asked before each job;
    if true, the job stays where it is, or else starts on idle GPUs, and no more is looked at.
    """
    jobs, gpus = list(queue), sum(map(len, nodes))
    ground = Ground(
        jobs,
        nodes,
        held,
        residents_max=residents_max,
        kinds=kinds or range(gpus),
        alike=alike or range(len(nodes)),
    )
    plan = _Plan(jobs, held, ground)
    for number, job in enumerate(jobs):
        if job.kept:
            plan.keep(number, job)
        else:
            plan.seat(number, job, hurries=hurries())
    return [room for room in ground.rooms if room.blocks]


class _Plan:
    def __init__(self, jobs: Sequence[BlockJob], held: Sequence[Held], ground: Ground) -> None:
        self._jobs, self.ground = jobs, ground
        self._own = {job: number for number, one in enumerate(held) for job in one.jobs}
        for number, one in enumerate(held):
            if one.fixed:
                ground.open(HareRoom(gpus=one.gpus, held=number, open=one.open))
        for job in jobs:
            for gpu in job.kept:
                ground.add_resident(job, gpu)

    def keep(self, number: int, job: BlockJob) -> None:
        """Give a job that may not be moved the tasks that it has."""
        ground = self.ground
        exchange_s = job.exchange_s(sorted(job.kept))
        left = {gpu: max(1.0 - ground.used.item(gpu), 1.0 - FULL) for gpu in job.kept}
        busy_s = max(count * job.task_s[ground.kinds[gpu]] / left[gpu] for gpu, count in job.kept.items())
        own = Block(job=number, tasks=dict(job.kept), exchange_s=exchange_s, round_s=busy_s + exchange_s)
        room = ground.room_of[next(iter(job.kept))]
        assert room != NOBODY, "of what is fixed there are rooms from the beginning"
        self._assign(job, own, room)

    def seat(self, number: int, job: BlockJob, *, hurries: bool = False) -> None:
        """Give a job tasks in the room of least cost; none, if there is no room that it can use."""
        ground, held = self.ground, self._own.get(number)
        outside = ground.at_once(job, held) if hurries else ground.outside(job, held)
        rooms = ground.in_rooms(job, held, every=not hurries)
        found = _Search(self, number, job, list(outside), rooms).best()
        if found is not None:
            own, offer = found
            self._assign(job, own, self._new_room(offer, own) if offer.room is None else offer.room)
            for gpu in own.tasks:
                ground.add_resident(job, gpu)

    def in_time(self, number: int, offer: BlockOffer) -> Block | None:
        """The job's tasks dealt to those of these GPUs where its round is not too long; None: to none."""
        job, gpus = self._jobs[number], offer.gpus
        each_s = dict(zip(gpus, offer.each_s, strict=True))
        longest_s = dict(zip(gpus, self.ground.longest_s[list(gpus)].tolist(), strict=True))
        own = _dealt(number, job, gpus, each_s, self._preferred(job))
        while own is not None and own.round_s > min([longest_s[gpu] for gpu in own.tasks]):
            gpus = [gpu for gpu in gpus if own.round_s <= longest_s[gpu]]
            own = _dealt(number, job, gpus, each_s, self._preferred(job))
        return own

    def cost(self, number: int, offer: BlockOffer, round_s: float, used: Collection[int]) -> float:
        """The cost for the job itself, if its rounds take `round_s` there.

        `used`: the GPUs on which it gets tasks; empty: not known yet.
        """
        job, own = self._jobs[number], self._own.get(number)
        if own is not None and own == offer.held:
            return job.worth * round_s
        gains = GAINS if own is not None else 1.0
        known = offer.room is not None or offer.held is not None
        gpus = offer.gpus if known else sorted(used)
        if offer.room is not None:
            gpus = self.ground.rooms[offer.room].gpus
        warm = job.switching_s < job.moving_s and (not gpus or _stands_by(job, gpus))
        return job.worth * round_s * gains + (job.switching_s if warm else job.moving_s)

    def costs_of_rooms(self, number: int, offers: RoomOffers, round_s: Floats) -> Floats:
        """`cost` of each offer of a room, if rounds take so long there."""
        job, own = self._jobs[number], self._own.get(number)
        start_s: Floats = np.full(len(round_s), job.moving_s)
        if job.switching_s < job.moving_s:
            start_s[self._warm(job, offers)] = job.switching_s
        if own is None:
            return job.worth * round_s + start_s
        return np.where(offers.held == own, job.worth * round_s, job.worth * round_s * GAINS + start_s)

    def _warm(self, job: BlockJob, offers: RoomOffers) -> Flags:
        """Whether its processes stand by in each of these rooms."""
        rooms = self.ground.rooms
        near = (
            set(offers.room.tolist()) if job.near is None else {self.ground.room_of[gpu] for gpu in job.near}
        )
        warm = [one for one in near if one != NOBODY and _stands_by(job, rooms[one].gpus)]
        return np.isin(offers.room, warm)

    def displaced_s(self, number: int, offer: BlockOffer, own: Block) -> float:
        """The cost for jobs that have to move, since the job takes over their GPUs or all their time."""
        if offer.room is not None or (offer.held is not None and self._load(own) < FULL):
            return 0.0
        return self.ground.lost_s(own.tasks, number)

    def _load(self, own: Block) -> float:
        """The share of time that the job takes of the GPU that it uses most."""
        task_s, kinds = self._jobs[own.job].task_s, self.ground.kinds
        return max(tasks * task_s[kinds[gpu]] for gpu, tasks in own.tasks.items()) / own.round_s

    def _preferred(self, job: BlockJob) -> Callable[[int], int]:
        """The rank of a GPU among equally fast ones: the job's own nodes first, GPUs held by others last."""
        own, held_of = job.own_node_gpus, self.ground.held_of
        return lambda gpu: 0 if gpu in own else 1 if held_of[gpu] == NOBODY else 2

    def _new_room(self, offer: BlockOffer, own: Block) -> int:
        """A new room by the offer: of held GPUs as they are, or of the GPUs that the block uses."""
        gpus = sorted(own.tasks) if offer.held is None else offer.gpus
        return self.ground.open(HareRoom(gpus=tuple(gpus), held=offer.held))

    def _assign(self, job: BlockJob, own: Block, number: int) -> None:
        ground = self.ground
        room = ground.rooms[number]
        room.blocks = [*room.blocks, own]
        shares = {
            gpu: tasks * job.task_s[ground.kinds[gpu]] / own.round_s for gpu, tasks in own.tasks.items()
        }
        ground.give(number, shares, TURNS_MOST * own.round_s)


class _Search:
    """The search for the offer of least cost: by a lower bound, the least first."""

    def __init__(
        self, plan: _Plan, number: int, job: BlockJob, outside: Sequence[BlockProspect], rooms: RoomOffers
    ) -> None:
        self._plan, self._number, self._job, self._rooms = plan, number, job, rooms
        self._looked_at: dict[BlockPlace, tuple[float, Block] | None] = {}
        self._outside = sorted(
            [(plan.cost(number, one.offer, one.least_s, ()), one.place, one.offer) for one in outside],
            key=lambda one: one[:2],
        )
        self._least = plan.costs_of_rooms(number, rooms, rooms.least_s)
        self._shortest = plan.costs_of_rooms(number, rooms, rooms.task_s)

    def best(self) -> tuple[Block, BlockOffer] | None:
        found: tuple[float, Block, BlockOffer] | None = None
        for least, place, offer in self._in_order():
            if found and least >= found[0]:
                break
            if found and self._plan.cost(self._number, offer, min(offer.each_s), ()) >= found[0]:
                continue  # a round is no shorter than its shortest task
            looked = self._look(place, offer)
            if looked is not None and (found is None or looked[0] < found[0]):
                found = *looked, offer
        return found and found[1:]

    def _in_order(self) -> Iterator[tuple[float, BlockPlace, BlockOffer]]:
        """The offers, by their lower bounds. Those of rooms that cost more than some other are left out."""
        able = np.flatnonzero(self._rooms.least_s < np.inf)
        limit = np.inf
        for _, place, offer in self._outside[:1]:
            limit = self._limit(place, offer)
        if len(able):
            first = int(able[self._least[able].argmin()])
            limit = min(limit, self._limit(self._rooms.place(first), self._offer(first)))
        able = able[(self._least[able] <= limit * NEARLY) & (self._shortest[able] <= limit)]
        rooms = [(self._least.item(one), self._rooms.place(one), one) for one in able.tolist()]
        yield from heapq.merge(
            self._outside,
            ((least, place, self._offer(one)) for least, place, one in sorted(rooms)),
            key=lambda one: one[:2],
        )

    def _limit(self, place: BlockPlace, offer: BlockOffer) -> float:
        looked = self._look(place, offer)
        return np.inf if looked is None else looked[0]

    def _offer(self, index: int) -> BlockOffer:
        rooms = self._rooms
        return self._plan.ground.offer_in(self._job, int(rooms.room[index]), unused=bool(rooms.unused[index]))

    def _look(self, place: BlockPlace, offer: BlockOffer) -> tuple[float, Block] | None:
        """The cost of an offer, and the job's part in the plan there."""
        if place not in self._looked_at:
            plan, number = self._plan, self._number
            own, found = plan.in_time(number, offer), None
            if own is not None:
                itself = plan.cost(number, offer, own.round_s, own.tasks)
                found = itself + plan.displaced_s(number, offer, own), own
            self._looked_at[place] = found
        return self._looked_at[place]


def _stands_by(job: BlockJob, gpus: Collection[int]) -> bool:
    return (job.near is None or job.near.issuperset(gpus)) and job.stands_by(sorted(gpus))


def _dealt(
    number: int,
    job: BlockJob,
    gpus: Sequence[int],
    each_s: Mapping[int, float],
    preferred: Callable[[int], int],
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


def components(plan: Sequence[Block]) -> Iterator[list[Block]]:
    """The groups of blocks that share GPUs, directly or through others; each in the order of the plan."""
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
