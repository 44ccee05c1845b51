"""All facts; the tables at the end list them.

Names are in the past tense. A fact with another meaning is a new event, never a changed one. Facts of an
earlier form are read as this version would have written them (`schemas/upgrades.py`). A fact that contradicts
itself cannot be made: `__post_init__` raises ValueError, which in a decoder becomes a ValidationError.
"""

import re
from enum import StrEnum
from typing import ClassVar

from schemas.base import Event, Message, written
from schemas.cluster import Node
from schemas.ids import GpuType, JobId, NodeId, PlacementId, PlanId
from schemas.jobs import JobSpec, Workload
from schemas.measurements import TimeModules
from schemas.numbers import (
    Amount,
    Code,
    Fraction,
    Index,
    Number,
    PlainLine,
    Policy,
    Rate,
    WholeNumber,
)
from schemas.placement import ONLY_LOCKSTEP, Gang
from schemas.plans import Cause, LeftOut, Measures, Placement, PlanKind, Stage, Standing

_NO_TOKEN = re.compile(r"[^\w:+=,-]", re.ASCII)
"""characters that are replaced in the subject of PolicyChosen"""

# ---- jobs -------------------------------------------------------------------------------------------


class JobEvent(Event, frozen=True, kw_only=True):
    entity_field: ClassVar[str] = "job_id"
    identity: ClassVar[tuple[str, ...]] = ("job_id",)

    job_id: JobId


class JobSubmitted(JobEvent, frozen=True, kw_only=True, tag="job.submitted", omit_defaults=True):
    """Admission accepted the job."""

    spec: JobSpec
    key: PlainLine
    """the submitter's idempotency key"""
    by: PlainLine = ""
    """who submitted it, as `USER/TOKEN`; empty: the API asks for no token"""
    on_hold: bool = False
    """true: it is on hold from the start, as after a `JobHeld` of the same `at` and `by`"""


class JobProfiled(JobEvent, frozen=True, kw_only=True, tag="job.profiled"):
    """The profiler knows the job's time modules on every GPU type on which it can run."""

    workload: Workload
    modules: dict[GpuType, "TimeModules"]
    known: bool
    """true: they are those of an earlier job of the same workload, and this one was not measured"""
    unusable: dict[GpuType, str] = {}
    """GPU types that it cannot run on, with the reason"""


class JobQueued(JobEvent, frozen=True, kw_only=True, tag="job.queued"):
    """The estimator has estimates for the job, so it can be planned."""

    age_s: Amount
    """expected running time without waiting (Hops eq. 9); it does not change after this fact"""
    sensitivity: Amount
    """placement sensitivity ρ (Hops eq. 10): mean over GPU types, weighted by their shares of the GPUs"""
    single_gpu: dict[GpuType, Rate]
    """samples/s on one GPU, by the types on which it can run"""


class JobTypeProfiled(JobEvent, frozen=True, kw_only=True, tag="job.type-profiled"):
    """The profiler knows the time modules of a profiled job on a further GPU type.

    No node of the type was open when the job was profiled.
    """

    identity: ClassVar[tuple[str, ...]] = ("job_id", "gpu_type")

    workload: Workload
    gpu_type: GpuType
    modules: "TimeModules"


class JobTypeEstimated(JobEvent, frozen=True, kw_only=True, tag="job.type-estimated"):
    """The estimator has estimates for a queued job on a further GPU type, so it can be planned there."""

    identity: ClassVar[tuple[str, ...]] = ("job_id", "gpu_type")

    gpu_type: GpuType
    single_gpu: Rate
    """samples/s on one GPU of the type"""


class JobRejected(JobEvent, frozen=True, kw_only=True, tag="job.rejected"):
    """The job was accepted, but profiling showed that it runs on no GPU type."""

    reason: str


class JobStarted(JobEvent, frozen=True, kw_only=True, tag="job.started"):
    """Every worker of the gang is up."""

    identity: ClassVar[tuple[str, ...]] = ("placement_id",)

    placement_id: PlacementId
    gang: Gang
    learning_rate: Amount | None
    global_batch: WholeNumber
    """samples per iteration over all GPUs"""


class PreemptReason(StrEnum):
    PLAN = "plan"
    NODE_LOST = "node-lost"
    AGENT_RESTARTED = "agent-restarted"
    INTERRUPTED = "interrupted"
    """its processes ended by no fault of the job: a lost peer, a foreign signal, a faulty GPU"""
    FAILED = "failed"
    """its processes failed, and it has retries left"""
    NODE_LEFT = "node-left"
    """its node went away at a known time; everything was saved before"""
    MERGE = "merge"
    """its copies are merged, because they have done their shares or a plan gives new shares; everything is
    saved"""


