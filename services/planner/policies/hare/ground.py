"""The GPUs of a plan while jobs get shares of them, and what they offer to the next job. Pure.

Of offers that cost a job the same only the first is made, so their number hardly grows with the cluster:

- GPUs that are in no room have all of their time left, so nodes with equally many such GPUs of a kind are
  alike to any job that neither runs nor stands by there; so are GPUs that are held together.
- Where a new room ends what jobs have now, of nodes that are else alike the one is offered where these lose
  the least.

Rooms differ, and are looked at in arrays (`RoomOffers`).
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from services.planner.policies.hare.parts import FULL, BlockJob, BlockOffer, HareRoom, Held
from shared.domain.arrays import Flags, Floats
from shared.domain.sums import plain_sum

Numbers = npt.NDArray[np.int64]
BlockPlace = tuple[int, int]
"""the rank of an offer among those that cost the same; the smallest is taken"""
NEW, JOINED, CONTINUED, TAKEN = range(4)
"""first part of a place: new rooms on idle GPUs, rooms, held GPUs, new rooms that include held GPUs"""
NOBODY = -1


class BlockProspect(msgspec.Struct, frozen=True):
    """An offer before it is looked at closely."""

    place: BlockPlace
    least_s: float
    """a lower bound on the seconds of a round: that of tasks which can be divided at will"""
    offer: BlockOffer


class RoomOffers(msgspec.Struct, frozen=True):
    """The offers of the rooms that take further jobs, in the order of their places."""

    room: Numbers
    unused: Flags
    """whether only those GPUs of the room are offered on which no job has tasks"""
    least_s: Floats
    """as in `BlockProspect`"""
    task_s: Floats
    """the seconds of the shortest task"""
    held: Numbers
    """what each room goes on from; `NOBODY`: nothing"""

    def place(self, index: int) -> BlockPlace:
        return JOINED, 2 * int(self.room[index]) + bool(self.unused[index])


class Ground:
    def __init__(
        self,
        jobs: Sequence[BlockJob],
        nodes: Sequence[Sequence[int]],
        held: Sequence[Held],
        *,
        residents_max: int,
        kinds: Sequence[int],
        alike: Sequence[int],
    ) -> None:
        gpus = sum(map(len, nodes))
        self._jobs, self._nodes, self._held, self._alike = jobs, nodes, held, alike
        self._residents_max = residents_max
        self.kinds = list(kinds)
        self._kind: Numbers = np.array(self.kinds, dtype=np.int64)
        self._node_of = {gpu: node for node, own in enumerate(nodes) for gpu in own}
        self._order: Numbers = np.array([gpu for own in nodes for gpu in own], dtype=np.int64)
        self.used, self.longest_s = np.zeros(gpus), np.full(gpus, np.inf)
        """by GPU: the share of its time that is given away; the longest round that a job may have there"""
        self._memory, self._residents = np.zeros(gpus), np.zeros(gpus, dtype=np.int64)
        self.room_of = [NOBODY] * gpus
        self.held_of = [NOBODY] * gpus
        """by GPU: the position of its `Held`, unless a room has been made of that"""
        for number, one in enumerate(held):
            for gpu in one.gpus:
                self.held_of[gpu] = number
        self.rooms: list[HareRoom] = []
        self._rooms = _Rooms(gpus)
        self._free = _FreeNodes(self, nodes, alike)
        self._alike_held = _AlikeHeld(self, held, self._look_of)
        self.is_idle: Flags = np.array([one == NOBODY for one in self.held_of], dtype=bool)
        self.is_unclaimed: Flags = np.ones(gpus, dtype=bool)

    # ---- changes

    def open(self, room: HareRoom) -> int:
        """Make a room; what its GPUs were held by ends. Returns its number."""
        ended = {self.held_of[gpu] for gpu in room.gpus} - {NOBODY, room.held}
        left = [gpu for one in ended for gpu in self._held[one].gpus]
        number = len(self.rooms)
        for gpu in left:
            self.held_of[gpu] = NOBODY
        for gpu in room.gpus:
            self.room_of[gpu], self.held_of[gpu] = number, NOBODY
        self.is_idle[left] = True
        self.is_idle[list(room.gpus)] = self.is_unclaimed[list(room.gpus)] = False
        self.rooms.append(room)
        self._rooms.add(room)
        for node in sorted({self._node_of[gpu] for gpu in (*left, *room.gpus)}):
            self._free.look(node)
        return number

    def add_resident(self, job: BlockJob, gpu: int) -> None:
        self._residents[gpu] += 1
        self._memory[gpu] += job.memory[self.kinds[gpu]] if job.memory else 0.0

    def give(self, room: int, shares: Mapping[int, float], longest_s: float) -> None:
        """Give away shares of time of a room's GPUs. `longest_s`: of a round that a further job may have."""
        for gpu, share in shares.items():
            self.used[gpu] += share
            self.longest_s[gpu] = min(self.longest_s[gpu], longest_s)
        self._rooms.look(room, self.used[list(self.rooms[room].gpus)])

    # ---- what jobs lose

    def lost_s(self, gpus: Collection[int], but: int) -> float:
        """Weighted seconds that jobs lose if a new room takes these GPUs; the job `but` does not count."""
        held = {one for gpu in gpus if (one := self.held_of[gpu]) != NOBODY}
        jobs = {job for one in held for job in self._held[one].jobs} - {but}
        return plain_sum(self._jobs[job].moving_s for job in sorted(jobs))

    # ---- offers

    def _look_of(self, gpus: Sequence[int]) -> object:
        """Equal for GPUs that are alike to jobs elsewhere: by kinds, and how they are spread over nodes."""
        if list(gpus) != sorted(gpus):
            return tuple(gpus)
        nodes = [self._node_of[gpu] for gpu in gpus]
        place = {node: number for number, node in enumerate(dict.fromkeys(nodes))}
        return tuple(
            (self.kinds[gpu], place[on], self._alike[on]) for gpu, on in zip(gpus, nodes, strict=True)
        )

    def outside(self, job: BlockJob, own: int | None) -> Iterator[BlockProspect]:
        """Offers of GPUs in no room. `own`: what the job holds."""
        task_s = np.array(job.task_s)
        near = self._near(job, own)
        idle, some_held = self.is_idle[self._order], bool((self.is_unclaimed & ~self.is_idle).any())
        yield from self._anywhere(job, task_s, self._order[idle], NEW)
        usable = int((task_s < np.inf)[self._kind[self.is_idle]].sum())
        for node in self._free.idle(near):
            yield from self._new(job, self._free.idle_on[node], (NEW, 1 + node), usable)
        for number in self._alike_held.first(self._near_held(near)):
            yield self._prospect(job, self._held[number].gpus, (CONTINUED, number), held=number)
        if some_held:
            yield from self._anywhere(job, task_s, self._order[self.is_unclaimed[self._order]], TAKEN)
            usable = int((task_s < np.inf)[self._kind[self.is_unclaimed]].sum())
            for node in self._free.unclaimed(near, job.tasks):
                yield from self._new(job, self._free.unclaimed_on[node], (TAKEN, 1 + node), usable)

    def at_once(self, job: BlockJob, own: int | None) -> Iterator[BlockProspect]:
        """What the job holds, or else idle GPUs: offers that are found in no time."""
        if own is not None and self.held_of[self._held[own].gpus[0]] == own:
            goes_on = own if self._held[own].open else None
            yield self._prospect(job, self._held[own].gpus, (CONTINUED, own), held=goes_on)
        else:
            yield from self._anywhere(job, np.array(job.task_s), self._order[self.is_idle[self._order]], NEW)

    def is_held(self, number: int) -> bool:
        """Whether these GPUs are still held, and other jobs may join."""
        one = self._held[number]
        return one.open and self.held_of[one.gpus[0]] == number

    def _near(self, job: BlockJob, own: int | None) -> Numbers:
        """The nodes where the job runs or stands by; all, where that is not known."""
        if job.near is None:
            return np.arange(len(self._nodes), dtype=np.int64)
        gpus = job.near if own is None else job.near.union(self._held[own].gpus)
        return np.array(sorted({self._node_of[gpu] for gpu in gpus}), dtype=np.int64)

    def _near_held(self, near: Numbers) -> set[int]:
        return {self.held_of[gpu] for node in near.tolist() for gpu in self._nodes[node]} - {NOBODY}

    def _prospect(
        self, job: BlockJob, gpus: Sequence[int], place: BlockPlace, held: int | None = None
    ) -> BlockProspect:
        each_s = [job.task_s[self.kinds[gpu]] for gpu in gpus]
        rate = plain_sum([1.0 / one for one in each_s])
        return BlockProspect(place, job.tasks / rate if rate else np.inf, BlockOffer(gpus, each_s, held=held))

    def _new(
        self, job: BlockJob, unclaimed: Sequence[int], place: BlockPlace, most: int
    ) -> Iterator[BlockProspect]:
        """A new room on one node, which has several of these GPUs and not all (`most`)."""
        gpus = [gpu for gpu in unclaimed if job.task_s[self.kinds[gpu]] < np.inf]
        if 1 < len(gpus) < most:
            yield self._prospect(job, gpus, place)

    def _anywhere(self, job: BlockJob, task_s: Floats, gpus: Numbers, stage: int) -> Iterator[BlockProspect]:
        """New rooms on the GPU with the shortest task, or on any of these GPUs."""
        each_s = task_s[self._kind[gpus]]
        usable = each_s < np.inf
        gpus, each_s = gpus[usable], each_s[usable]
        if not len(gpus):
            return
        fastest = int(gpus[each_s == each_s.min()].min())
        yield self._prospect(job, [fastest], (stage, 0))
        if len(gpus) > 1:
            least_s = job.tasks / float(np.add.accumulate(1.0 / each_s)[-1])  # one after the other
            first = self._first(job, gpus, each_s)
            offer = BlockOffer(first, [job.task_s[self.kinds[gpu]] for gpu in first])
            yield BlockProspect((stage, 1 + len(self._nodes)), least_s, offer)

    def _first(self, job: BlockJob, gpus: Numbers, each_s: Floats) -> list[int]:
        """The GPUs of these that tasks would be dealt to: no more than there are tasks."""
        count = job.tasks
        if len(gpus) <= count:
            return self._as_list(gpus)
        last = np.partition(each_s, count - 1)[count - 1]
        sure, ties = gpus[each_s < last], np.sort(gpus[each_s == last])
        rank = np.where(self.is_idle[ties], 1, 2)
        if job.own_node_gpus:
            rank[np.isin(ties, list(job.own_node_gpus))] = 0
        return self._as_list(sure) + self._as_list(ties[np.argsort(rank, kind="stable")][: count - len(sure)])

    @staticmethod
    def _as_list(gpus: Numbers) -> list[int]:
        found: list[int] = gpus.tolist()
        return found

    # ---- rooms

    def in_rooms(self, job: BlockJob, own: int | None = None, *, every: bool = True) -> RoomOffers:
        """Offers of GPUs in rooms: in all, or in the one that goes on from what the job holds (`own`)."""
        rooms = self._rooms
        live = rooms.live()
        if not every:
            live = live[(rooms.held[live] == own) & (own is not None)]
        seats = rooms.seats(live)
        each_s = self._each_s(job, rooms.gpu[seats])
        local = np.repeat(np.arange(len(live)), rooms.size[live])
        whole = self._bounds(job, local, each_s, len(live))
        unused = self.used[rooms.gpu[seats]] == 0.0
        some = (rooms.unused[live] > 0) & (rooms.unused[live] < rooms.size[live])
        rest = self._bounds(job, local, np.where(unused, each_s, np.inf), len(live))
        return _joined(live, some, whole, rest, rooms.held[live])

    def offer_in(self, job: BlockJob, room: int, *, unused: bool) -> BlockOffer:
        gpus = self._rooms.gpu[self._rooms.seats(np.array([room]))]
        if unused:
            gpus = gpus[self.used[gpus] == 0.0]
        return BlockOffer(
            self._as_list(gpus), self._each_s(job, gpus).tolist(), room=room, held=self.rooms[room].held
        )

    def _each_s(self, job: BlockJob, gpus: Numbers) -> Floats:
        """Seconds of a task on what is left of each GPU's time; inf: the job may not have tasks there."""
        kind = self._kind[gpus]
        own, used = np.array(job.task_s)[kind], self.used[gpus]
        may = (used < FULL) & (self._residents[gpus] < self._residents_max)
        if any(job.memory):
            there = self._memory[gpus]
            may &= (there == 0.0) | (there + np.array(job.memory)[kind] <= 1.0)
        left = 1.0 - used
        with np.errstate(divide="ignore", invalid="ignore"):
            found: Floats = np.where(may & (own <= left * self.longest_s[gpus]), own / left, np.inf)
        return found

    @staticmethod
    def _bounds(job: BlockJob, local: Numbers, each_s: Floats, rooms: int) -> tuple[Floats, Floats]:
        """By room: the least seconds of a round if tasks could be divided, and of a task."""
        if not rooms:
            return np.empty(0), np.empty(0)
        rate = np.bincount(local, weights=1.0 / each_s, minlength=rooms)  # one after the other
        starts = np.searchsorted(local, np.arange(rooms))
        with np.errstate(divide="ignore"):
            return job.tasks / rate, np.minimum.reduceat(each_s, starts)


