"""A job's GPU count, types and place as a queue needs them, cached while the job does not change. Pure.

Views of one process share the objects that did not change, so `is` tells whether a job changed. In another
process the objects differ, and everything is computed again.
"""

from collections.abc import Mapping, Sequence

import msgspec

from schemas.ids import GpuType, JobId, NodeId
from schemas.placement import Configuration
from services.planner.policies.contract.decision import Choice
from services.planner.policies.contract.view import Present, ViewJob, ViewNode
from services.planner.policies.kit.gangs import Pool, Style, pools
from services.planner.policies.kit.rigid import Rigid, rigid
from services.planner.policies.kit.serving import QueuedJob

KEPT = 10_000
"""jobs in the cache, at most"""


class Cluster(msgspec.Struct, frozen=True):
    """The nodes, idle or not."""

    pools: dict[GpuType, Pool]
    sizes: dict[GpuType, int]
    """GPUs of each type"""


class KnownJob(msgspec.Struct, frozen=True):
    """A cached job: the objects that its entry was computed from, and what follows from them."""

    cluster: Cluster
    single_gpu: dict[GpuType, float]
    gpu_types: tuple[GpuType, ...]
    present: Present | None
    queued: QueuedJob
    stay: Choice | None
    """the choice that keeps it where it is; None: it runs nowhere"""


class KnownJobs:
    """The cache of one policy."""

    def __init__(self, rule: Rigid) -> None:
        self._rule = rule
        self._nodes: tuple[ViewNode, ...] = ()
        self._cluster = Cluster({}, {})
        self._jobs: dict[JobId, KnownJob] = {}

    def cluster(self, nodes: tuple[ViewNode, ...]) -> Cluster:
        """The cluster of these nodes; the same object as the last time if only idle GPUs differ."""
        before, self._nodes = self._nodes, nodes
        if before is not nodes and not _alike(before, nodes):
            self._cluster = _cluster([(node.node_id, node.gpu_type, node.gpus) for node in nodes])
        return self._cluster

    def of(self, job: ViewJob, cluster: Cluster, style: Style, line: str) -> KnownJob:
        known = self._jobs.get(job.job_id)
        if (
            known is not None
            and known.present is job.present
            and known.single_gpu is job.single_gpu
            and known.gpu_types is job.gpu_types
            and known.cluster is cluster
            and known.queued.style is style
            and known.queued.line == line
        ):
            return known
        if len(self._jobs) > KEPT:
            self._jobs.clear()
        known = self._jobs[job.job_id] = self._looked_at(job, cluster, style, line)
        return known

    def _looked_at(self, job: ViewJob, cluster: Cluster, style: Style, line: str) -> KnownJob:
        present = job.present
        queued = QueuedJob(
            job_id=job.job_id,
            gpus=count(job, cluster.sizes, self._rule),
            types=fastest_first(job),
            held=held(job),
            style=style,
            line=line,
        )
        return KnownJob(cluster, job.single_gpu, job.gpu_types, present, queued, _stay(job))


def _alike(before: Sequence[ViewNode], after: Sequence[ViewNode]) -> bool:
    """Whether the nodes are the same, however many of their GPUs are idle."""
    changed = [(old, new) for old, new in zip(before, after, strict=False) if old is not new]
    return len(before) == len(after) and all(
        (old.node_id, old.gpu_type, old.gpus) == (new.node_id, new.gpu_type, new.gpus) for old, new in changed
    )


def _cluster(shape: Sequence[tuple[NodeId, GpuType, int]]) -> Cluster:
    clusters = pools(shape)
    return Cluster(clusters, {gpu_type: sum(pool.sizes) for gpu_type, pool in clusters.items()})


def count(job: ViewJob, sizes: Mapping[GpuType, int], rule: Rigid) -> int:
    """The GPU count a job asks for; 0 where the empty cluster has room for none of its demand.

    `sizes`: all GPUs of each type.
    """
    most = max((sizes.get(gpu_type, 0) for gpu_type in job.gpu_types), default=0)
    possible = [gpus for gpus in job.demand if gpus <= most]
    return rigid(possible, rule) if possible else 0


def fastest_first(job: ViewJob) -> tuple[GpuType, ...]:
    """The types that a job can run on, by its throughput on one GPU."""
    return tuple(sorted(job.gpu_types, key=lambda name: (-job.single_gpu.get(name, 0.0), name)))


def held(job: ViewJob) -> Configuration:
    """The GPUs that a job has, by node; empty: it has none."""
    return job.present.gang.configuration if job.present is not None else {}


def _stay(job: ViewJob) -> Choice | None:
    present = job.present
    if present is None:
        return None
    return Choice(job_id=job.job_id, gang=present.gang, throughput=present.throughput, layer=present.layer)