class JobPreempted(JobEvent, frozen=True, kw_only=True, tag="job.preempted"):
    """The job no longer holds GPUs and is back in the queue."""

    identity: ClassVar[tuple[str, ...]] = ("placement_id",)

    placement_id: PlacementId
    reason: PreemptReason
    samples_done: Amount
    """samples in the checkpoint from which it will resume"""
    cause: Cause | None = None


class JobCompleted(JobEvent, frozen=True, kw_only=True, tag="job.completed"):
    """The job has done all its samples."""

    # With the placement in it, a completion of an earlier placement, which is void, has another id.
    identity: ClassVar[tuple[str, ...]] = ("placement_id",)

    placement_id: PlacementId
    samples_done: Amount


class JobFailed(JobEvent, frozen=True, kw_only=True, tag="job.failed"):
    """The job has ended without doing all its samples."""

    identity: ClassVar[tuple[str, ...]] = ("placement_id",)

    placement_id: PlacementId
    reason: str


class JobCancelled(JobEvent, frozen=True, kw_only=True, tag="job.cancelled", omit_defaults=True):
    """A user cancelled the job. If it was running, its workers are stopped next."""

    by: PlainLine = ""
    """as in `JobSubmitted`"""


class JobPriorityChanged(JobEvent, frozen=True, kw_only=True, tag="job.priority-changed", omit_defaults=True):
    """From the next plan on, the job has another priority."""

    identity: ClassVar[tuple[str, ...]] = ("job_id", "priority", "at")

    priority: Rate
    by: PlainLine = ""
    """as in `JobSubmitted`"""


class JobHeld(JobEvent, frozen=True, kw_only=True, tag="job.held", omit_defaults=True):
    """The job is on hold: plans give it no GPUs, and the next first plan stops it if it runs."""

    identity: ClassVar[tuple[str, ...]] = ("job_id", "at")

    by: PlainLine = ""
    """as in `JobSubmitted`"""


class JobReleased(JobEvent, frozen=True, kw_only=True, tag="job.released", omit_defaults=True):
    """The hold has ended."""

    identity: ClassVar[tuple[str, ...]] = ("job_id", "at")

    by: PlainLine = ""
    """as in `JobSubmitted`"""


# ---- profiles ---------------------------------------------------------------------------------------


class ProfileRun(Message, frozen=True, kw_only=True):
    """A measurement to make: of a job, on one GPU of a node."""

    placement_id: PlacementId
    job_id: JobId
    gpu_type: GpuType
    node_id: NodeId


class ProfilingPlanned(Event, frozen=True, kw_only=True, tag="round.opened"):
    """A round begins; these measurements get GPUs before its plan does (there may be none)."""

    entity_field: ClassVar[str] = "round"
    identity: ClassVar[tuple[str, ...]] = ("round",)

    round: WholeNumber
    """number of the round: cluster time / round length, rounded down"""
    runs: tuple[ProfileRun, ...]


class ProfilingAdded(Event, frozen=True, kw_only=True, tag="round.profiling-added"):
    """Further measurements within a round, on GPUs that no job holds."""

    entity_field: ClassVar[str] = "round"
    identity: ClassVar[tuple[str, ...]] = ("number",)

    round: WholeNumber
    number: WholeNumber
    """how many such facts came before this one, in whatever round"""
    runs: tuple[ProfileRun, ...]


class ProfileEvent(Event, frozen=True, kw_only=True):
    entity_field: ClassVar[str] = "node_id"
    identity: ClassVar[tuple[str, ...]] = ("placement_id", "node_id")

    job_id: JobId
    placement_id: PlacementId
    gpu_type: GpuType
    node_id: NodeId


class ProfileMeasured(ProfileEvent, frozen=True, kw_only=True, tag="profile.measured"):
    """An agent measured some iterations on one GPU: a number for each iteration, in seconds."""

    data_s: tuple[Amount, ...]
    forward_s: tuple[Amount, ...]
    backward_s: tuple[Amount, ...]
    update_s: tuple[Amount, ...]
    iteration_s: tuple[Amount, ...]
    parameters: Amount
    memory_share: Fraction | None = None
    """share of the GPU's memory that the process took; null: not known"""
    modes: tuple[str, ...] = ()
    """modes of synchronisation in which the script can train; empty: any, or not known"""


