"""What a policy sees: the cluster at one instant, immutable. Only data lives here.

Nodes come in the order of their ids, jobs in the order of their submission (then id).
"""

import math
from collections.abc import Collection, Iterable, Mapping

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
    """1 or more: the GPUs that jobs of the view have or can ever get. All of the node's, without those that
    jobs outside the view keep to their end; of a closed node, the idle ones"""
    idle: int
    """GPUs that the plan may use. In a first plan: all that profiling does not use; in a fragment plan: those
    without a claim"""
    modes: tuple[str, ...] = ONLY_LOCKSTEP
    """the modes of synchronisation in which the node can run gangs"""
    link_bandwidth: float = math.inf
    """bytes/s that an all-reduce inside the node achieves"""
    network_bandwidth: float = math.inf
    """bytes/s that an all-reduce between such nodes achieves"""
    closed: bool = False
    """no further job may be placed on it: its `idle` GPUs are those of jobs that stay"""


class Present(msgspec.Struct, frozen=True, kw_only=True):
    """Where a job runs, or is about to run."""

    placement_id: PlacementId
    gang: Gang
    throughput: float
    """samples/s, as estimated when it was planned"""
    layer: Layer
    share: float = 1.0
    """share of its GPUs' time, as planned"""
    starting: bool = False
    """the job does not run there yet"""


class ViewJob(msgspec.Struct, frozen=True, kw_only=True):
    """A profiled, unfinished job. The view of a fragment plan has only the jobs without a placement."""

    job_id: JobId
    submitted_at: float
    """later by the seconds for which it waited on hold"""
    demand: tuple[int, ...]
    """R: the GPU counts that it can run with, ascending"""
    gpu_types: tuple[GpuType, ...]
    """types it can run on, in alphabetical order"""
    single_gpu: dict[GpuType, float]
    """samples/s on one GPU"""
    sensitivity: float
    """ρ: how much its throughput suffers from spreading (Hops eq. 10)"""
    age_s: float
    """expected running time without waiting (Hops eq. 9)"""
    wait_s: float
    """seconds since its submission in which it neither ran nor was on hold; its profiling and starts count"""
    attained_gpu_s: float
    """GPU-seconds held so far"""
    received_s: dict[GpuType, float]
    """seconds for which it held GPUs, by type; a gang of several types counts each by its part of the GPUs"""
    restarts: int
    """preemptions so far"""
    samples: float
    """samples of the whole job"""
    samples_done: float
    """samples as last reported, plus those estimated since"""
    priority: float = 1.0
    """the user's factor on the job's weight; never less than 1e-6"""
    project: str = "default"
    workload: Fingerprint = Fingerprint("")
    """jobs of one workload train at the same speed on the same GPUs; empty: no other job is taken to be like
    it"""
    batch_size: int = 1
    """samples of one GPU in an iteration"""
    gradient_bytes: float = 0.0
    """bytes of the gradients that an iteration exchanges; 0: not known"""
    epoch_samples: float | None = None
    """samples of one epoch; None: the job does not declare epochs"""
    batch_most: dict[GpuType, int] = {}
    """samples of one GPU in an iteration that were measured to fit the memory of the type; of a type that is
    not named: `batch_size`"""
    memory_share: dict[GpuType, float] = {}
    """share of a GPU's memory that a batch took, as measured; of a type that is not named it is not known"""
    unfit: frozenset[NodeId] = frozenset()
    """nodes on which a copy of the job ran out of memory since they joined. (A gang that is not of copies and
    runs out of memory fails, and its job with it)"""
    modes: tuple[str, ...] = ()
    """the modes in which its gang can synchronise; empty: any"""
    warm: dict[NodeId, int] = {}
    """its processes that stand by or run, by node: a relaxed gang on no more GPUs there starts by a switch"""
    preemptible: bool = True
    """false: once placed, it stays there until its end"""
    present: Present | None = None
    """None: the job waits"""
    stays: bool = False
    """a first plan may not move it now; only a policy with `sees_staying` is shown such a job"""

    def stands_by(self, gpus: Mapping[NodeId, int]) -> bool:
        """Whether a relaxed gang of the job on these GPUs, by node, starts by a switch."""
        return bool(gpus) and all(self.warm.get(node_id, 0) >= count for node_id, count in gpus.items())

    def lacks(self, modes: Collection[type[Mode]]) -> list[str]:
        """The tags of the given modes in which the job cannot run."""
        return sorted(tag for mode in modes if self.modes and (tag := mode.tag()) not in self.modes)


