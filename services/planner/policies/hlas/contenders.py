"""The jobs of a view as HLAS sees them: by what they have done, not by how long they will run. Pure."""

from collections.abc import Iterator, Mapping

import msgspec

from schemas.ids import GpuType
from schemas.placement import Gang, Relaxed
from services.planner.policies.contract.view import View, ViewJob
from services.planner.policies.hlas.forming import group_count
from services.planner.policies.hlas.memory import HlasMemory
from services.planner.policies.hlas.options import HlasOptions
from services.planner.policies.hlas.queues import QueuePlace, Yardstick, yardstick
from services.planner.policies.hlas.room import nodes_of
from services.planner.policies.kit.known_jobs import count
from shared.domain.sums import plain_sum


class Contender(msgspec.Struct, frozen=True, kw_only=True):
    """A job that runs or waits, and the groups that it gets."""

    job: ViewJob
    rates: dict[GpuType, float]
    """samples/s of one GPU, of the types that the cluster has and the job can use"""
    scale: int
    """D: tasks of a round"""
    yard: Yardstick
    rounds: int
    """rounds that it has run"""
    queue_place: QueuePlace
    groups: tuple[int, ...] = ()
    """positions of the groups that it has"""
    gang: Gang | None = None
    """None: it waits"""

    @property
    def stays_put(self) -> bool:
        return self.job.present is not None and self.job.present.gang is self.gang


def contenders(view: View, before: HlasMemory, options: HlasOptions) -> Iterator[Contender]:
    """The jobs of a view, each in its queue as of the last plan."""
    sizes: dict[GpuType, int] = {}
    for node in nodes_of(view):
        sizes[node.gpu_type] = sizes.get(node.gpu_type, 0) + node.gpus
    groups = group_count(sum(sizes.values()), options.groups)
    for job in view.jobs:
        known = before.jobs.get(job.job_id)
        rates = {kind: job.single_gpu.get(kind, 0.0) for kind in job.gpu_types if kind in sizes}
        rates = {kind: rate for kind, rate in rates.items() if rate > 0}
        scale = known.scale if known and known.scale in job.demand else _scale(job, sizes, options)
        speed = plain_sum(rate * sizes[kind] for kind, rate in rates.items())
        yard = yardstick(float(scale * job.batch_size), speed, groups)
        yield Contender(
            job=job,
            rates=rates,
            scale=scale,
            yard=yard,
            rounds=yard.rounds(job.samples_done),
            queue_place=known.queue_place if known else QueuePlace(entered_at=job.submitted_at),
        )


def _scale(job: ViewJob, sizes: Mapping[GpuType, int], options: HlasOptions) -> int:
    """The tasks of a round that the job runs with; else the count that every rigid policy gives it."""
    if job.present is not None and isinstance(job.present.gang.sync, Relaxed):
        return sum(map(sum, job.present.gang.sync.tasks))
    return count(job, sizes, options.rigid_demand) or job.demand[0]
