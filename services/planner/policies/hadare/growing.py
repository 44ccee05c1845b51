"""Assignments that are too large to be solved: by marginal gain, then by exchanges. Pure.

`grown` gives the next copy always to the job that gains most by it, on the fastest node that it can have.
A job's gains fall with every copy and nodes only fill up, so what a job gains is reckoned anew only when it
is its turn. `exchanged` then gives the place of a copy to another job, or swaps the places of two copies, as
long as that helps.
"""

import heapq

import numpy as np

from services.planner.policies.hadare.forking import NOWHERE, Forking
from services.planner.solver.budget import Budget
from shared.domain.arrays import Flags, Floats, Ints

LEAST = 1e-9
"""of the whole: what an exchange must bring"""
GAIN_S = 3e-5
LOOK_S = 1e-4
CELL_S = 7e-8
"""of reckoning one gain, of looking at all exchanges of one copy, and for each number that this takes, as
measured on a common server: the modelled seconds"""
SWEEPS = 20
"""through all copies, at most"""


def grown(forking: Forking, on: Flags, budget: Budget) -> Flags:
    """The assignment with copies added until no job can have one more."""
    growth = _Growth(forking, on)
    queue = [(-gain, job) for job in range(len(on)) if (gain := growth.gain(job)) is not None]
    heapq.heapify(queue)
    steps = len(queue)
    while queue:
        steps += 1
        believed, job = heapq.heappop(queue)
        gain = growth.gain(job)
        if gain is not None and -gain <= believed:
            growth.take(job)
            gain = growth.gain(job)
        if gain is not None:
            heapq.heappush(queue, (-gain, job))
    budget.charge(steps * GAIN_S + on.size * CELL_S)
    return growth.on


class _Growth:
    def __init__(self, forking: Forking, on: Flags) -> None:
        self.on = on.copy()
        self._forking = forking
        self._speed = (forking.speed * on).sum(axis=1).tolist()
        self._copies = on.sum(axis=1).tolist()
        self._free = forking.free(on).tolist()
        order = np.lexsort((~forking.here, -forking.speed), axis=1)
        self._order = [row[: int((forking.speed[job] > 0).sum())] for job, row in enumerate(order.tolist())]
        self._next = [0] * len(on)

    def gain(self, job: int) -> float | None:
        """What the job's next copy is worth; None: it can have none."""
        node = self._node(job)
        if node is None:
            return None
        one, copies, speed = self._forking.of(job), self._copies[job], self._speed[job]
        home = int(self._forking.home[job])
        before = one.value(speed, copies, copies == 1 and home != NOWHERE and bool(self.on[job, home]))
        faster = speed + self._forking.speed[job, node]
        after = one.value(faster, copies + 1, copies == 0 and node == home)
        return float(after - before)

    def take(self, job: int) -> None:
        node = self._node(job)
        assert node is not None, "it gains by it"
        self.on[job, node] = True
        self._speed[job] += self._forking.speed[job, node]
        self._copies[job] += 1
        self._free[node] -= self._forking.gpus[job]

    def _node(self, job: int) -> int | None:
        """The fastest that has room; those passed by will have none again."""
        order, gpus = self._order[job], self._forking.gpus[job]
        if self._copies[job] >= self._forking.most[job]:
            return None
        while self._next[job] < len(order):
            node: int = order[self._next[job]]
            if not self.on[job, node] and self._free[node] >= gpus:
                return node
            self._next[job] += 1
        return None


def exchanged(forking: Forking, on: Flags, budget: Budget) -> Flags:
    """An assignment that no exchange of a single place or of two makes better; or what the budget allows."""
    trade = _Trade(forking, on)
    for _ in range(SWEEPS):
        better = False
        for copy in range(len(trade.owner)):
            if budget.left_s <= 0:
                return trade.on
            budget.charge(LOOK_S + (len(on) + len(trade.owner)) * CELL_S)
            better |= trade.improved(copy)
        if not better:
            break
    return trade.on