class ProfileFailed(ProfileEvent, frozen=True, kw_only=True, tag="profile.failed", omit_defaults=True):
    """A measurement brought no times: the job failed on this GPU type, took too long, or lost its node."""

    reason: str
    final: bool
    """true: the job gets no GPUs of this type; false: try again, in the next round at the latest"""
    absent: bool = False
    """its program, folder or image is missing on the node; another node of the type may have it"""
    repeatable: bool = False
    """it ended by an exception or an exit code of its own: it is tried again as soon as a GPU is idle"""
    whole_workload: bool = False
    """true: by what it trains alone, so that no job of the workload can use this type"""


# ---- plans ------------------------------------------------------------------------------------------


class PlanPublished(Event, frozen=True, kw_only=True, tag="plan.published"):
    """The planner made a plan."""

    entity_field: ClassVar[str] = "plan_id"
    identity: ClassVar[tuple[str, ...]] = ("plan_id",)

    plan_id: PlanId
    kind: PlanKind
    round: WholeNumber
    policy: Policy
    token: WholeNumber
    """fencing token of the planner's lease; the placer refuses plans with an older one"""
    made_from: WholeNumber
    """stream sequence of the last fact that the plan takes into account"""
    placements: tuple[Placement, ...]
    """of a first plan: a placement for every job that is to run; of a fragment plan: for every job that is to
    start besides those that run"""
    left_out: tuple[LeftOut, ...]
    """jobs without GPUs, in the order of the queue"""
    idle_gpus: WholeNumber
    """GPUs that the plan leaves without a job"""
    stage: Stage
    objective: Number
    bound: Number
    gap: Number
    """(bound − objective) / bound, proven"""
    decision_s: Amount
    """cluster seconds from making the view to the plan"""
    solve_s: Amount
    """machine seconds in the solver"""
    configurations: WholeNumber
    notes: tuple[str, ...] = ()
    """what went wrong while it was made: a late estimator, a solver at its deadline, a policy that failed"""
    memory: bytes = b""
    """the policy's memory for its next decision, which only the policy can read"""
    measures: Measures = Measures()
    standings: dict[JobId, Standing] = {}
    """by job, in the units of `measures`; empty: the policy has no measures"""
    horizon_s: Amount | None = None
    """seconds in which no schedule could end all its jobs, placed or left out; None: no such bound is
    known"""


class PolicyChosen(Event, frozen=True, kw_only=True, tag="policy.chosen", omit_defaults=True):
    """An operator chose the policy of the running stack; the next plan is made by it."""

    entity_field: ClassVar[str] = "policy"
    identity: ClassVar[tuple[str, ...]] = ("policy", "at")

    policy: Policy
    by: PlainLine = ""
    """as in `JobSubmitted`"""

    @property
    def subject(self) -> str:
        """The subject; dashes replace characters of a policy's name that a subject cannot have."""
        return f"hopyard.policy.{_NO_TOKEN.sub('-', self.policy)}.chosen"


class PlacementRefused(Event, frozen=True, kw_only=True, tag="placement.refused", omit_defaults=True):
    """The placer cannot carry out a placement; its job is in the queue for the next plan."""

    entity_field: ClassVar[str] = "placement_id"
    identity: ClassVar[tuple[str, ...]] = (
        "placement_id",
        "plan_id",
    )  # a later plan may have the same placement

    placement_id: PlacementId
    plan_id: PlanId
    job_id: JobId
    reason: str
    cause: Cause | None = written(None)
    late: bool = False
    """its workers were not up in time, which counts as an interruption of the job"""


# ---- nodes ------------------------------------------------------------------------------------------


class NodeEvent(Event, frozen=True, kw_only=True):
    entity_field: ClassVar[str] = "node_id"

    node_id: NodeId


class NodeJoined(NodeEvent, frozen=True, kw_only=True, tag="node.joined", omit_defaults=True):
    """An agent began a life on the node. Workers of earlier lives that it does not list are gone."""

    identity: ClassVar[tuple[str, ...]] = ("node_id", "life")

    node: Node
    life: PlainLine
    """new at every start of the agent"""
    workers: tuple[PlacementId, ...] = written(())
    modes: tuple[str, ...] = written(ONLY_LOCKSTEP)
    """modes of synchronisation that the node's runner can run, in alphabetical order"""
    workloads: tuple[str, ...] = written(())
    """workloads that can train there, each as `MODEL on DATASET`; empty: any"""
    runs_commands: bool = False
    """true: it starts the commands of jobs; false: jobs are emulated there, and need no command"""
    residents_max: WholeNumber = 0
    """relaxed jobs whose processes may be on one GPU, running or standing by; 0: none stands by"""
    withheld: dict[Index, str] = {}
    """GPUs that no job gets, by index, with the reason: another program uses them, or they are broken"""

    def __post_init__(self) -> None:
        if self.node.node_id != self.node_id:
            raise ValueError(f"{self.node_id} joins as {self.node.node_id}")


