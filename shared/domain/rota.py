"""Jobs that take turns on the same GPUs: how long a cycle of their rota takes. Pure.

A round of a relaxed gang is some tasks on each of its GPUs, one after another, and an exchange. While a
job exchanges gradients, its GPUs compute another job's tasks; its own next round waits. Every GPU goes
through the rounds of a cycle in the same order, so that the times follow a max-plus recursion. For each
round in turn, and each GPU g where its job n has tasks:

    start_g = max(free_g + (switch_n if another job ran there last), ready_n)
    free_g  = start_g + busy_ng
    ready_n = max over g of free_g + exchange_n

With times that do not change, the growth of all free_g and ready_n settles to the same number a cycle: the
period. Every job then makes its rounds of a cycle once a period.
"""

from collections.abc import Iterator, Sequence

import msgspec

CYCLES = 12
"""cycles that are computed"""
SETTLED = 6
"""last cycles, over which the period is measured"""


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """What a job of a rota does, in seconds."""

    busy_s: Sequence[Sequence[float]]
    """by round and GPU of the rota: the time of the round's tasks, without the exchange; 0: no task there.
    After the last row the rounds begin with the first row again: a single row stands for every round"""
    exchange_s: float
    switch_s: float
    """seconds in which a GPU switches to this job from another"""
    rounds: int = 1
    """rounds in a cycle, at least one"""


def cycle(rounds: Sequence[int]) -> tuple[int, ...]:
    """The order of the rounds in a cycle: the index of the job of each. `rounds`: the number for each job.

    A job's rounds are spread evenly, so that others compute while it exchanges gradients. Rounds that are due
    at the same time come in the order of the jobs.
    """
    due = [((done + 0.5) / of, job) for job, of in enumerate(rounds) for done in range(of)]
    return tuple([job for _, job in sorted(due)])


def period(turns: Sequence[Turn]) -> float:
    """Seconds of a cycle, if all jobs begin at once; `turns`: the jobs in the order of their turns.

    The mean over the last cycles, for the GPU or job that takes longest.
    """
    match turns:
        case [Turn(busy_s=[busy_s]) as alone]:
            return alone.rounds * (max(busy_s) + alone.exchange_s)
    order = cycle([turn.rounds for turn in turns])
    ends = list(_ends(turns, order))
    grown = [after - before for before, after in zip(ends[CYCLES - SETTLED], ends[CYCLES], strict=True)]
    return max(grown) / SETTLED


def _ends(turns: Sequence[Turn], order: Sequence[int]) -> Iterator[list[float]]:
    """When every GPU is free and every job ready, before the first cycle and after each."""
    gpus = len(turns[0].busy_s[0])
    rows = [[[(gpu, busy) for gpu, busy in enumerate(row) if busy] for row in turn.busy_s] for turn in turns]
    free, ready = [0.0] * gpus, [0.0] * len(turns)
    last: list[int | None] = [None] * gpus
    done = [0] * len(turns)
    yield free + ready
    for _ in range(CYCLES):
        for job in order:
            row = rows[job][done[job] % len(rows[job])]
            done[job] += 1
            since, switch_s, end = ready[job], turns[job].switch_s, 0.0
            for gpu, busy in row:
                own = free[gpu] if last[gpu] == job else free[gpu] + switch_s
                last[gpu] = job
                free[gpu] = done_at = (max(since, own)) + busy
                end = max(end, done_at)
            ready[job] = end + turns[job].exchange_s
        yield free + ready
