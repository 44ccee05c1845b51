"""Gavel's rounds (OSDI '20, section 5): which job runs on which type next, by its shares of time. Pure.

Arrays are by job and GPU type, (m, n). A *reset* computes the shares X again. A job's priority on a type is X
/ f, where f is its part of the time that all jobs have received there since the last reset. Every job begins
with half a round on every type, so that f is never 0 and new jobs are neither first nor last. Type by type,
jobs are taken by (priority, deficit, X) while their gangs fit; a job runs on one type a round.

A job's deficit is the time that it was due up to the last reset, less the time that it received.
"""

from collections.abc import Sequence

import numpy as np

from shared.domain.arrays import Floats, Ints

NEVER_RUN = 1e9
"""priority per share, on a type on which the job has received no time"""


def priorities(share: Floats, speed: Floats, job_time: Floats, worker_time: Floats) -> Floats:
    """X / f (m, n). Seconds since the last reset: `job_time` (m, n), and of all jobs `worker_time` (n)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        fraction = np.where(worker_time > 0, job_time / worker_time, 0.0)
        priority = np.where(fraction > 0, share / fraction, share * NEVER_RUN)
    return np.where((share > 0) & (speed > 0), priority, 0.0)


def deficits(deficit: Floats, share: Floats, received_s: Floats, elapsed_s: float) -> Floats:
    """The deficits at a reset. `received_s` (m, n) and `elapsed_s`: seconds since the reset before it."""
    return deficit + share * elapsed_s - received_s


def reset_due(*, at: float, last: float | None, interval_s: float, changed: bool, authors: bool) -> bool:
    """Whether shares are computed again. `authors`: a reset at time 0 counts as none."""
    first = last is None or (authors and last == 0)
    return changed and (first or (last is not None and at - last >= interval_s))


def fastest_first(speed: Floats) -> list[int]:
    """The types, by the sum of the jobs' speeds there, each relative to the job's best speed."""
    relative = (speed / speed.max(axis=1, keepdims=True)).sum(axis=0).round(9).tolist()
    return sorted(range(len(relative)), key=lambda kind: (-relative[kind], kind))


def taken(
    priority: Floats,
    deficit: Floats,
    share: Floats,
    *,
    speed: Floats,
    gang: Ints,
    free: Ints,
    order: Sequence[int],
    owed_only: bool,
) -> list[tuple[int, int]]:
    """(job, type) of the jobs that run, in the order in which they were taken.

    `order`: of the types; `owed_only`: leave GPUs idle rather than run a job that has no share of their type.
    Ties go to the earlier job.
    """
    runs: dict[int, int] = {}
    left = free.tolist()
    for kind in order:
        queue = np.lexsort((-share[:, kind], -deficit[:, kind], -priority[:, kind]))
        able = speed[queue, kind] > 0
        if owed_only:
            able &= priority[queue, kind] > 0
        for job in queue[able].tolist():
            if job not in runs and gang[job] <= left[kind]:
                runs[job] = kind
                left[kind] -= int(gang[job])
    return list(runs.items())
