"""The least weighted completion time of a tiny problem, by looking at all schedules."""

from collections.abc import Sequence
from typing import Any

from tests.services.planner.policies.hare.list_form import ListJob


def least(jobs: Sequence[ListJob], gpus: int) -> float:
    """Σ w · completion time. Every schedule that starts nothing later than need be is looked at."""
    search = _Search(jobs)
    search.go(
        free=[0.0] * gpus,
        ready=[job.arrival for job in jobs],
        ends=[job.arrival for job in jobs],
        done=[0] * len(jobs),
    )
    return search.best


class _Search:
    def __init__(self, jobs: Sequence[ListJob]) -> None:
        self.jobs = jobs
        self.best = float("inf")

    def go(self, free: list[float], ready: list[float], ends: list[float], done: list[int]) -> None:
        """`ready`: when the round that each job is in may begin; `ends`: of what was placed of it."""
        if self._least(free, ready, ends, done) >= self.best:
            return
        open_ones = [one for one, job in enumerate(self.jobs) if done[one] < job.rounds * job.tasks]
        if not open_ones:
            self.best = sum(job.weight * end for job, end in zip(self.jobs, ready, strict=True))
            return
        for one in open_ones:
            seen = set()
            for gpu in sorted(range(len(free)), key=lambda gpu: self._end(one, gpu, free, ready)):
                alike = free[gpu], self.jobs[one].task_s[gpu]
                others = tuple(job.task_s[gpu] for job in self.jobs)
                if (alike, others) in seen:
                    continue
                seen.add((alike, others))
                self._place(one, gpu, free, ready, ends, done)

    def _end(self, one: int, gpu: int, free: list[float], ready: list[float]) -> float:
        return max(free[gpu], ready[one]) + self.jobs[one].task_s[gpu]

    def _place(self, one: int, gpu: int, *state: list[Any]) -> None:
        free, ready, ends, done = (own.copy() for own in state)
        job, end = self.jobs[one], self._end(one, gpu, free, ready)
        free[gpu], ends[one] = end, max(ends[one], end)
        done[one] += 1
        if done[one] % job.tasks == 0:
            ready[one] = ends[one] + job.exchange_s
        self.go(free, ready, ends, done)

    def _least(self, free: list[float], ready: list[float], ends: list[float], done: list[int]) -> float:
        """What even the rest of each job alone would cost."""
        total, soonest = 0.0, min(free)
        for one, job in enumerate(self.jobs):
            rounds, part = divmod(done[one], job.tasks)
            end = ready[one]
            if part:
                last = max(ends[one], max(ready[one], soonest) + job.fastest_s)
                end, rounds = last + job.exchange_s, rounds + 1
            for _ in range(job.rounds - rounds):
                end = max(end, soonest) + job.fastest_s + job.exchange_s
            total += job.weight * end
        return total
