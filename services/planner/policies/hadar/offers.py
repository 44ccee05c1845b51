"""FIND_ALLOC (Algorithm 2, lines 22 to 32): the places of one job on free GPUs, by payoff. Pure.

    rate   = W · min X                            every worker goes at the pace of the slowest (1b)
    φ      = V(elapsed + δ + left / rate) − Σ_h g_h · k_h − network · (nodes − 1)

X is the pace for the gang's number of nodes, so the rate includes what spreading costs. δ = 0 where the job
stays. The candidates are

- the place it has;
- *consolidated*: each node that has room for the gang; and for each speed s the nodes with X ≥ s, those with
  most free GPUs first, each filled before the next;
- *spread*: for each speed s the nodes with X ≥ s, the fastest first and within a speed those with most free
  GPUs, each filled before the next. With the walk `bottleneck`, nodes of speed s come first: a gang that runs
  at their pace gains nothing by a faster GPU.

Of nodes that are alike (see `room`) one is tried.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

import msgspec

from services.planner.policies.hadar.jobs import GpusByNode, HadarJob, slots, value
from services.planner.policies.hadar.room import NEVER, FreeGpus, Levels, Occupants

Walk = Literal["fastest", "bottleneck"]


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What a payoff depends on, beside the prices of GPUs."""

    round_s: float
    delay_s: float
    """see `jobs`"""
    restart_s: float = 0.0
    """δ: seconds that a job loses by a new allocation"""
    network_price: float = 0.0
    """price of each node of a gang but the first, in utility"""
    to_finish: bool = False
    """a place costs the price of its GPUs for each slot to the job's end; else for one slot"""
    walk: Walk = "fastest"
    every_occupied: bool = False
    """try every occupied node of a level (see `Occupants`), not only the one that would be taken first"""


class PricedPlace(NamedTuple):
    """A place for a job, at the prices of free GPUs."""

    payoff: float
    """φ"""
    place: GpusByNode
    rate: float
    """samples/s of the gang"""
    stays: bool


class Routes(msgspec.Struct, frozen=True):
    """The levels in which a job looks for nodes, in the order of the search."""

    alone: tuple[int, ...]
    """the levels whose nodes have room for the whole gang"""
    walks: tuple[tuple[int, ...], ...]
    """for places on several nodes: the levels in the order in which their nodes are filled"""


