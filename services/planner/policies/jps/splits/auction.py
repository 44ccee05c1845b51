"""Solves P3 (see `market`) by an auction (Bertsekas), which also gives each worker a price. Pure.

While a job has fewer workers than the category gives it, it bids on the best of the workers that it does not
own. The price of this worker rises by its value to the job, less the value of the (missing + 1)-th best
worker that the job does not own, plus ε. A worker belongs to the job that bid last. With whole worths and ε =
1 / (K + 1) for K workers the result is exact.

The paper's market (algorithm 2) raises prices without ε, and need not end.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from services.planner.policies.jps.splits.market import WorkerMarket, transported
from shared.domain.arrays import Floats, Ints

BIDS_AT_MOST = 100_000
WEIGHTED = 1e4
"""the largest worth, where worths are weighted: these have no unit, so they are scaled to whole numbers"""


class Sale(msgspec.Struct, frozen=True):
    """The result of an auction of K workers."""

    owner: Ints
    """[K]: a job, or −1"""
    price: Floats
    """[K]"""
    bids: int


def auction(worth: Floats, counts: Sequence[int]) -> Sale | None:
    """The workers of each job, as many as `counts` says.

    `worth` [S, K]: whole numbers by job and worker, −inf where the job cannot use the worker. None: some job
    finds too few workers, or there were `BIDS_AT_MOST` bids.
    """
    jobs, workers = worth.shape
    epsilon = 1.0 / (workers + 1)
    owner, price = np.full(workers, -1, dtype=np.int32), np.zeros(workers)
    missing = list(counts)
    bids = 0
    while any(missing):
        job = next(index for index in range(jobs) if missing[index])
        value = np.where(owner == job, -np.inf, worth[job] - price)
        order = np.argsort(-value, kind="stable")
        best = order[0]
        if bids == BIDS_AT_MOST or not np.isfinite(value[order[missing[job] - 1]]):
            return None
        next_best = value[order[missing[job]]] if missing[job] < workers else -np.inf
        price[best] += epsilon + (value[best] - next_best if np.isfinite(next_best) else 0.0)
        if owner[best] >= 0:
            missing[owner[best]] += 1
        owner[best] = job
        missing[job] -= 1
        bids += 1
    return Sale(owner, price, bids)


def auctioned(market: WorkerMarket, counts: Ints) -> Ints | None:
    """As `market.transported`, with worths in whole samples/s."""
    if transported(market, counts) is None:  # prices would rise for ever
        return None
    worth = market.worth(counts)
    scale = WEIGHTED / max(float(worth.max()), 1e-300) if market.weighted else 1.0
    worth = np.where(market.rate > 0, np.rint(worth * scale), -np.inf)
    kind_of = np.repeat(np.arange(len(market.supply)), market.supply)
    sale = auction(worth[:, kind_of], counts.tolist())
    if sale is None:
        return None
    found = np.zeros(market.rate.shape, dtype=np.int32)
    sold = np.flatnonzero(sale.owner >= 0)
    np.add.at(found, (sale.owner[sold], kind_of[sold]), 1)
    return found
