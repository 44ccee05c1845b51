"""What a policy sees: the cluster at one instant, immutable. Only data lives here.

Nodes come in the order of their ids, jobs in the order of their submission (then id).
"""

import msgspec

from schemas.ids import Fingerprint, GpuType, JobId, NodeId, PlacementId
from schemas.plans import Configuration, Layer, PlanKind


class ViewNode(msgspec.Struct, frozen=True, kw_only=True):
    """An alive, undrained node."""

    node_id: NodeId
    gpu_type: GpuType
    gpus: int
    """all of them"""
    idle: int
    """those the plan may use: first plan, all but profiling's; fragment plan, those nobody claims"""


class Present(msgspec.Struct, frozen=True, kw_only=True):
    """Where a job runs, or is about to run."""

    placement_id: PlacementId
    configuration: Configuration
    throughput: float
    """samples/s, as estimated when it was planned"""
    layer: Layer
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
    """seconds for which it held GPUs, by type"""
    restarts: int
    """preemptions so far"""
    samples: float
    samples_done: float
    """as told last, and from then on as estimated"""
    priority: float = 1.0
    """the user's factor on the job's weight"""
    project: str = "default"
    workload: Fingerprint = Fingerprint("")
    """jobs of one workload train at the same speed on the same GPUs; empty: like no other"""
    present: Present | None = None


class Effort(msgspec.Struct, frozen=True, kw_only=True):
    """How hard a policy may try."""

    gap: float = 0.01
    """tolerated relative gap"""
    budget_s: float = 10.0
    """seconds for solving: of the wall clock, or modelled ones (see `modelled`)"""
    node_limit: int | None = None
    """branch-and-bound nodes of one solve; None: no limit"""
    modelled: bool = False
    """seconds are reckoned from the work done, so that the answer does not depend on the machine"""
    greedy: bool = False
    """do not solve at all"""
    backend: str = "hopyard"
    """which solver, by its name in `solver.BACKENDS`"""


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
    memory: bytes = b""
    """what the policy's last decision asked to be kept"""

    @property
    def idle_gpus(self) -> int:
        return sum(node.idle for node in self.nodes)