def _joined(
    live: Numbers, some: Flags, whole: tuple[Floats, Floats], rest: tuple[Floats, Floats], held: Numbers
) -> RoomOffers:
    """The offers of whole rooms, and of what no job uses of `some` of them."""
    room = np.concatenate([live, live[some]])
    unused = np.repeat([False, True], [len(live), int(some.sum())])
    order = np.lexsort((unused, room))
    return RoomOffers(
        room=room[order],
        unused=unused[order],
        least_s=np.concatenate([whole[0], rest[0][some]])[order],
        task_s=np.concatenate([whole[1], rest[1][some]])[order],
        held=np.concatenate([held, held[some]])[order],
    )


class _Rooms:
    """The rooms as arrays; of the GPUs, room after room."""

    def __init__(self, gpus: int) -> None:
        self.gpu: Numbers = np.zeros(gpus, dtype=np.int64)
        self.count = self._seats = 0
        self.start, self.size, self.unused, self.held = (np.zeros(gpus, dtype=np.int64) for _ in range(4))
        self._takes_more = np.zeros(gpus, dtype=bool)

    def add(self, room: HareRoom) -> None:
        end = self._seats + len(room.gpus)
        self.gpu[self._seats : end] = room.gpus
        self.start[self.count], self.size[self.count] = self._seats, len(room.gpus)
        self.held[self.count] = NOBODY if room.held is None else room.held
        self._takes_more[self.count] = room.open
        self._seats, self.count = end, self.count + 1

    def look(self, room: int, used: Floats) -> None:
        """Some GPU of the room has got a job."""
        self.unused[room] = (used == 0.0).sum()
        self._takes_more[room] &= bool((used < FULL).any())

    def live(self) -> Numbers:
        """The rooms that take further jobs."""
        return np.flatnonzero(self._takes_more[: self.count])

    def seats(self, rooms: Numbers) -> Numbers:
        """The places of their GPUs in `gpu`, room after room."""
        size = self.size[rooms]
        ends = np.cumsum(size)
        found: Numbers = np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(
            self.start[rooms] - ends + size, size
        )
        return found


