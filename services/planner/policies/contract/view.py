"""What a policy sees: the cluster at one instant, immutable. Only data lives here.

Nodes come in the order of their ids, jobs in the order of their submission (then id).
"""

import math
from collections.abc import Collection, Mapping

import msgspec

from schemas.ids import Fingerprint, GpuType, JobId, NodeId, PlacementId
from schemas.placement import ONLY_LOCKSTEP, Gang, Mode
from schemas.plans import Layer, PlanKind
from services.planner.solver.effort import Effort
from shared.domain import in_turns


class ViewNode(msgspec.Struct, frozen=True, kw_only=True):
    """An alive, undrained node."""

    node_id: NodeId
    gpu_type: GpuType
    gpus: int
    """all of them"""
    idle: int
    """those the plan may use: first plan, all but profiling's; fragment plan, those nobody claims"""
    modes: tuple[str, ...] = ONLY_LOCKSTEP
    """how gangs may synchronise that it runs"""
    link_bandwidth: float = math.inf
    """bytes/s that an all-reduce inside the node achieves"""
    network_bandwidth: float = math.inf
    """bytes/s that an all-reduce between such nodes achieves"""
    closed: bool = False
    """nothing more is placed on it: its idle GPUs are those of jobs that stay, and nobody joins them"""


class Present(msgspec.Struct, frozen=True, kw_only=True):
    """Where a job runs, or is about to run."""

    placement_id: PlacementId
    gang: Gang
    throughput: float
    """samples/s, as estimated when it was planned"""
    layer: Layer
    share: float = 1.0
    """of its GPUs' time, as planned"""
    starting: bool = False
    """it does not run there yet"""


class ViewJob(msgspec.Struct, frozen=True, kw_only=True):
    """A profiled, unfinished job. A fragment plan shows those without a placement only."""

    job_id: JobId
    submitted_at: float
    demand: tuple[int, ...]
    """R, ascending"""
    gpu_types: tuple[GpuType, ...]
    """types it can run on, in alphabetical order"""
    single_gpu: dict[GpuType, float]
    """samples/s on one GPU"""
    sensitivity: float
    """ρ (Hops eq. 10)"""
    age_s: float
    """expected running time without waiting (Hops eq. 9)"""
    wait_s: float
    """time it existed and held no GPUs"""
    attained_gpu_s: float
    """GPU-seconds held so far"""
    received_s: dict[GpuType, float]
    """seconds for which it held GPUs, by type; of a gang of several types each has its share of the GPUs"""
    restarts: int
    """preemptions so far"""
    samples: float
    samples_done: float
    """as last reported, and from then on as estimated"""
    priority: float = 1.0
    """the user's factor on the job's weight"""
    project: str = "default"
    workload: Fingerprint = Fingerprint("")
    """jobs of one workload train at the same speed on the same GPUs; empty: like no other"""
    batch_size: int = 1
    """samples of one GPU in an iteration"""
    gradient_bytes: float = 0.0
    """what an exchange of gradients has to move; 0: not known"""
    epoch_samples: float | None = None
    """of one epoch; None: the job is not said to have any"""
    batch_most: dict[GpuType, int] = {}
    """samples of one GPU in an iteration that surely fit its memory, as measured; a type that is not named: a
    batch"""
    memory_share: dict[GpuType, float] = {}
    """of a GPU's memory that a batch took, as measured; a type that is not named: not known"""
    unfit: frozenset[NodeId] = frozenset()
    """nodes on which a copy of it ran out of memory since they joined; a gang that does fails with its job"""
    modes: tuple[str, ...] = ()
    """in which its gang can synchronise; empty: any"""
    warm: dict[NodeId, int] = {}
    """its processes that stand by or run, by node: a relaxed gang on no more GPUs there starts by a switch"""
    preemptible: bool = True
    """no: where it is placed once it stays until its end"""
    present: Present | None = None
    stays: bool = False
    """a first plan may not move it now; only policies that `sees_staying` are shown such a job"""

    def stands_by(self, gpus: Mapping[NodeId, int]) -> bool:
        """Whether a relaxed gang of it on these GPUs starts by a switch."""
        return bool(gpus) and all(self.warm.get(node_id, 0) >= count for node_id, count in gpus.items())

    def lacks(self, modes: Collection[type[Mode]]) -> list[str]:
        """Those in which it cannot run."""
        return sorted(tag for mode in modes if self.modes and (tag := mode.tag()) not in self.modes)


