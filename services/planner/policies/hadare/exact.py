"""The best assignment of nodes to jobs, by dynamic programming over sets of places. Pure.

A place is room for one copy; a node has as many as copies fit there. For jobs one after another,

    best_j(A) = max over S ⊆ A of best_{j−1}(A − S) + U_j(S)

is the largest utility of the first j jobs on the places A. A job may leave some of its S idle, so U_j(S) is
the largest over all subsets of S. The first job gets all of A and the last one all that is left, so two jobs
take 2^n steps and each further one 4^n, no more than trying each of the |J|^n assignments would. Of equal
assignments the one that leaves most copies where they are is taken.
"""

import numpy as np
import numpy.typing as npt

from services.planner.policies.hadare.forking import NOWHERE, Forking, no_copies
from services.planner.solver.budget import Budget
from shared.domain.arrays import Flags, Floats, Ints

LARGEST = 300_000
"""assignments, |J|^n, up to which the optimum is computed"""
TIE = 1e-9
"""what it is worth that a copy stays on its node, relative to the sum of the jobs' largest utilities"""

STEP_S = 5e-9
"""modelled seconds of trying one way to divide one set, as measured on a common server"""

Sets = npt.NDArray[np.int64]
"""sets of places, each as the bits of a number"""


def exact(forking: Forking, budget: Budget, largest: int = LARGEST) -> Flags | None:
    """Copies by job and node; None if copies are of several sizes, or there are too many assignments."""
    jobs = np.flatnonzero(forking.able().any(axis=1)).astype(np.int32)
    if len(set(forking.gpus[jobs].tolist())) > 1:
        return None
    places = _places(forking, jobs)
    if not len(places) or len(places) * np.log(max(len(jobs), 2)) > np.log(largest):
        return None
    budget.charge(_modelled_s(len(jobs), len(places)))
    used, table = _best_subsets(_worths(forking, jobs, places))
    sets = _best(table)
    return _assigned(forking, jobs, places, [int(own[taken]) for own, taken in zip(used, sets, strict=True)])


def _modelled_s(jobs: int, places: int) -> float:
    sets = 1 << places
    return (2 * jobs * places + max(jobs - 2, 0) * sets) * sets * STEP_S


def _places(forking: Forking, jobs: Ints) -> Ints:
    """By place: its node."""
    able = forking.able()[jobs].sum(axis=0)
    gpus = forking.gpus[jobs].min(initial=np.iinfo(np.int32).max)
    return np.repeat(np.arange(len(able), dtype=np.int32), np.minimum(forking.idle // gpus, able))


def _worths(forking: Forking, jobs: Ints, places: Ints) -> Floats:
    """U by job and set of places; −∞ for a set that the job may not have."""
    sets = np.arange(1 << len(places), dtype=np.int64)
    member = (sets[:, None] >> np.arange(len(places))) & 1
    on = np.zeros((forking.speed.shape[1], len(sets)), dtype=np.int32)
    np.add.at(on, places, member.T.astype(np.int32))
    rows = [_worth(forking, job, on) for job in jobs.tolist()]
    most = sum(row.max() for row in rows) or 1.0
    stays = [TIE * most * (forking.here[job] @ on) for job in jobs.tolist()]
    return np.array([row + tie for row, tie in zip(rows, stays, strict=True)])


def _best_subsets(table: Floats) -> tuple[Sets, Floats]:
    """By job and set: the subset of largest U, and that U."""
    table = table.copy()
    used = np.tile(np.arange(table.shape[1], dtype=np.int64), (len(table), 1))
    for bit in range(table.shape[1].bit_length() - 1):
        whole = np.flatnonzero(np.arange(table.shape[1]) >> bit & 1)
        less = whole - (1 << bit)
        better = table[:, less] > table[:, whole]
        table[:, whole] = np.where(better, table[:, less], table[:, whole])
        used[:, whole] = np.where(better, used[:, less], used[:, whole])
    return used, table


def _worth(forking: Forking, job: int, on: Ints) -> Floats:
    """U of one job by set; `on`: copies by node and set."""
    copies = on.sum(axis=0)
    home = int(forking.home[job])
    at_home = (copies == 1) & (on[home] == 1) if home != NOWHERE else np.zeros(len(copies), dtype=np.bool_)
    one = forking.of(job)
    worth = one.value(forking.speed[job] @ on, copies, at_home)
    refused = on[~forking.able()[job]].any(axis=0) | (on > 1).any(axis=0) | (copies > forking.most[job])
    refused |= (copies > 1) & on[~forking.forks].any(axis=0)
    return np.where(refused, -np.inf, worth)


def _best(table: Floats) -> list[int]:
    """By job (a row of the table): its set of places. All places are divided, so that the sum is largest."""
    everything = np.arange(table.shape[1], dtype=np.int64)
    full = int(everything[-1])
    if len(table) == 1:
        return [full]
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
    """By set: the largest sum of `best` and one more job's `row`, and which part that job gets."""
    total, choice = np.full_like(best, -np.inf), np.zeros_like(everything)
    for part in np.flatnonzero(row > -np.inf).tolist():
        larger = everything[everything & part == part]
        value = best[larger - part] + row[part]
        better = value > total[larger]
        total[larger[better]] = value[better]
        choice[larger[better]] = part
    return total, choice


def _assigned(forking: Forking, jobs: Ints, places: Ints, sets: list[int]) -> Flags:
    on = no_copies(forking)
    for job, own in zip(jobs.tolist(), sets, strict=True):
        on[job, [node for bit, node in enumerate(places.tolist()) if own >> bit & 1]] = True
    return on