class NodeLost(NodeEvent, frozen=True, kw_only=True, tag="node.lost"):
    """No heartbeat of the node came for longer than its lease."""

    identity: ClassVar[tuple[str, ...]] = ("node_id", "at")


class NodeReturned(NodeEvent, frozen=True, kw_only=True, tag="node.returned"):
    """Heartbeats of a lost node came again in the same life.

    It may still run workers of jobs that went on elsewhere.
    """

    identity: ClassVar[tuple[str, ...]] = ("node_id", "at")


class NodeDrained(NodeEvent, frozen=True, kw_only=True, tag="node.drained", omit_defaults=True):
    """No job starts on the node; its jobs move at the next round, or stop at once if `life` is given."""

    identity: ClassVar[tuple[str, ...]] = ("node_id", "at")

    reason: str = ""
    """why, in a few words; empty: no reason was given"""
    life: PlainLine = ""
    """life of the agent that leaves, with which the drain ends; empty: only NodeRestored ends it"""
    broken: tuple[Index, ...] = ()
    """GPUs for which the node's agent drains it, by index"""
    by: PlainLine = ""
    """as in `JobSubmitted`"""


class NodeRestored(NodeEvent, frozen=True, kw_only=True, tag="node.restored", omit_defaults=True):
    """The drain has ended."""

    identity: ClassVar[tuple[str, ...]] = ("node_id", "at")

    by: PlainLine = ""
    """as in `JobSubmitted`"""


class NodeRemoved(NodeEvent, frozen=True, kw_only=True, tag="node.removed", omit_defaults=True):
    """A lost node was removed. Until its agent is heard again, it counts as one that never joined."""

    identity: ClassVar[tuple[str, ...]] = ("node_id", "at")

    by: PlainLine = ""
    """as in `JobSubmitted`"""


class GpusWithheld(NodeEvent, frozen=True, kw_only=True, tag="node.gpus-withheld"):
    """From now on jobs get exactly the other GPUs of the node."""

    identity: ClassVar[tuple[str, ...]] = ("node_id", "at")

    gpus: dict[Index, str]
    """withheld GPUs by index, with the reason: it is broken, another program uses it, or the node could start
    no worker; empty: all are available again"""


# ---- workers: one job's processes on one node ---------------------------------------------------------


class WorkerEvent(Event, frozen=True, kw_only=True):
    """An order to the agent of one node, or a report by it."""

    entity_field: ClassVar[str] = "node_id"
    identity: ClassVar[tuple[str, ...]] = ("placement_id", "node_id")

    node_id: NodeId
    placement_id: PlacementId
    job_id: JobId


class StartOrdered(WorkerEvent, frozen=True, kw_only=True, tag="worker.start-ordered", omit_defaults=True):
    """An order: start these processes on this node."""

    spec: JobSpec
    gang: Gang
    """the gang that trains together: all members; of a job with copies, this node alone"""
    nodes: tuple[Node, ...]
    """nodes of the gang's members, in their order"""
    samples_done: Amount
    """samples in the checkpoint from which to resume"""
    learning_rate: Amount | None
    profile_iterations: WholeNumber = written(0)
    """above 0: measure this many iterations instead of training"""
    until: Amount | None = None
    """the job's number of samples at which a copy has done its share; null: train to the job's end"""

    def __post_init__(self) -> None:
        if tuple([node.node_id for node in self.nodes]) != self.gang.nodes:
            raise ValueError("the nodes of an order are those of its gang")


class GangFormed(WorkerEvent, frozen=True, kw_only=True, tag="worker.gang-formed", omit_defaults=True):
    """An order to train: every worker of the gang is up.

    With a `meeting`, or in a rota, every node of the gang gets this order, otherwise only the gang's leaders.
    """

    meeting: str = ""
    """`host:port` at which the processes of the gang meet; empty: they need not meet"""


