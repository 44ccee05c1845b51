"""The service window at the head of the queue, and the sensitivity adjustment of fragment plans. Pure.

Both are from Hops. A job counts by its minimum demand R_1 and its placement sensitivity ρ.
"""

from collections.abc import Sequence

from services.planner.policies.contract.view import ViewJob
from shared.domain.sums import plain_sum


def service_window(queue: Sequence[ViewJob], gpus: float) -> int:
    """How many jobs from the head of the queue a plan considers.

    The window ends with the job whose minimum demand brings their sum to `gpus` or more.
    """
    wanted = 0
    for length, job in enumerate(queue, start=1):
        wanted += job.demand[0]
        if wanted >= gpus:
            return length
    return len(queue)


def adjusted(queue: Sequence[ViewJob], length: int, idle: int, *, last_gpu: bool = True) -> list[ViewJob]:
    """The first `length` jobs, and after them jobs of low sensitivity that are admitted from behind.

    ρ_set: mean ρ of the window as it grows; ρ_queue: mean ρ of the queue. While ρ_set > ρ_queue, each next
    job with ρ_i < ρ_queue is admitted if R_1 ≤ `idle` GPUs; without `last_gpu`, if R_1 < `idle`.
    """
    window = list(queue[:length])
    if not window:
        return window
    mean_queue = plain_sum(job.sensitivity for job in queue) / len(queue)
    total = plain_sum(job.sensitivity for job in window)
    for job in queue[length:]:
        if total / len(window) <= mean_queue:
            break
        if job.sensitivity < mean_queue and job.demand[0] <= (idle if last_gpu else idle - 1):
            window.append(job)
            total += job.sensitivity
    return window