class _Trade:
    """Copies by number: exchanges change whose they are and where, and never how many."""

    def __init__(self, forking: Forking, on: Flags) -> None:
        self.on = on.copy()
        self.owner, self._place = (where.astype(np.int32) for where in np.nonzero(on))
        self._forking = forking
        self._copies: Ints = on.sum(axis=1).astype(np.int32)
        self._speed = (forking.speed * on).sum(axis=1)
        self._value = forking.values(on)
        self._free = forking.free(on)
        self._least = LEAST * float(self._value.sum())

    def improved(self, copy: int) -> bool:
        """Make the best exchange of one copy, if any is better than none."""
        job, node = int(self.owner[copy]), int(self._place[copy])
        handed, taker = self._handing(job, node)
        swapped, other = self._swapping(job, node)
        if max(handed, swapped) <= self._least:
            return False
        if handed >= swapped:
            self._put(copy, taker, node)
        else:
            their_job, their_node = int(self.owner[other]), int(self._place[other])
            self._put(copy, job, their_node)
            self._put(other, their_job, node)
            taker = their_job
        self._reckon(job)
        self._reckon(taker)
        return True

    def _put(self, copy: int, job: int, node: int) -> None:
        """A copy becomes another job's, or goes to another node."""
        gpus, before, left = self._forking.gpus, self.owner[copy], self._place[copy]
        self.on[before, left] = False
        self._free[left] += gpus[before]
        self.on[job, node] = True
        self._free[node] -= gpus[job]
        self.owner[copy], self._place[copy] = job, node

    def _reckon(self, job: int) -> None:
        on, home = self.on[job], int(self._forking.home[job])
        self._copies[job] = copies = int(on.sum())
        self._speed[job] = speed = float(self._forking.speed[job] @ on)
        at_home = copies == 1 and home != NOWHERE and bool(on[home])
        self._value[job] = float(self._forking.of(job).value(speed, copies, at_home))

    def _handing(self, job: int, node: int) -> tuple[float, int]:
        """What is won by giving the place to another job, and to which."""
        forking = self._forking
        speed = forking.speed[:, node]
        gained = forking.value(
            self._speed + speed, self._copies + 1, (self._copies == 0) & (forking.home == node)
        )
        open_to = (
            (speed > 0)
            & ~self.on[:, node]
            & (self._copies < forking.most)
            & (forking.gpus <= self._free[node] + forking.gpus[job])
        )
        won = np.where(open_to, gained - self._value, -np.inf)
        taker = int(np.argmax(won))
        return float(won[taker]) - self._lost(job, node), taker

    def _lost(self, job: int, node: int) -> float:
        forking = self._forking
        rest, home = int(self._copies[job]) - 1, int(forking.home[job])
        at_home = rest == 1 and home not in (NOWHERE, node) and bool(self.on[job, home])
        left = forking.of(job).value(self._speed[job] - forking.speed[job, node], rest, at_home)
        return float(self._value[job] - left)

    def _swapping(self, job: int, node: int) -> tuple[float, int]:
        """What is won by swapping places with another copy, and with which."""
        forking, owner, place = self._forking, self.owner, self._place
        mine, theirs = forking.speed[job, place], forking.speed[owner, node]
        room = self._free[place] + forking.gpus[owner] >= forking.gpus[job]
        room &= self._free[node] + forking.gpus[job] >= forking.gpus[owner]
        possible = (mine > 0) & (theirs > 0) & ~self.on[job, place] & ~self.on[owner, node] & room
        if not possible.any():
            return -np.inf, 0
        one = forking.of(job)
        own_home = (self._copies[job] == 1) & (place == one.home)
        own = one.value(self._speed[job] - forking.speed[job, node] + mine, self._copies[job], own_home)
        won = own - self._value[job] + self._others(owner, place, node) - self._value[owner]
        best = int(np.argmax(np.where(possible, won, -np.inf)))
        return float(won[best]), best

    def _others(self, owner: Ints, place: Ints, node: int) -> Floats:
        """U of each copy's job with its copy moved to the node."""
        forking = self._forking
        speed = self._speed[owner] - forking.speed[owner, place] + forking.speed[owner, node]
        at_home = (self._copies[owner] == 1) & (forking.home[owner] == node)
        return forking.of(owner).value(np.maximum(speed, 0.0), self._copies[owner], at_home)