class TurnsOrdered(WorkerEvent, frozen=True, kw_only=True, tag="worker.turns-ordered"):
    """An order: from now on the gang takes other turns in its rota, on the same GPUs."""

    identity: ClassVar[tuple[str, ...]] = ("placement_id", "node_id", "plan_id")

    gang: Gang
    """the gang with the same members, and other tasks, turns or place"""
    plan_id: PlanId


class StopOrdered(WorkerEvent, frozen=True, kw_only=True, tag="worker.stop-ordered"):
    """An order: save a checkpoint and end. Without effect if the processes are gone already."""


class WorkerStarted(WorkerEvent, frozen=True, kw_only=True, tag="worker.started", omit_defaults=True):
    """The processes are up and have restored a checkpoint."""

    gpu_indices: tuple[Index, ...]
    """the GPUs of the node that the worker owns"""
    meeting: str = ""
    """`host:port` at which the gang's processes meet; only from the node of rank 0"""
    samples_restored: Amount | None = None
    """samples in the checkpoint that the leader restored; null: as in the order"""

    def __post_init__(self) -> None:
        if not self.gpu_indices or len(set(self.gpu_indices)) < len(self.gpu_indices):
            raise ValueError("a worker owns at least one GPU, and none twice")


class WorkerCheckpointed(WorkerEvent, frozen=True, kw_only=True, tag="worker.checkpointed"):
    """The leader wrote a periodic checkpoint."""

    identity: ClassVar[tuple[str, ...]] = ("placement_id", "node_id", "samples_done")

    samples_done: Amount


class Outcome(StrEnum):
    CHECKPOINTED = "checkpointed"
    """stopped as ordered, with its work saved"""
    COMPLETED = "completed"
    FAILED = "failed"
    """ended by a fault of the job, with an exit code or an exception"""
    REFUSED = "refused"
    """never started: the node lacked the GPUs, or could not start it"""
    INTERRUPTED = "interrupted"
    """ended by no fault of the job: a lost peer, a foreign signal, the node out of memory, a broken GPU"""
    QUOTA = "quota"
    """a copy did its share of the samples"""


class WorkerStopped(WorkerEvent, frozen=True, kw_only=True, tag="worker.stopped", omit_defaults=True):
    """The processes are gone and their GPUs free."""

    outcome: Outcome
    samples_done: Amount
    leads: bool
    """whether this node leads the gang, or its part of it; only leaders' samples count"""
    reason: str = written("")
    exit_code: Code | None = None
    """exit code of the process that ended first; null: it was ended by a signal, or the worker has no
    processes"""
    signal: Code | None = None
    """signal that ended that process"""
    final: bool = False
    """true: the job would fail every time on this GPU type, for instance for want of memory"""
    samples_trained: Amount | None = None
    """samples after which a script ended by itself with fewer than its job's; the rest counts as done"""


# ---- services ---------------------------------------------------------------------------------------


class ServiceLed(Event, frozen=True, kw_only=True, tag="service.led", omit_defaults=True):
    """An instance of a service began to lead. After this fact the stream refuses facts of earlier leaders."""

    entity_field: ClassVar[str] = "service"
    identity: ClassVar[tuple[str, ...]] = ("service", "token", "repetition")

    service: PlainLine
    instance: WholeNumber
    token: WholeNumber
    """fencing token of its lease: larger than that of every leader before"""
    repetition: WholeNumber
    """0: the leader's first such fact; the leader repeats it, since the stream may trim its oldest facts"""
    first: WholeNumber = 0
    """sequence of the first fact of this kind, of any service; 0: there was none, or it is not known"""


# ---- the tables ---------------------------------------------------------------------------------------

Fact = (
    JobSubmitted | JobProfiled | JobTypeProfiled | JobQueued | JobTypeEstimated | JobRejected
    | JobStarted | JobPreempted
    | JobCompleted | JobFailed | JobCancelled | JobPriorityChanged | JobHeld | JobReleased
    | ProfilingPlanned | ProfilingAdded | ProfileMeasured | ProfileFailed
    | PlanPublished | PolicyChosen | PlacementRefused
    | NodeJoined | NodeLost | NodeReturned | NodeDrained | NodeRestored | NodeRemoved | GpusWithheld
    | StartOrdered | GangFormed | TurnsOrdered | StopOrdered
    | WorkerStarted | WorkerCheckpointed | WorkerStopped
    | ServiceLed
)  # fmt: skip

FACTS: dict[str, type[Event]] = {kind.tag(): kind for kind in Fact.__args__}
