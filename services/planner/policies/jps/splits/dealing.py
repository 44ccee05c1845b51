"""Gives GPUs step by step to the job whose completion time falls most: Optimus, as the paper has it. Pure.

Every job begins with its smallest demand. Then, as long as some job gains, the job that gains most seconds
for each further GPU gets the next larger count of its demand.
"""

import hashlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from services.planner.policies.jps.splits.market import WorkerMarket, transported
from shared.domain.arrays import Floats, Ints

GROWN_AT_MOST = 50
"""jobs to which `grown` gives more than their smallest demand"""

ROOM = "jobs take part only if their smallest demands have room"

Seconds = Callable[[int, int], float]
"""from a job and a number of GPUs to Λ"""
SecondsOn = Callable[[int, Ints], float]
"""from a job and numbers of GPUs by type to Λ"""


def dealt(jct: Seconds, demands: Sequence[Sequence[int]], gpus: int) -> Ints:
    """GPUs by job, whatever their types. The smallest demands together are at most `gpus`."""
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
    """Seconds that the next count of the demand saves, for each further GPU; 0: there is no next count."""
    if level + 1 == len(demand):
        return 0.0
    now, then = demand[level], demand[level + 1]
    return (jct(job, now) - jct(job, then)) / (then - now)


def dealt_by_type(jct: SecondsOn, market: WorkerMarket, demands: Sequence[Sequence[int]]) -> Ints:
    """GPUs by job and type [S, C], each of the job's best type that is free.

    If the smallest demands have no room like this, since jobs run on different types, they are placed as in
    P3.
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
    """The GPUs that bring a job to the next count of its demand."""

    gain: float
    """seconds saved for each of them"""
    more: Ints
    """GPUs by type"""


def _firsts(market: WorkerMarket, demands: Sequence[Sequence[int]]) -> Ints:
    """The smallest demands of all jobs, by job and type [S, C]."""
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
    """The step to the second of the counts; None: there is no second count, or no room for it."""
    rate, free, counts = room
    if len(counts) == 1:
        return None
    gpus = counts[1] - counts[0]
    more = _best_free(rate, free, gpus)
    return None if more is None else _Offer((jct(job, has) - jct(job, has + more)) / gpus, more)


def _best_free(rate: Floats, free: Ints, gpus: int) -> Ints | None:
    """`gpus` free GPUs by type, of the fastest types; None: too few are free."""
    taken = np.zeros_like(free)
    for kind in np.argsort(-rate, kind="stable").tolist():
        if rate[kind] > 0:
            taken[kind] = min(int(free[kind]), gpus - int(taken.sum()))
    return taken if taken.sum() == gpus else None


def shuffled(counts: Ints, rate: Floats, supply: Ints, seed: str) -> Ints | None:
    """GPUs by job and type [S, C], dealt at random; jobs that can run on the fewest types come first.

    None: too few GPUs of some job's types are left when it is its turn.
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
    """A split that has room: smallest demands, then for each of the last jobs the largest possible count."""
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
