"""Jobs that take turns on the same GPUs, as worlds see them: who turns when, and how fast each is."""

from collections.abc import Sequence

from schemas.jobs import JobSpec
from schemas.placement import Gang, Relaxed
from shared.domain import gangs
from shared.domain.rota import Turn, period

Jobs = Sequence[tuple[JobSpec, Gang]]


def in_turn(jobs: Jobs) -> list[tuple[JobSpec, Relaxed]]:
    """Those that have turns, in the order in which they take them."""
    found = [(spec, gang.sync) for spec, gang in jobs if isinstance(gang.sync, Relaxed) and gang.sync.turns]
    return sorted(found, key=lambda job: job[1].place)


def rates(jobs: Jobs, turns: Sequence[Turn]) -> tuple[float, ...]:
    """samples/s of each job; `turns`: of those that have any, in their order."""
    if not turns:
        return (0.0,) * len(jobs)
    cycle_s = period(turns)
    return tuple(
        sync.turns * gangs.global_batch(gang, spec.workload.batch_size) / cycle_s
        for spec, gang in jobs
        for sync in [gang.sync]
        if isinstance(sync, Relaxed)
    )