class View(msgspec.Struct, frozen=True, kw_only=True):
    at: float
    round: int
    round_s: float
    kind: PlanKind
    nodes: tuple[ViewNode, ...]
    jobs: tuple[ViewJob, ...]
    jobs_present: int
    """unfinished jobs in the cluster, whether they are in `jobs` or not; without those on hold, which are in
    no view"""
    jobs_coming: int = 0
    """those of them that are still measured or estimated, and so in no view; without those for which no node
    is open of a GPU type on which they may run"""
    effort: Effort
    restart_s: float = 0.0
    """seconds of running that a job loses when it is moved (its checkpoint is written, its workers start
    again), where no restart of its workload was measured"""
    restarts_s: dict[Fingerprint, dict[GpuType, float]] = {}
    """seconds that a restart was measured to cost, by workload and GPU type"""
    switch_s: float = 0.0
    """seconds of running that a job loses when it starts where its processes stand by, where no such start of
    its workload was measured"""
    switches_s: dict[Fingerprint, dict[GpuType, float]] = {}
    """seconds that such a start was measured to cost, by workload and GPU type"""
    apart: dict[JobId, Present] = {}
    """jobs that are not in `jobs` because they stay where they are; their GPUs do not count as idle"""
    lacking: dict[JobId, str] = {}
    """jobs that are not in `jobs` because they cannot run in the modes of the policy: the reason, in words"""
    memory: bytes = b""
    """the `memory` of the policy's last decision"""

    @property
    def idle_gpus(self) -> int:
        return sum([node.idle for node in self.nodes])

    def restart_of(self, workload: Fingerprint, gpu_type: GpuType) -> float:
        """Seconds of running that a job of the workload loses when it is restarted on this type."""
        return self.restarts_s.get(workload, {}).get(gpu_type, self.restart_s)

    def switch_of(self, workload: Fingerprint, gpu_type: GpuType) -> float:
        """Seconds of running that such a job loses when it starts where its processes stand by."""
        return self.switches_s.get(workload, {}).get(gpu_type, self.switch_s)

    def in_modes(self, modes: Collection[type[Mode]], *, by_job: bool = False) -> "View":
        """The view for a policy that plans these modes.

        A job that runs in another mode is shown without a place; if it has to stay, it is kept apart, with
        its GPUs. A job that cannot run in all of the modes is not shown, unless the policy checks that
        itself for each job (`by_job`).
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
        held = in_turns.held((job_id, present.gang) for job_id, present in apart.items())
        lasting = in_turns.held(
            (job.job_id, apart[job.job_id].gang)
            for job in others
            if job.job_id in apart and not job.preemptible
        )
        moved = {job.job_id for job in others} - apart.keys()
        unseen = lacking.keys() - apart.keys()
        return msgspec.structs.replace(
            self,
            nodes=reduced(self.nodes, held, lasting),
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


def reduced(
    nodes: Iterable[ViewNode], held: Mapping[NodeId, int], lasting: Mapping[NodeId, int]
) -> tuple[ViewNode, ...]:
    """The nodes that still have GPUs for the view, without the idle ones `held` by jobs outside it.

    `lasting`: GPUs that such jobs keep to their end. Both are by node.
    """
    found = []
    for node in nodes:
        idle = node.idle - held.get(node.node_id, 0)
        gpus = idle if node.closed else node.gpus - lasting.get(node.node_id, 0)
        if gpus > 0:
            same = idle == node.idle and gpus == node.gpus
            found.append(node if same else msgspec.structs.replace(node, idle=idle, gpus=gpus))
    return tuple(found)
