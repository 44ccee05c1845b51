"""The best assignment of nodes to jobs, by dynamic programming over sets of places. Pure.

A place is room for one copy; a node has as many as copies fit there. For jobs one after another,

    best_j(A) = max over S ⊆ A of best_{j−1}(A − S) + U_j(S)

is the most that the first j jobs make of the places A. The first job takes just A and the last one all
that is left, so two jobs take 2^n steps and more of them 4^n each, no more than looking at each of the
|J|^n assignments would. Among equals the one that leaves most copies where they are.
"""

import numpy as np
import numpy.typing as npt

from services.planner.policies.hadare.forking import NOWHERE, Forking, nobody
from services.planner.solver.budget import Budget
from shared.domain.arrays import Flags, Floats, Ints

LARGEST = 300_000
"""assignments, |J|^n"""
TIE = 1e-9
"""what a copy is worth that stays on its node, and what a place costs that nobody takes, in parts of all
that there is to win"""

STEP_S = 5e-9
"""of looking at one set in one way, as measured on a common server: the modelled seconds"""

Sets = npt.NDArray[np.int64]
"""a bit a place"""


def exact(forking: Forking, budget: Budget, largest: int = LARGEST) -> Flags | None:
    """Copies by job and node; None where gangs are of unlike sizes, or that takes too long."""
    jobs = np.flatnonzero(forking.able().any(axis=1)).astype(np.int32)
    if len(set(forking.gpus[jobs].tolist())) > 1:
        return None
    places = _places(forking, jobs)
    limited = bool((forking.most[jobs] < len(set(places.tolist()))).any())
    takers = len(jobs) + limited
    if not len(places) or takers <= 1 or len(places) * np.log(takers) > np.log(largest):
        return None
    budget.charge(_modelled_s(takers, len(places)))
    table = _worths(forking, jobs, places)
    sets = _best(table if limited else table[:-1])[: len(jobs)]
    return _assigned(forking, jobs, places, sets)


def _modelled_s(takers: int, places: int) -> float:
    sets = 1 << places
    return (takers * places + max(takers - 2, 0) * sets) * sets * STEP_S


def _places(forking: Forking, jobs: Ints) -> Ints:
    """The node of each."""
    able = forking.able()[jobs].sum(axis=0)
    gpus = forking.gpus[jobs].min(initial=np.iinfo(np.int32).max)
    return np.repeat(np.arange(len(able), dtype=np.int32), np.minimum(forking.idle // gpus, able))


def _worths(forking: Forking, jobs: Ints, places: Ints) -> Floats:
    """U by job and set of places; −∞ for what is not allowed. The last row: places that stay idle."""
    sets = np.arange(1 << len(places), dtype=np.int64)
    member = (sets[:, None] >> np.arange(len(places))) & 1
    on = np.zeros((forking.speed.shape[1], len(sets)), dtype=np.int32)
    np.add.at(on, places, member.T.astype(np.int32))
    rows = [_worth(forking, job, on) for job in jobs.tolist()]
    most = sum(row.max() for row in rows) or 1.0
    stays = [TIE * most * (forking.here[job] @ on) for job in jobs.tolist()]
    idle = -TIE * most * member.sum(axis=1)
    return np.array([*(row + tie for row, tie in zip(rows, stays, strict=True)), idle])


def _worth(forking: Forking, job: int, on: Ints) -> Floats:
    """U of one job by set; `on`: copies by node and set."""
    copies = on.sum(axis=0)
    home = int(forking.home[job])
    at_home = (copies == 1) & (on[home] == 1) if home != NOWHERE else np.zeros(len(copies), dtype=np.bool_)
    one = forking.of(job)
    worth = one.value(forking.speed[job] @ on, copies, at_home)
    refused = on[~forking.able()[job]].any(axis=0) | (on > 1).any(axis=0) | (copies > forking.most[job])
    return np.where(refused, -np.inf, worth)


def _best(table: Floats) -> list[int]:
    """By row the set of places that it takes, such that all are taken once and the sum is greatest."""
    everything = np.arange(table.shape[1], dtype=np.int64)
    full = int(everything[-1])
    best, taken = table[0], [everything]
    for row in table[1:-1]:
        best, choice = _joined(best, row, everything)
        taken.append(choice)
    found = [int(np.argmax(best[full - everything] + table[-1]))]
    rest = full - found[0]
    for choice in reversed(taken):
        found.append(int(choice[rest]))
        rest -= found[-1]
    return found[::-1]


def _joined(best: Floats, row: Floats, everything: Sets) -> tuple[Floats, Sets]:
    """The best over all ways to give one more taker a part of each set, and that part."""
    total, choice = np.full_like(best, -np.inf), np.zeros_like(everything)
    for part in np.flatnonzero(row > -np.inf).tolist():
        larger = everything[everything & part == part]
        value = best[larger - part] + row[part]
        better = value > total[larger]
        total[larger[better]] = value[better]
        choice[larger[better]] = part
    return total, choice


def _assigned(forking: Forking, jobs: Ints, places: Ints, sets: list[int]) -> Flags:
    on = nobody(forking)
    for job, own in zip(jobs.tolist(), sets, strict=True):
        on[job, [node for bit, node in enumerate(places.tolist()) if own >> bit & 1]] = True
    return on
