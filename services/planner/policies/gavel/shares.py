"""Gavel's objectives (OSDI '20, section 4): compute each job's shares of time from throughputs. Pure.

Data, for m jobs and n GPU types: throughputs T, gang sizes s, GPUs N, weights w; `filling` has the
constraints. The three max-min objectives are one program with three curves:

| objective | level of a job | the worst is |
|---|---|---|
| max-min fairness (LAS) | s_i·thr_i / (w_i·thr_i^prop), thr_i^prop = Σ_j T_ij N_j / Σ_j N_j | the lowest |
| finish-time fairness | 1/ρ_i = (c_i + n_i/thr_i^iso) / (t_i + n_i/thr_i) | the largest ρ |
| makespan | thr_i / n_i | the longest n_i/thr_i |

The other objectives: the largest sum of throughputs, and first in, first out. If the budget is spent before
an objective has shares, each job gets 1/m of the cluster (`isolated`).
"""

import msgspec
import numpy as np

from services.planner.policies.gavel.filling import Curve, filled
from services.planner.policies.kit.linear import LinearProgram, Matrix
from services.planner.solver.budget import Budget
from shared.domain.arrays import Floats

LEAST_S = 1e-3
"""the least work that a job counts with, in seconds on its best type: below the solver's tolerance a time is
0"""
LEAST_SHARE = 5e-6
"""the same as a share of the longest job's work: with less, a solver would round a job's share of time to
0"""
LOWEST = 1e-12
"""the lowest level: its inverse is still a finite number"""


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs and the cluster; every job has a type on which its speed is above 0."""

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
    """the value of X, in the unit of the policy's objective"""
    bound: float
    """no feasible X is better"""
    complete: bool = True
    """false: the budget was spent before the end"""


def throughput(demand: Demand, share: Floats) -> Floats:
    """The throughput of each job with these shares of time: thr (m)."""
    result: Floats = (demand.speed * share).sum(axis=1)
    return result


def proportional(demand: Demand) -> Floats:
    """Every job's time split over the types as the cluster's GPUs are (m, n)."""
    return np.tile(demand.gpus / demand.gpus.sum(), (len(demand.gang), 1))


def isolated(demand: Demand) -> Floats:
    """X (m, n) if every job has 1/m of the cluster: a gang of s GPUs has 1/s of the time of one GPU."""
    share = demand.gpus / len(demand.gang) / demand.gang[:, None]
    result: Floats = share / np.maximum(share.sum(axis=1, keepdims=True), 1.0)
    return result


def max_min(demand: Demand, budget: Budget, *, fill: bool = True) -> Shares:
    """Max-min fairness (LAS). Objective: the lowest normalised throughput.

    `fill`: then the second lowest is maximised, and so on.
    """
    count = len(demand.gang)
    fair = demand.weight * throughput(demand, proportional(demand))
    work = fair / (demand.gang * demand.best)
    return _levelled(demand, np.ones(count), np.zeros(count), work, budget, fill=fill)


def finish_time(
    demand: Demand, left: Floats, elapsed: Floats, isolated_s: Floats, budget: Budget, *, fill: bool = True
) -> Shares:
    """Finish-time fairness. Objective: the largest ρ.

    By job: `left`, n, samples still to do; `elapsed`, t, seconds since its submission; `isolated_s`, c, the
    seconds that its past work would have taken on 1/m of the cluster. Weights are not used.
    """
    left = np.maximum(left, demand.best * LEAST_S)
    due = isolated_s + left / throughput(demand, isolated(demand))
    return _inverse(_levelled(demand, due, elapsed, left / demand.best, budget, fill=fill))


def makespan(demand: Demand, left: Floats, budget: Budget, *, fill: bool = True) -> Shares:
    """Makespan. Objective: seconds until the last job ends, if all keep their shares; `left`: samples."""
    count = len(demand.gang)
    work = np.maximum(left / demand.best, LEAST_S)
    work = np.maximum(work, LEAST_SHARE * work.max(initial=0.0))
    return _inverse(_levelled(demand, np.ones(count), np.zeros(count), work, budget, fill=fill))


def max_sum(demand: Demand, budget: Budget) -> Shares:
    """Throughput. Objective: the sum of samples/s, though samples of unlike models do not compare."""
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
    """First in, first out: each job in order has all its time on the fastest type with room.

    Of equally fast types a job takes the first. The first job without room, and all behind it, get nothing;
    with `authors` a job that can run on no type with room is skipped. Objective: how many jobs run.
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
    """The shares, with each job's time split over the types as the cluster's GPUs are.

    An objective that is blind to types could give one job a slow type for as long as the shares hold, and
    another job a fast one. If some job cannot run on every type, the shares are returned unchanged.
    """
    if not (demand.speed > 0).all():
        return share
    result: Floats = share.sum(axis=1, keepdims=True) * proportional(demand)
    return result


def _levelled(
    demand: Demand, due: Floats, elapsed: Floats, work: Floats, budget: Budget, *, fill: bool
) -> Shares:
    """Shares that maximise the lowest level, with curves of these three columns (see `filling`)."""
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
    """The same for an objective that is minimised: its values are the inverses of levels."""
    worst, least = max(shares.objective, LOWEST), max(shares.bound, LOWEST)
    return msgspec.structs.replace(shares, objective=1 / worst, bound=1 / least)