class View(msgspec.Struct, frozen=True, kw_only=True):
    at: float
    round: int
    round_s: float
    kind: PlanKind
    nodes: tuple[ViewNode, ...]
    jobs: tuple[ViewJob, ...]
    jobs_present: int
    """unfinished jobs in the cluster, shown here or not"""
    effort: Effort
    restart_s: float = 0.0
    """of running that a job loses when it is moved, as far as nothing is known about its restarts: its
    checkpoint is written, its workers start anew"""
    restarts_s: dict[Fingerprint, dict[GpuType, float]] = {}
    """the same by workload and GPU type, as measured"""
    switch_s: float = 0.0
    """of running that a job loses where its processes stand by, as far as nothing is known about it"""
    switches_s: dict[Fingerprint, dict[GpuType, float]] = {}
    """the same by workload and GPU type, as measured"""
    apart: dict[JobId, Present] = {}
    """jobs that are not shown because they stay where they are; their GPUs are not idle here"""
    lacking: dict[JobId, str] = {}
    """jobs that are not shown because they do not run in the modes that the policy plans, and why in words"""
    memory: bytes = b""
    """what the policy's last decision asked to be kept"""

    @property
    def idle_gpus(self) -> int:
        return sum([node.idle for node in self.nodes])

    def restart_of(self, workload: Fingerprint, gpu_type: GpuType) -> float:
        """Seconds of running that a job of the workload loses when it is started anew on this type."""
        return self.restarts_s.get(workload, {}).get(gpu_type, self.restart_s)

    def switch_of(self, workload: Fingerprint, gpu_type: GpuType) -> float:
        """The same where its processes stand by."""
        return self.switches_s.get(workload, {}).get(gpu_type, self.switch_s)

    def in_modes(self, modes: Collection[type[Mode]], *, by_job: bool = False) -> "View":
        """For a policy that plans these modes: a job that runs in another has no place where it can stay.

        One that has to stay is kept apart, with its GPUs. A job that cannot run in all of the modes is
        not shown, unless the policy looks at that itself, `by_job`.
        """
        lacking = {
            job.job_id: lacks for job in self.jobs if job.modes and not by_job and (lacks := job.lacks(modes))
        }
        others = [
            job
            for job in self.jobs
            if job.job_id in lacking or (job.present and type(job.present.gang.sync) not in modes)
        ]
        if not others:
            return self
        apart = {job.job_id: job.present for job in others if job.stays and job.present}
        moved = {job.job_id for job in others} - apart.keys()
        unseen = lacking.keys() - apart.keys()
        return msgspec.structs.replace(
            self,
            nodes=_without(self.nodes, apart),
            jobs=tuple(
                msgspec.structs.replace(job, present=None) if job.job_id in moved else job
                for job in self.jobs
                if job.job_id not in apart and job.job_id not in unseen
            ),
            lacking={
                job_id: f"it runs no {' or '.join(lacks)} gangs"
                for job_id, lacks in lacking.items()
                if job_id in unseen
            },
            apart=self.apart | apart,
        )


def _without(nodes: tuple[ViewNode, ...], apart: Mapping[JobId, Present]) -> tuple[ViewNode, ...]:
    """The nodes, without the idle GPUs that belong to these jobs."""
    held = in_turns.held((job_id, present.gang) for job_id, present in apart.items())
    return tuple(
        msgspec.structs.replace(node, idle=node.idle - held[node.node_id]) if node.node_id in held else node
        for node in nodes
    )
