"""FIND_ALLOC (Algorithm 2, lines 22 to 32): the places of one job on free GPUs, by payoff. Pure.

    rate   = W · min X                            every worker goes at the pace of the slowest (1b)
    φ      = V(elapsed + δ + left / rate) − Σ_h g_h · k_h − network · (nodes − 1)

X is that of the gang's number of nodes, so what spreading costs is in the rate. δ = 0 where it stays. The
candidates: the place it has; *consolidated*, each node that holds the gang, and for each speed s the
nodes with X ≥ s, most free GPUs first; *spread*, for each speed s the nodes with X ≥ s, fastest first and
within a speed most free first, each filled before the next. The walk `bottleneck` begins with speed s
instead: a gang that runs at the pace of s needs no faster GPU. Of nodes alike (see `room`) one is tried.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

import msgspec

from services.planner.policies.hadar.jobs import GpusByNode, HadarJob, slots, value
from services.planner.policies.hadar.room import NOBODY, FreeGpus, Levels, Sitters

Walk = Literal["fastest", "bottleneck"]


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What a payoff is reckoned with, beside prices."""

    round_s: float
    delay_s: float
    """see `jobs`"""
    restart_s: float = 0.0
    """δ: what a new allocation loses"""
    network_price: float = 0.0
    """of each node of a gang but the first"""
    to_finish: bool = False
    """GPUs are paid for all slots to the job's end, not for one"""
    walk: Walk = "fastest"
    every_seat: bool = False
    """try every node on which a job sits, not just the one whose job's turn comes last"""


class PricedPlace(NamedTuple):
    """A place for a job, at the prices of free GPUs."""

    payoff: float
    """φ"""
    place: GpusByNode
    rate: float
    """samples/s of the gang"""
    stays: bool


class Routes(msgspec.Struct, frozen=True):
    """Levels in which a job looks for nodes, in the order of the search."""

    alone: tuple[int, ...]
    """those whose nodes hold the gang"""
    walks: tuple[tuple[int, ...], ...]
    """over several nodes"""


class Finder:
    def __init__(self, levels: Levels, price: Sequence[float], terms: Terms) -> None:
        """`price`: of one GPU, by level."""
        self._levels = levels
        self.price = price
        self.terms = terms
        self._routes: dict[tuple[tuple[float, ...], int], Routes] = {}
        self._valued: HadarJob | None = None
        self._worths: dict[tuple[float, bool], tuple[float, float, int]] = {}
        """of the job that was valued last, by pace and whether it stays"""
        self.offered = 0
        """places looked at: the work done"""

    def offers(self, job: HadarJob, routes: Routes, room: FreeGpus, sitters: Sitters) -> list[PricedPlace]:
        """Best first, those of no payoff too; then fewer nodes, the present place, ids."""
        if room.total < job.gpus:
            return []
        places = dict.fromkeys(self._places(job, routes, room, sitters))
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
        # Exactly rounded, so that the same GPUs of nodes that trade places cost the same: a plan that is
        # worth no more moves nobody.
        cost = math.fsum([gpus * price[base[node] + by_node[node]] for node, gpus in place])
        stays = place == job.present
        rate, worth, rounds = self._worth(job, pace, stays=stays)
        return PricedPlace(worth - rounds * (cost + further * self.terms.network_price), place, rate, stays)

    def _worth(self, job: HadarJob, pace: float, *, stays: bool) -> tuple[float, float, int]:
        """The rate, V, and the rounds that are paid for."""
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
        self, job: HadarJob, routes: Routes, room: FreeGpus, sitters: Sitters
    ) -> Iterator[GpusByNode]:
        if job.present and room.has(job.present):
            yield job.present
        by_level, gpus = room.by_level, job.gpus
        for level in routes.alone:
            if by_level[level]:
                nodes = sitters.in_order(by_level[level])
                yield ((nodes[0], gpus),)
                if self.terms.every_seat:
                    yield from (((node, gpus),) for node in nodes[1:] if sitters.next_turn[node] < NOBODY)
        for walk in routes.walks:
            place = self._walked(gpus, walk, room, sitters)
            if place:
                yield place

    def _walked(self, gpus: int, walk: Sequence[int], room: FreeGpus, sitters: Sitters) -> GpusByNode:
        """Each node filled before the next; nothing where one node holds all, or all hold too few."""
        place: list[tuple[int, int]] = []
        by_level, free_of = room.by_level, self._levels.free_of
        for level in walk:
            nodes = by_level[level]
            if not nodes:
                continue
            free = free_of[level]
            if free >= gpus and not place:
                return ()
            for node in sitters.in_order(nodes):
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
