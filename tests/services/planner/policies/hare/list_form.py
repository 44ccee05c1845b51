"""Reference: Hare offline, task by task. An LP, lists by its midpoints and by WSPT, and two rules to run one.

What ships plans shares of GPUs in place of tasks (`blocks`), for there are too many of these. The LP has a
variable C for the end of the tasks of each round, with the fastest time p̂ of a task, and is valid for |M|
unlike GPUs (shrink each task of a schedule to its last p̂ seconds):

    minimise    Σ_n w_n · (C[n, R_n] + exchange_n)
    C[n, 1] ≥ a_n + p̂_n        C[n, r] ≥ C[n, r − 1] + exchange_n + p̂_n
    Σ_{i ∈ S} p̂_i C_i ≥ (Σ_{i ∈ S} p̂_i)² / (2 |M|) + ½ Σ_{i ∈ S} p̂_i²        for every set S of tasks

The most violated set is a prefix in the order of C − p̂ / 2, so such cuts are added until none is violated.
A list in the order of these midpoints, run by `idle`, ends every task by 4α times its C (Queyranne & Schulz,
SIAM J. Comput. 35(5), 2006; α: how many times as long as on its fastest GPU a task may take).
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import msgspec
import numpy as np

from services.planner.policies.kit.linear import LinearProgram, Matrix
from shared.domain.arrays import Floats

VIOLATED = 1e-7
"""in parts of what a cut asks for"""
CUTS_MOST = 10_000


class ListJob(msgspec.Struct, frozen=True, kw_only=True):
    rounds: int
    tasks: int
    """of a round"""
    task_s: tuple[float, ...]
    """p, by GPU"""
    exchange_s: float = 0.0
    arrival: float = 0.0
    weight: float = 1.0

    @property
    def fastest_s(self) -> float:
        """p̂."""
        return min(self.task_s)


class Task(msgspec.Struct, frozen=True):
    job: int
    round: int
    """from 0"""
    gpu: int
    start: float
    end: float


class Relaxation(msgspec.Struct, frozen=True):
    ends: tuple[tuple[float, ...], ...]
    """C, by job and round"""
    objective: float
    """no schedule has a smaller Σ w · completion time, from 0"""


# ---- the relaxation


def relaxed_ends(jobs: Sequence[ListJob], gpus: int) -> Relaxation:
    first = np.cumsum([0, *(job.rounds for job in jobs)]).tolist()
    fastest = np.repeat([job.fastest_s for job in jobs], [job.rounds for job in jobs])
    tasks = np.repeat([job.tasks for job in jobs], [job.rounds for job in jobs])
    cost = np.zeros(first[-1])
    cost[np.array(first[1:]) - 1] = [job.weight for job in jobs]
    rows, lower = list(_precedence(jobs, first)), list(_soonest(jobs))
    exchanges = sum(job.weight * job.exchange_s for job in jobs)
    for _ in range(CUTS_MOST):
        found = _program(cost, rows, lower).solve()
        assert found.state == "optimal", "ends may be as late as they like"
        cut = _violated(found.x, fastest, tasks, gpus)
        if cut is None:
            ends = tuple(tuple(found.x[begin:end].tolist()) for begin, end in pairwise(first))
            return Relaxation(ends, found.objective + exchanges)
        rows.append(cut[0])
        lower.append(cut[1])
    raise RuntimeError(f"more than {CUTS_MOST} cuts")


Row = dict[int, float]
"""coefficients by variable"""


def _precedence(jobs: Sequence[ListJob], first: Sequence[int]) -> Iterator[Row]:
    for job, begin in zip(jobs, first, strict=False):
        yield {begin: 1.0}
        for own in range(1, job.rounds):
            yield {begin + own: 1.0, begin + own - 1: -1.0}


def _soonest(jobs: Sequence[ListJob]) -> Iterator[float]:
    for job in jobs:
        yield job.arrival + job.fastest_s
        yield from [job.exchange_s + job.fastest_s] * (job.rounds - 1)


def _program(cost: Floats, rows: Sequence[Row], lower: Sequence[float]) -> LinearProgram:
    entries = [(number, column, value) for number, row in enumerate(rows) for column, value in row.items()]
    return LinearProgram(
        cost=cost,
        matrix=Matrix(
            np.array([row for row, _, _ in entries], dtype=np.int32),
            np.array([column for _, column, _ in entries], dtype=np.int32),
            np.array([value for _, _, value in entries]),
        ),
        row_lower=np.array(lower),
        row_upper=np.full(len(rows), np.inf),
    )


def _violated(ends: Floats, fastest: Floats, tasks: Floats, gpus: int) -> tuple[Row, float] | None:
    """The most violated set of tasks. All tasks of a round have one end, so it has all of them or none."""
    order = np.argsort(ends - fastest / 2, kind="stable")
    length, count = fastest[order], tasks[order]
    done = np.cumsum(count * length * ends[order])
    asked = np.cumsum(count * length) ** 2 / (2 * gpus) + np.cumsum(count * length**2) / 2
    short = (asked - done) / np.maximum(asked, 1e-12)
    worst = int(short.argmax())
    if short[worst] <= VIOLATED:
        return None
    own = order[: worst + 1]
    values = tasks[own] * fastest[own]
    scale = float(asked[worst])  # rows near 1
    return {int(one): float(value) / scale for one, value in zip(own, values, strict=True)}, 1.0


# ---- lists

Listed = tuple[int, int]
"""job and round of a task"""


def by_midpoint(jobs: Sequence[ListJob], ends: Sequence[Sequence[float]]) -> list[Listed]:
    """By half-completion, C − p̂ / 2."""
    keys = sorted(
        (end - job.fastest_s / 2, number, own)
        for number, (job, each) in enumerate(zip(jobs, ends, strict=True))
        for own, end in enumerate(each)
    )
    return [(number, own) for _, number, own in keys for _ in range(jobs[number].tasks)]


def by_weighted_length(jobs: Sequence[ListJob]) -> list[Listed]:
    """WSPT: whole jobs, by GPU time on the fastest GPU over weight."""
    order = sorted(
        range(len(jobs)),
        key=lambda one: (jobs[one].rounds * jobs[one].tasks * jobs[one].fastest_s / jobs[one].weight, one),
    )
    return [(one, own) for one in order for own in range(jobs[one].rounds) for _ in range(jobs[one].tasks)]


class _Run:
    """GPUs and rounds as a list goes by."""

    def __init__(self, jobs: Sequence[ListJob], free_at: Sequence[float]) -> None:
        self.jobs, self.free_at = jobs, list(free_at)
        self.ready_at = {(number, 0): job.arrival for number, job in enumerate(jobs)}
        self.tasks: list[Task] = []

    def place(self, listed: Listed, gpu: int, start: float) -> None:
        number, own = listed
        job = self.jobs[number]
        end = self.free_at[gpu] = start + job.task_s[gpu]
        self.tasks.append(Task(number, own, gpu, start, end))
        after = number, own + 1
        self.ready_at[after] = max(self.ready_at.get(after, 0.0), end + job.exchange_s)


def finish(jobs: Sequence[ListJob], order: Sequence[Listed], free_at: Sequence[float]) -> list[Task]:
    """Each task on the GPU on which it ends first; ties: the lower index."""
    run = _Run(jobs, free_at)
    for listed in order:
        ready_at, task_s = run.ready_at[listed], jobs[listed[0]].task_s
        ends = [max(free, ready_at) + each for free, each in zip(run.free_at, task_s, strict=True)]
        gpu = ends.index(min(ends))
        run.place(listed, gpu, max(run.free_at[gpu], ready_at))
    return run.tasks


def idle(jobs: Sequence[ListJob], order: Sequence[Listed], free_at: Sequence[float]) -> list[Task]:
    """Each task as soon as it is ready and a GPU idle, on the fastest such; no sooner than the one before."""
    run, before = _Run(jobs, free_at), 0.0
    for listed in order:
        at = max(run.ready_at[listed], before, min(run.free_at))
        there = [gpu for gpu, free in enumerate(run.free_at) if free <= at]
        gpu = min(there, key=lambda one: (jobs[listed[0]].task_s[one], one))
        run.place(listed, gpu, at)
        before = at
    return run.tasks


def completions(jobs: Sequence[ListJob], tasks: Sequence[Task]) -> list[float]:
    ends = [0.0] * len(jobs)
    for task in tasks:
        ends[task.job] = max(ends[task.job], task.end + jobs[task.job].exchange_s)
    return ends


def weighted(jobs: Sequence[ListJob], tasks: Sequence[Task]) -> float:
    """Σ w · completion time, from 0."""
    return sum(job.weight * end for job, end in zip(jobs, completions(jobs, tasks), strict=True))


RULES: tuple[Callable[[Sequence[ListJob], Sequence[Listed], Sequence[float]], list[Task]], ...] = (
    finish,
    idle,
)


def planned(jobs: Sequence[ListJob], free_at: Sequence[float]) -> list[Task]:
    """Of both lists run by both rules the one with the least weighted sum; ties: the first."""
    orders = by_midpoint(jobs, relaxed_ends(jobs, len(free_at)).ends), by_weighted_length(jobs)
    plans = [rule(jobs, order, free_at) for order in orders for rule in RULES]
    return min(plans, key=lambda tasks: weighted(jobs, tasks))
