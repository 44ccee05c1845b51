"""Dealing GPUs one by one to the job whose completion time falls most: Optimus, as the paper has it. Pure.

Every job begins with its smallest demand. Then the next count of its demand goes to the job that gains most
seconds a GPU, as long as one gains.
"""

import hashlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from services.planner.policies.jps.splits.market import WorkerMarket, transported
from shared.domain.arrays import Floats, Ints

GROWN_AT_MOST = 50
"""jobs that are given more than their smallest demand, where only room is looked for"""

ROOM = "jobs take part only if their smallest demands have room"

Seconds = Callable[[int, int], float]
"""Λ of a job on so many GPUs"""
SecondsOn = Callable[[int, Ints], float]
"""Λ of a job on so many GPUs by type"""


def dealt(jct: Seconds, demands: Sequence[Sequence[int]], gpus: int) -> Ints:
    """GPUs by job, blind to types. The smallest demands are at most `gpus` together."""
    level = [0] * len(demands)
    free = gpus - sum(demand[0] for demand in demands)
    gains = [_gain(jct, job, demand, 0) for job, demand in enumerate(demands)]
    while True:
        able = [
            job
            for job, demand in enumerate(demands)
            if gains[job] > 0 and demand[level[job] + 1] - demand[level[job]] <= free
        ]
        if not able:
            return np.array([demand[at] for demand, at in zip(demands, level, strict=True)], dtype=np.int32)
        job = max(able, key=lambda one: gains[one])
        free -= demands[job][level[job] + 1] - demands[job][level[job]]
        level[job] += 1
        gains[job] = _gain(jct, job, demands[job], level[job])


def _gain(jct: Seconds, job: int, demand: Sequence[int], level: int) -> float:
    """Seconds a GPU of the next count; 0: there is none."""
    if level + 1 == len(demand):
        return 0.0
    now, then = demand[level], demand[level + 1]
    return (jct(job, now) - jct(job, then)) / (then - now)


def dealt_by_type(jct: SecondsOn, market: WorkerMarket, demands: Sequence[Sequence[int]]) -> Ints:
    """GPUs by job and type [S, C], each from the best type that is free.

    Where the first GPUs cannot be dealt so, for jobs run on unlike types, they come as in P3.
    """
    found = _firsts(market, demands)
    free = market.supply - found.sum(axis=0)
    level = [0] * len(demands)
    offers: list[_Offer | None] = [None] * len(demands)
    open_to = set(range(len(demands)))
    while open_to:
        for job in sorted(open_to):
            offer = offers[job]
            if offer is None or (offer.more > free).any():
                counts = demands[job][level[job] : level[job] + 2]
                offers[job] = _offer(jct, job, found[job], (market.rate[job], free, counts))
        able = [(offer.gain, -job) for job in open_to if (offer := offers[job]) is not None]
        open_to = {-job for gain, job in able if gain > 0}
        if open_to:
            job = -max(able)[1]
            taken = offers[job]
            assert taken is not None, "a job that gains"
            found[job] += taken.more
            free = free - taken.more
            level[job] += 1
            offers[job] = None
    return found


class _Offer(NamedTuple):
    gain: float
    """seconds a GPU"""
    more: Ints
    """GPUs by type"""


def _firsts(market: WorkerMarket, demands: Sequence[Sequence[int]]) -> Ints:
    free, found = market.supply.copy(), np.zeros(market.rate.shape, dtype=np.int32)
    for job, demand in enumerate(demands):
        first = _best_free(market.rate[job], free, demand[0])
        if first is None:
            split = transported(market, np.array([own[0] for own in demands], dtype=np.int32))
            assert split is not None, ROOM
            return split
        found[job] += first
        free -= first
    return found


def _offer(jct: SecondsOn, job: int, has: Ints, room: tuple[Floats, Ints, Sequence[int]]) -> _Offer | None:
    """What the second of the counts gains; None: there is none, or no room for it."""
    rate, free, counts = room
    if len(counts) == 1:
        return None
    gpus = counts[1] - counts[0]
    more = _best_free(rate, free, gpus)
    return None if more is None else _Offer((jct(job, has) - jct(job, has + more)) / gpus, more)


def _best_free(rate: Floats, free: Ints, gpus: int) -> Ints | None:
    taken = np.zeros_like(free)
    for kind in np.argsort(-rate, kind="stable").tolist():
        if rate[kind] > 0:
            taken[kind] = min(int(free[kind]), gpus - int(taken.sum()))
    return taken if taken.sum() == gpus else None


def shuffled(counts: Ints, rate: Floats, supply: Ints, seed: str) -> Ints | None:
    """GPUs by job and type, dealt from a shuffled deck, to the jobs with fewest types first.

    None: some job finds too few of its types in what is left of the deck.
    """
    digest = hashlib.blake2b(seed.encode(), digest_size=8).digest()
    deck = np.random.default_rng(int.from_bytes(digest, "big")).permutation(
        np.repeat(np.arange(len(supply)), supply)
    )
    found = np.zeros(rate.shape, dtype=np.int32)
    for job in np.argsort((rate > 0).sum(axis=1), kind="stable").tolist():
        own = np.flatnonzero(rate[job, deck] > 0)[: counts[job]]
        if len(own) < counts[job]:
            return None
        np.add.at(found[job], deck[own], 1)
        deck = np.delete(deck, own)
    return found


def grown(market: WorkerMarket, demands: Sequence[Sequence[int]]) -> Ints:
    """A split that there is room for: smallest demands, then the last jobs as many as they can get."""
    counts = np.array([demand[0] for demand in demands], dtype=np.int32)
    found = transported(market, counts)
    assert found is not None, ROOM
    for job in range(len(demands) - 1, max(len(demands) - 1 - GROWN_AT_MOST, -1), -1):
        for count in reversed(demands[job][1:]):
            counts[job] = count
            more = transported(market, counts)
            if more is not None:
                found = more
                break
        else:
            counts[job] = demands[job][0]
    return found
