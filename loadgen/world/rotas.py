"""Jobs that take turns on the same GPUs, for worlds: the order of turns, and the speed of each job."""

from collections.abc import Sequence
from typing import TypeVar

from schemas.jobs import Workload
from schemas.placement import Gang, Relaxed
from shared.domain import gangs
from shared.domain.rota import Turn, period

J = TypeVar("J")


def in_turn(jobs: Sequence[tuple[J, Gang]]) -> list[tuple[J, Relaxed]]:
    """The jobs that have turns, in the order in which they take them."""
    found = [(job, gang.sync) for job, gang in jobs if isinstance(gang.sync, Relaxed) and gang.sync.turns]
    return sorted(found, key=lambda job: job[1].place)


def rates(jobs: Sequence[tuple[Workload, Gang]], turns: Sequence[Turn]) -> tuple[float, ...]:
    """samples/s of each job. `turns`: of the jobs that have any, in their order."""
    if not turns:
        return (0.0,) * len(jobs)
    cycle_s = period(turns)
    return tuple(
        sync.turns * gangs.global_batch(gang, workload.batch_size) / cycle_s
        for workload, gang in jobs
        for sync in [gang.sync]
        if isinstance(sync, Relaxed)
    )
