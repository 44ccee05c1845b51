"""Gavel's objectives (OSDI '20, section 4): from throughputs to each job's shares of time. Pure.

Data, m jobs and n GPU types (see `filling` for what is feasible): throughputs T, gangs s, GPUs N,
weights w. The three max-min objectives are one program with three curves:

| objective | level of a job | the worst is |
|---|---|---|
| max-min fairness (LAS) | s_i·thr_i / (w_i·thr_i^prop), thr_i^prop = Σ_j T_ij N_j / Σ_j N_j | the lowest |
| finish-time fairness | 1/ρ_i = (c_i + n_i/thr_i^iso) / (t_i + n_i/thr_i) | the largest ρ |
| makespan | thr_i / n_i | the longest n_i/thr_i |

Beside them: the largest sum of throughputs, first in first out, and each job's 1/m of the cluster, which
is also what a job gets when the budget is out before there is anything better.
"""

import msgspec
import numpy as np

from services.planner.policies.gavel.filling import Curve, filled
from services.planner.policies.kit.linear import LinearProgram, Matrix
from services.planner.solver.budget import Budget
from shared.domain.arrays import Floats

LEAST_S = 1e-3
"""of work on the best type: a job with less to do counts as one with so much, since less time than the
solver's tolerance is none"""
LEAST_SHARE = 5e-6
"""of the longest job's work: less, and a solver would round a nearly finished job's share to nothing"""
LOWEST = 1e-12
"""level: its inverse is still a number"""


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """The demand of all jobs; every job has a type on which it is faster than 0."""

    speed: Floats
    """T (m, n), of the whole gang: samples/s; 0 where it cannot run"""
    gang: Floats
    """s (m), GPUs"""
    gpus: Floats
    """N (n)"""
    weight: Floats
    """w (m)"""

    @property
    def best(self) -> Floats:
        """Throughput on the best type, by job."""
        result: Floats = self.speed.max(axis=1)
        return result


class Shares(msgspec.Struct, frozen=True, kw_only=True):
    share: Floats
    """X (m, n)"""
    objective: float
    """of the policy: of X, in its own unit"""
    bound: float
    """nothing feasible is better"""
    complete: bool = True
    """not cut short by the budget"""


def throughput(demand: Demand, share: Floats) -> Floats:
    """By job, its time being shared so: thr (m)."""
    result: Floats = (demand.speed * share).sum(axis=1)
    return result


def proportional(demand: Demand) -> Floats:
    """Every job's time split over the types as the cluster's GPUs are (m, n)."""
    return np.tile(demand.gpus / demand.gpus.sum(), (len(demand.gang), 1))


def isolated(demand: Demand) -> Floats:
    """1/m of the cluster for every job, of which a gang of s has s times less time; X (m, n)."""
    share = demand.gpus / len(demand.gang) / demand.gang[:, None]
    result: Floats = share / np.maximum(share.sum(axis=1, keepdims=True), 1.0)
    return result


def max_min(demand: Demand, budget: Budget, *, fill: bool = True) -> Shares:
    """LAS. Objective: the lowest normalised throughput. `fill`: then the second lowest, and so on."""
    count = len(demand.gang)
    fair = demand.weight * throughput(demand, proportional(demand))
    work = fair / (demand.gang * demand.best)
    return _levelled(demand, np.ones(count), np.zeros(count), work, budget, fill=fill)


def finish_time(
    demand: Demand, left: Floats, elapsed: Floats, isolated_s: Floats, budget: Budget, *, fill: bool = True
) -> Shares:
    """Objective: the largest ρ.

    By job: samples `left` n; seconds `elapsed` t since it came; `isolated_s` c, the seconds that its past
    work would have taken on its 1/m of the cluster. Weights have no part in it.
    """
    left = np.maximum(left, demand.best * LEAST_S)
    due = isolated_s + left / throughput(demand, isolated(demand))
    return _inverse(_levelled(demand, due, elapsed, left / demand.best, budget, fill=fill))


