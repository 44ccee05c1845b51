"""Dealing GPUs one by one to the job whose completion time falls most: Optimus, as the paper has it. Pure.

Every job begins with its smallest demand. Then the next count of its demand goes to the job that gains most
seconds a GPU, as long as one gains.
"""

import hashlib
from collections.abc import Callable, Sequence

import numpy as np

from services.planner.policies.jps.market import WorkerMarket, transported
from shared.domain.arrays import Floats, Ints

GROWN_AT_MOST = 50
"""jobs that are given more than their smallest demand, where only room is looked for"""

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


def dealt_by_type(
    jct: SecondsOn, rate: Floats, supply: Ints, demands: Sequence[Sequence[int]]
) -> Ints | None:
    """GPUs by job and type [S, C], each from the best type that is free. None: some job finds too few."""
    free = supply.copy()
    found = np.zeros(rate.shape, dtype=np.int32)
    for job, demand in enumerate(demands):
        first = _best_free(rate[job], free, demand[0])
        if first is None:
            return None
        found[job] += first
        free -= first
    level = [0] * len(demands)
    while True:
        offers = []
        for job, demand in enumerate(demands):
            offer = _offer(jct, job, found[job], (rate[job], free, demand[level[job] :]))
            if offer is not None and offer[0] > 0:
                offers.append((offer[0], -job, offer[1]))
        if not offers:
            return found
        _, job, more = max(offers, key=lambda offer: offer[:2])
        found[-job] += more
        free -= more
        level[-job] += 1


def _offer(
    jct: SecondsOn, job: int, has: Ints, room: tuple[Floats, Ints, Sequence[int]]
) -> tuple[float, Ints] | None:
    """What the next count gains, in seconds a GPU, and the GPUs it takes."""
    rate, free, counts = room
    if len(counts) == 1:
        return None
    gpus = counts[1] - counts[0]
    more = _best_free(rate, free, gpus)
    return None if more is None else ((jct(job, has) - jct(job, has + more)) / gpus, more)


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
    assert found is not None, "jobs take part only if their smallest demands have room"
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