class Finder:
    """Finds the places of jobs, at given prices."""

    def __init__(self, levels: Levels, price: Sequence[float], terms: Terms) -> None:
        """`price`: of one GPU, by level."""
        self._levels = levels
        self.price = price
        self.terms = terms
        self._routes: dict[tuple[tuple[float, ...], int], Routes] = {}
        self._valued: HadarJob | None = None
        self._worths: dict[tuple[float, bool], tuple[float, float, int]] = {}
        """for `_valued`, the job that was valued last: its `_worth` by pace and by whether it stays"""
        self.offered = 0
        """how many places were looked at, to charge for"""

    def offers(
        self, job: HadarJob, routes: Routes, room: FreeGpus, occupants: Occupants
    ) -> list[PricedPlace]:
        """The places of a job, by payoff, then by fewer nodes, the present place, and position.

        Places whose payoff is not above 0 are among them.
        """
        if room.total < job.gpus:
            return []
        places = dict.fromkeys(self._places(job, routes, room, occupants))
        self.offered += len(places)
        found = [offer for place in places if (offer := self._offer(job, place, room)) is not None]
        return sorted(found, key=_rank)

    def routes(self, job: HadarJob) -> Routes:
        speeds = job.speeds
        known = self._routes.get((speeds, job.gpus))
        if known is None:
            known = self._routes[speeds, job.gpus] = self._routed(speeds, job.gpus)
        return known

    def _offer(self, job: HadarJob, place: GpusByNode, room: FreeGpus) -> PricedPlace | None:
        paces, base, kind, by_node = job.paces, self._levels.base, self._levels.kind, room.by_node
        price, further = self.price, len(place) - 1
        pace = min([paces[kind[node]][further] for node, _ in place])
        if not pace > 0:
            return None
        # fsum rounds once, whatever the order of the terms: places that cost the same get the same cost, so a
        # plan that is worth no more moves no job.
        cost = math.fsum([gpus * price[base[node] + by_node[node]] for node, gpus in place])
        stays = place == job.present
        rate, worth, rounds = self._worth(job, pace, stays=stays)
        return PricedPlace(worth - rounds * (cost + further * self.terms.network_price), place, rate, stays)

    def _worth(self, job: HadarJob, pace: float, *, stays: bool) -> tuple[float, float, int]:
        """At this pace: samples/s, V, and the number of rounds for which the GPUs are paid."""
        if self._valued is not job:
            self._valued = job
            self._worths.clear()
        known = self._worths.get((pace, stays))
        if known is None:
            terms, rate = self.terms, job.gpus * pace
            seconds = job.left / rate + (0.0 if stays else terms.restart_s)
            worth = value(job.worth, job.elapsed_s + seconds, terms.delay_s)
            rounds = slots(seconds, terms.round_s) if terms.to_finish else 1
            known = self._worths[pace, stays] = rate, worth, rounds
        return known

    def _places(
        self, job: HadarJob, routes: Routes, room: FreeGpus, occupants: Occupants
    ) -> Iterator[GpusByNode]:
        if job.present and room.has(job.present):
            yield job.present
        by_level, gpus = room.by_level, job.gpus
        for level in routes.alone:
            if by_level[level]:
                nodes = occupants.in_order(by_level[level])
                yield ((nodes[0], gpus),)
                if self.terms.every_occupied:
                    yield from (((node, gpus),) for node in nodes[1:] if occupants.next_turn[node] < NEVER)
        for walk in routes.walks:
            place = self._walked(gpus, walk, room, occupants)
            if place:
                yield place

    def _walked(self, gpus: int, walk: Sequence[int], room: FreeGpus, occupants: Occupants) -> GpusByNode:
        """A place on several nodes, each filled before the next.

        Empty if the first node has room for the whole gang, or all nodes together have too little.
        """
        place: list[tuple[int, int]] = []
        by_level, free_of = room.by_level, self._levels.free_of
        for level in walk:
            nodes = by_level[level]
            if not nodes:
                continue
            free = free_of[level]
            if free >= gpus and not place:
                return ()
            for node in occupants.in_order(nodes):
                if free >= gpus:
                    place.append((node, gpus))
                    return tuple(sorted(place))
                place.append((node, free))
                gpus -= free
        return ()

    def _routed(self, speeds: Sequence[float], gpus: int) -> Routes:
        free, kind = self._levels.free_of, self._levels.kind_of
        able = [level for level in range(len(free)) if free[level] and speeds[kind[level]] > 0]
        if gpus == 1:
            return Routes(tuple(able), ())

        def roomy(level: int) -> tuple[float, ...]:
            return -free[level], -speeds[kind[level]], level

        def fast(level: int) -> tuple[float, ...]:
            return -speeds[kind[level]], -free[level], level

        def slow(level: int) -> tuple[float, ...]:
            return speeds[kind[level]], -free[level], level

        orders: tuple[Callable[[int], tuple[float, ...]], ...] = (
            roomy,
            fast if self.terms.walk == "fastest" else slow,
        )
        thresholds = sorted({speed for speed in speeds if speed > 0}, reverse=True)
        reach = [[level for level in able if speeds[kind[level]] >= least] for least in thresholds]
        walks = [tuple(sorted(levels, key=order)) for levels in reach for order in orders]
        alone = tuple(level for level in able if free[level] >= gpus)
        return Routes(alone, tuple(dict.fromkeys(walks)))


def _rank(offer: PricedPlace) -> tuple[float, int, bool, GpusByNode]:
    return -offer.payoff, len(offer.place), not offer.stays, offer.place