def makespan(demand: Demand, left: Floats, budget: Budget, *, fill: bool = True) -> Shares:
    """Objective: seconds until the last job ends, if all keep their shares; `left`: samples."""
    count = len(demand.gang)
    work = np.maximum(left / demand.best, LEAST_S)
    work = np.maximum(work, LEAST_SHARE * work.max(initial=0.0))
    return _inverse(_levelled(demand, np.ones(count), np.zeros(count), work, budget, fill=fill))


def max_sum(demand: Demand, budget: Budget) -> Shares:
    """Objective: the sum of throughputs, which compares samples of unlike models with one another."""
    scale = float(demand.speed.max())
    job, kind = np.nonzero(demand.speed > 0)
    count, cells = len(demand.gang), np.arange(len(job))
    program = LinearProgram(
        cost=-demand.speed[job, kind] / scale,
        matrix=Matrix(
            row=np.concatenate([job, count + kind]).astype(np.int32),
            column=np.concatenate([cells, cells]).astype(np.int32),
            value=np.concatenate([np.ones(len(job)), demand.gang[job]]),
        ),
        row_lower=np.full(count + len(demand.gpus), -np.inf),
        row_upper=np.concatenate([np.ones(count), demand.gpus]),
    )
    answer = program.solve_within(budget)
    share = np.zeros(demand.speed.shape)
    if answer.state != "optimal":
        share = isolated(demand) * (demand.speed > 0)
        return Shares(
            share=share,
            objective=float(throughput(demand, share).sum()),
            bound=float(demand.best.sum()),
            complete=False,
        )
    share[job, kind] = np.clip(answer.x, 0.0, 1.0)
    return Shares(share=share, objective=-answer.objective * scale, bound=-answer.objective * scale)


def fifo(demand: Demand, *, authors: bool = False) -> Shares:
    """Jobs in the order given, each all its time on the fastest type with room; the first without ends it.

    Of types alike it takes the first. `authors`: a job that cannot run on any type with room ends nothing.
    Objective: how many run.
    """
    free = demand.gpus.copy()
    share = np.zeros(demand.speed.shape)
    for job, gang in enumerate(demand.gang):
        able = np.where(free >= gang, demand.speed[job], 0.0)
        kind = int(able.argmax())
        if able[kind] <= 0:
            if authors and (free >= gang).any():
                continue
            break
        share[job, kind] = 1.0
        free[kind] -= gang
    return Shares(share=share, objective=float(share.sum()), bound=float(share.sum()))


def evened(demand: Demand, share: Floats) -> Floats:
    """The same time for every job, split over the types as the cluster's GPUs are.

    For shares of blind objectives, which do not care for types: without it one job would have a slow type
    for as long as the shares hold, and another a fast one. Only where every job can run on every type;
    else as it was.
    """
    if not (demand.speed > 0).all():
        return share
    result: Floats = share.sum(axis=1, keepdims=True) * proportional(demand)
    return result


def _levelled(
    demand: Demand, due: Floats, elapsed: Floats, work: Floats, budget: Budget, *, fill: bool
) -> Shares:
    """The lowest level made as high as it gets. A job's curve is given by three columns."""
    curve = Curve(due=due, elapsed=elapsed, work=work)
    result = filled(
        curve,
        speed=demand.speed,
        gang=demand.gang,
        gpus=demand.gpus,
        budget=budget,
        levels=None if fill else 1,
    )
    share = result.share if result.share is not None else isolated(demand) * (demand.speed > 0)
    reached = curve.level(throughput(demand, share) / demand.best)
    return Shares(share=share, objective=float(reached.min()), bound=result.bound, complete=result.complete)


def _inverse(shares: Shares) -> Shares:
    """For objectives that are minimised: the largest of the levels' inverses."""
    worst, least = max(shares.objective, LOWEST), max(shares.bound, LOWEST)
    return msgspec.structs.replace(shares, objective=1 / worst, bound=1 / least)