class _FreeNodes:
    """The GPUs of each node that are in no room, and which nodes are alike in these."""

    def __init__(self, ground: Ground, nodes: Sequence[Sequence[int]], alike: Sequence[int]) -> None:
        self._ground, self._nodes, self._alike = ground, nodes, alike
        self._names: dict[Any, int] = {}
        self.idle_on: list[list[int]] = [[] for _ in nodes]
        self.unclaimed_on: list[list[int]] = [[] for _ in nodes]
        self._idle_name, self._name = (np.full(len(nodes), NOBODY, dtype=np.int64) for _ in range(2))
        """by node: equal where nodes are alike; `NOBODY`: it has no such GPUs, or for the second none held"""
        self._idle_count, self._free_count = (np.zeros(len(nodes), dtype=np.int64) for _ in range(2))
        self._lost_s = np.zeros((len(nodes), max(map(len, nodes), default=0) + 1))
        """by node and number of held GPUs that are taken: what jobs lose"""
        for node in range(len(nodes)):
            self.look(node)

    def look(self, node: int) -> None:
        """GPUs of the node have changed hands."""
        ground = self._ground
        free = [gpu for gpu in self._nodes[node] if ground.room_of[gpu] == NOBODY]
        idle = [gpu for gpu in free if ground.held_of[gpu] == NOBODY]
        self.idle_on[node], self.unclaimed_on[node] = idle, free
        self._idle_count[node], self._free_count[node] = len(idle), len(free)
        self._idle_name[node] = self._named(node, idle)
        taken = sorted(set(free).difference(idle))
        self._name[node] = self._named(node, free, apart=True) if taken else NOBODY
        for count in range(1, len(taken) + 1):
            self._lost_s[node, count] = ground.lost_s(taken[:count], NOBODY)

    def _named(self, node: int, gpus: Sequence[int], *, apart: bool = False) -> int:
        """`apart`: a node with several kinds is like no other."""
        if not gpus:
            return NOBODY
        kinds = tuple([self._ground.kinds[gpu] for gpu in gpus])
        key = (self._alike[node], kinds) if not apart or len(set(kinds)) == 1 else (node,)
        return self._names.setdefault(key, len(self._names))

    def idle(self, near: Numbers) -> list[int]:
        """Of nodes whose idle GPUs are alike the first, and all near ones."""
        return self._first(self._idle_name, near, np.arange(len(self._nodes)))

    def unclaimed(self, near: Numbers, tasks: int) -> list[int]:
        """The same for nodes with held GPUs; the first where the least is lost."""
        taken = np.minimum(self._free_count, tasks) - self._idle_count
        lost_s = self._lost_s[np.arange(len(taken)), np.maximum(taken, 0)]
        return self._first(self._name, near, np.argsort(lost_s, kind="stable"))

    @staticmethod
    def _first(names: Numbers, near: Numbers, order: Numbers) -> list[int]:
        distant = np.ones(len(names), dtype=bool)
        distant[near] = False
        order = order[distant[order]]
        _, first = np.unique(names[order], return_index=True)
        every = np.concatenate([order[first], near])
        found: list[int] = every[names[every] != NOBODY].tolist()
        return found


class _AlikeHeld:
    """Which of the GPUs that are held together are alike."""

    def __init__(self, ground: Ground, held: Sequence[Held], name: Callable[[Sequence[int]], object]) -> None:
        self._ground = ground
        loss = [ground.lost_s(one.gpus, NOBODY) for one in held]
        by_name: dict[object, list[int]] = {}
        for number, one in enumerate(held):
            by_name.setdefault(name(one.gpus), []).append(number)
        orders = [sorted(alike, reverse=True) for alike in by_name.values()]
        orders += [
            sorted(alike, key=lambda one: (loss[one], one), reverse=True) for alike in by_name.values()
        ]
        self._last_first = orders

    def first(self, near: Collection[int]) -> set[int]:
        """Of those that are alike the first, and the first whose jobs lose least; and all near ones."""
        found = {number for number in near if self._ground.is_held(number)}
        for order in self._last_first:
            while order and not self._ground.is_held(order[-1]):
                order.pop()  # what has ended is not held again
            found.update(islice((one for one in reversed(order) if self._is_other(one, near)), 1))
        self._last_first = [order for order in self._last_first if order]
        return found

    def _is_other(self, number: int, near: Collection[int]) -> bool:
        return number not in near and self._ground.is_held(number)
