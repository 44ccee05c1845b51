"""Assignments that are too large for `exact`: by marginal gain, then by exchanges. Pure.

`grown` always gives the next copies to the job that gains most by each, on the fastest nodes that it can
have; of nodes that run no copies a job may keep its own instead. It gives one copy, or the number of copies
with the largest mean gain, since a second copy may not be worth its overhead before there is a third. No job
gets copies by which it gains nothing. A job's gains fall as it gets copies and as nodes fill up, so a gain
is computed again only when its job is first in the queue. It rises, rarely, when the node that the job has
becomes the fastest of those left; then the job comes somewhat later than it should.

`exchanged` then gives the place of a copy to another job, or swaps the places of two copies, as long as that
helps.
"""

import heapq
import math

import numpy as np

from services.planner.policies.hadare.forking import NOWHERE, Forking
from services.planner.solver.budget import Budget
from shared.domain.arrays import Flags, Floats, Ints

LEAST = 1e-9
"""the least gain of an exchange, relative to the whole utility"""
GAIN_S = 3e-5
LOOK_S = 1e-4
CELL_S = 7e-8
"""modelled seconds of computing one gain, of looking at all exchanges of one copy, and for each number that
these compute, as measured on a common server"""
SWEEPS = 20
"""passes through all copies, at most"""


def grown(forking: Forking, on: Flags, budget: Budget) -> Flags:
    """The assignment `on` with copies added, until no job gains by a further one."""
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
        self._alone = forking.alone(on).tolist()
        self._free = forking.free(on)
        order = np.lexsort((~forking.here, -forking.speed), axis=1).astype(np.int32)
        self._order = [row[: int((forking.speed[job] > 0).sum())] for job, row in enumerate(order)]

    def gain(self, job: int) -> float | None:
        """The mean gain of the job's next copies; None: it gains by none."""
        return self._next(job)[0]

    def take(self, job: int) -> None:
        """Give the job its next copies."""
        nodes = self._next(job)[1]
        self.on[job, nodes] = True
        self._speed[job] += float(self._forking.speed[job, nodes].sum())
        self._copies[job] += len(nodes)
        self._alone[job] = not self._forking.forks[nodes].all()
        self._free[nodes] -= self._forking.gpus[job]

    def _next(self, job: int) -> tuple[float | None, Ints]:
        """The mean gain of the next copies, and their nodes.

        Copies go on nodes that run copies; a job without any may go on one other node, where it runs alone:
        the fastest, or the one that it has.
        """
        nodes = self._open(job)
        if self._alone[job]:
            return None, nodes[:0]
        forks = self._forking.forks[nodes]
        options = [nodes[forks]]
        if not self._copies[job] and not forks.all():
            others = nodes[~forks]
            options += [others[:1], others[others == self._forking.home[job]]]
        found = [self._best(job, option) for option in options]
        return max(found, key=lambda one: -math.inf if one[0] is None else one[0])

    def _best(self, job: int, nodes: Ints) -> tuple[float | None, Ints]:
        """The first nodes of those given, as many as have the largest mean gain; and that gain."""
        nodes = nodes[: max(int(self._forking.most[job]) - self._copies[job], 0)]
        if not len(nodes):
            return None, nodes
        one, copies, speed = self._forking.of(job), self._copies[job], self._speed[job]
        more, home = np.arange(1, len(nodes) + 1, dtype=np.int32), int(one.home)
        before = one.value(speed, copies, copies == 1 and home != NOWHERE and bool(self.on[job, home]))
        faster = speed + one.speed[job, nodes].cumsum()
        after = one.value(faster, copies + more, (copies + more == 1) & (nodes[0] == home))
        each = (after - before) / more
        best = int(np.argmax(each))
        gain = float(each[best])
        return (gain, nodes[: best + 1]) if gain > 0.0 else (None, nodes[:0])

    def _open(self, job: int) -> Ints:
        """The nodes that have room for one more copy of the job, the fastest first."""
        order = self._order[job]
        room = (self._free[order] >= self._forking.gpus[job]) & ~self.on[job, order]
        free: Ints = order[room]
        self._order[job] = free  # nodes only fill up: the others never have room again
        return free


def exchanged(forking: Forking, on: Flags, budget: Budget) -> Flags:
    """The assignment after exchanges, until none makes it better or the budget is spent."""
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
    """Copies, numbered: an exchange changes the job or the node of copies, never their number."""

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
        """Make the best exchange of one copy, if it gains enough; returns whether it was made."""
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
        self._update(job)
        self._update(taker)
        return True

    def _put(self, copy: int, job: int, node: int) -> None:
        """Give a copy to another job, or move it to another node."""
        gpus, before, left = self._forking.gpus, self.owner[copy], self._place[copy]
        self.on[before, left] = False
        self._free[left] += gpus[before]
        self.on[job, node] = True
        self._free[node] -= gpus[job]
        self.owner[copy], self._place[copy] = job, node

    def _update(self, job: int) -> None:
        on, home = self.on[job], int(self._forking.home[job])
        self._copies[job] = copies = int(on.sum())
        self._speed[job] = speed = float(self._forking.speed[job] @ on)
        at_home = copies == 1 and home != NOWHERE and bool(on[home])
        self._value[job] = float(self._forking.of(job).value(speed, copies, at_home))

    def _handing(self, job: int, node: int) -> tuple[float, int]:
        """The largest gain from giving the copy's place to another job, and that job."""
        forking = self._forking
        speed = forking.speed[:, node]
        gained = forking.value(
            self._speed + speed, self._copies + 1, (self._copies == 0) & (forking.home == node)
        )
        open_to = (
            (speed > 0)
            & ~self.on[:, node]
            & (self._copies < forking.most)
            & ((self._copies == 0) | (forking.forks[node] & ~forking.alone(self.on)))
            & (forking.gpus <= self._free[node] + forking.gpus[job])
        )
        won = np.where(open_to, gained - self._value, -np.inf)
        taker = int(np.argmax(won))
        return float(won[taker]) - self._lost(job, node), taker

    def _lost(self, job: int, node: int) -> float:
        """The utility that the job loses without its copy on the node."""
        forking = self._forking
        rest, home = int(self._copies[job]) - 1, int(forking.home[job])
        at_home = rest == 1 and home not in (NOWHERE, node) and bool(self.on[job, home])
        left = forking.of(job).value(self._speed[job] - forking.speed[job, node], rest, at_home)
        return float(self._value[job] - left)

    def _swapping(self, job: int, node: int) -> tuple[float, int]:
        """The largest gain from swapping places with another copy, and that copy."""
        forking, owner, place = self._forking, self.owner, self._place
        mine, theirs = forking.speed[job, place], forking.speed[owner, node]
        room = self._free[place] + forking.gpus[owner] >= forking.gpus[job]
        room &= self._free[node] + forking.gpus[job] >= forking.gpus[owner]
        possible = (mine > 0) & (theirs > 0) & ~self.on[job, place] & ~self.on[owner, node] & room
        possible &= forking.forks[place] | (self._copies[job] == 1)
        possible &= forking.forks[node] | (self._copies[owner] == 1)
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
