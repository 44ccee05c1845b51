"""P3: assigns workers to jobs inside a category, so that all jobs together do most samples a second. Pure.

    max Σ worth_ic · x_ic    Σ_c x_ic = K_i    Σ_i x_ic ≤ N_c    x ≥ 0, whole        c: a GPU type

This is a transportation problem, solved as a flow of least cost. The paper's market (algorithm 2) has the
same result if it ends, but it need not end (docs/policies/jps.md); the market of `auction` does.

Ties go to the largest Σ w_i · ρ_ic · x_ic, with w_i as in `weights`, then to GPUs that the job has already.
"""

import msgspec
import numpy as np
from ortools.graph.python.min_cost_flow import SimpleMinCostFlow

from shared.domain.arrays import Floats, Ints

PRECISION = 1_000
"""units of cost for one sample/s; costs of a flow are whole numbers"""
TIES = 255
"""units of the largest w_i · ρ_ic, which breaks ties"""
LARGEST = 1e9
"""units of the largest worth, at most: costs times the number of jobs must stay below 2^63"""


class WorkerMarket(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs and GPUs of P3."""

    rate: Floats
    """ρ [S, C]: samples/s of one GPU; 0: the job cannot run on the type"""
    supply: Ints
    """N [C]: idle GPUs"""
    left: Floats
    """T · Π [S]: samples still to do"""
    held: Ints
    """[S, C]: GPUs that each job has now"""
    weighted: bool = False
    """P3 weighs jobs by `weights`, beyond the paper"""

    def weights(self, counts: Ints) -> Floats:
        """The weights w_i = T_i Π_i / (K_i ρ̄_i)² [S]: about the seconds that one more sample/s saves."""
        seen = np.where(self.rate > 0, self.supply, 0)
        mean = (self.rate * seen).sum(axis=1) / np.maximum(seen.sum(axis=1), 1)
        found: Floats = self.left / np.maximum(counts * mean, 1e-12) ** 2
        return found

    def worth(self, counts: Ints) -> Floats:
        """What one GPU is worth, by job and type [S, C]."""
        return self.rate * self.weights(counts)[:, None] if self.weighted else self.rate


def transported(market: WorkerMarket, counts: Ints) -> Ints | None:
    """GPUs by job and type [S, C]; None: the types have no room for this category."""
    jobs, kinds = market.rate.shape
    if not (market.rate > 0).any(axis=1).all():
        return None
    own, kind = np.nonzero(market.rate > 0)
    cost = -_steps(market, counts)[own, kind]
    held = np.minimum(market.held[own, kind], counts[own])
    has = np.flatnonzero(held)
    sink = jobs + kinds
    flow = SimpleMinCostFlow()
    flow.add_arcs_with_capacity_and_unit_cost(
        np.concatenate([own, own[has], jobs + np.arange(kinds)]),
        np.concatenate([jobs + kind, jobs + kind[has], np.full(kinds, sink)]),
        np.concatenate([counts[own] - held, held[has], market.supply]),
        np.concatenate([cost, cost[has] - 1, np.zeros(kinds, dtype=np.int64)]),
    )
    flow.set_nodes_supplies(np.arange(jobs), counts)
    flow.set_node_supply(sink, -int(counts.sum()))
    if flow.solve() != flow.OPTIMAL:
        return None
    arcs = len(own) + len(has)
    found = np.zeros((jobs, kinds), dtype=np.int32)
    np.add.at(
        found,
        (np.concatenate([own, own[has]]), np.concatenate([kind, kind[has]])),
        flow.flows(np.arange(arcs)),
    )
    return found


def _steps(market: WorkerMarket, counts: Ints) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """What one GPU is worth in whole units [S, C], with the tie-breaker in the lower digits."""
    worth = market.worth(counts)
    scale = LARGEST / max(float(worth.max()), 1e-300)
    first = np.rint(worth * (scale if market.weighted else min(PRECISION, scale)))
    tie = market.weights(counts)[:, None] * market.rate
    second = np.rint(TIES * tie / max(float(tie.max()), 1e-300))
    most = (2 * TIES + 1) * int(counts.sum()) + 1
    found = first.astype(np.int64) * most + 2 * second.astype(np.int64)
    return np.asarray(found)
