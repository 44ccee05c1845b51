"""The facts: what happened, in the order of the stream. The tables at the end list them all.

Past tense, frozen, self-contained. A change of meaning is a new event, never a changed one. Facts of an
earlier form are read as this version would have written them (`schemas/upgrades.py`). A fact that
contradicts itself cannot be made: `__post_init__` raises ValueError, in a decoder a ValidationError.
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
"""characters that no part of a subject may have"""

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
    """the token that it was submitted with, as `USER/TOKEN`; empty: the API asks for none"""


class JobProfiled(JobEvent, frozen=True, kw_only=True, tag="job.profiled"):
    """The profiler knows the job's time modules on every type it can run on."""

    workload: Workload
    modules: dict[GpuType, "TimeModules"]
    known: bool
    """true: an earlier job of the same workload was measured, this one was not"""
    unusable: dict[GpuType, str] = {}
    """GPU types that it cannot run on, with the reason"""


class JobQueued(JobEvent, frozen=True, kw_only=True, tag="job.queued"):
    """The estimator answered for the job, so it can be planned."""

    age_s: Amount
    """expected running time without waiting (Hops eq. 9), fixed here"""
    sensitivity: Amount
    """share-weighted mean over types of the placement sensitivity ρ (Hops eq. 10)"""
    single_gpu: dict[GpuType, Rate]
    """samples/s on one GPU, for the types it can run on"""


class JobRejected(JobEvent, frozen=True, kw_only=True, tag="job.rejected"):
    """The job was accepted, but profiling showed that it can run nowhere."""

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
    """the time of its node was over, and everything was saved before"""
    MERGE = "merge"
    """its copies are merged: they did their shares, or a plan has new ones; all is saved, nothing restarts"""


class JobPreempted(JobEvent, frozen=True, kw_only=True, tag="job.preempted"):
    """The job no longer holds GPUs and is back in the queue."""

    identity: ClassVar[tuple[str, ...]] = ("placement_id",)

    placement_id: PlacementId
    reason: PreemptReason
    samples_done: Amount
    """in the checkpoint it will resume from"""
    cause: Cause | None = None


class JobCompleted(JobEvent, frozen=True, kw_only=True, tag="job.completed"):
    identity: ClassVar[tuple[str, ...]] = ("placement_id",)  # a void one must not hide the valid one

    placement_id: PlacementId
    samples_done: Amount


class JobFailed(JobEvent, frozen=True, kw_only=True, tag="job.failed"):
    identity: ClassVar[tuple[str, ...]] = ("placement_id",)

    placement_id: PlacementId
    reason: str


class JobCancelled(JobEvent, frozen=True, kw_only=True, tag="job.cancelled", omit_defaults=True):
    """A user cancelled the job. If it was running, its workers are stopped next."""

    by: PlainLine = ""
    """as in `JobSubmitted`"""


# ---- profiles ---------------------------------------------------------------------------------------


class ProfileRun(Message, frozen=True, kw_only=True):
    """One measurement to make: a job on one GPU of a type, at a place."""

    placement_id: PlacementId
    job_id: JobId
    gpu_type: GpuType
    node_id: NodeId


class ProfilingPlanned(Event, frozen=True, kw_only=True, tag="round.opened"):
    """A round begins; these measurements go first (the list may be empty)."""

    entity_field: ClassVar[str] = "round"
    identity: ClassVar[tuple[str, ...]] = ("round",)

    round: WholeNumber
    """number of the round: cluster time / round length, rounded down"""
    runs: tuple[ProfileRun, ...]


class ProfilingAdded(Event, frozen=True, kw_only=True, tag="round.profiling-added"):
    """Within a round: these measurements go on GPUs that nobody holds."""

    entity_field: ClassVar[str] = "round"
    identity: ClassVar[tuple[str, ...]] = ("number",)

    round: WholeNumber
    number: WholeNumber
    """how many such facts came before this one in the round"""
    runs: tuple[ProfileRun, ...]


class ProfileEvent(Event, frozen=True, kw_only=True):
    entity_field: ClassVar[str] = "node_id"
    identity: ClassVar[tuple[str, ...]] = ("placement_id", "node_id")

    job_id: JobId
    placement_id: PlacementId
    gpu_type: GpuType
    node_id: NodeId


class ProfileMeasured(ProfileEvent, frozen=True, kw_only=True, tag="profile.measured"):
    """An agent ran some iterations on one GPU. One number an iteration, in seconds."""

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
    """The job does not run on this type, or did not answer in time."""

    reason: str
    final: bool
    """true: the job gets no GPUs of this type; false: try again in the next round"""
    absent: bool = False
    """its program, folder or image is missing on the node; another node of the type may have it"""


# ---- plans ------------------------------------------------------------------------------------------


class PlanPublished(Event, frozen=True, kw_only=True, tag="plan.published"):
    entity_field: ClassVar[str] = "plan_id"
    identity: ClassVar[tuple[str, ...]] = ("plan_id",)

    plan_id: PlanId
    kind: PlanKind
    round: WholeNumber
    policy: Policy
    token: WholeNumber
    """fencing token of the planner's lease: the placer refuses an older one"""
    made_from: WholeNumber
    """stream sequence of the last fact the plan takes into account"""
    placements: tuple[Placement, ...]
    """a first plan: everything that shall run; a fragment plan: what shall start in addition"""
    left_out: tuple[LeftOut, ...]
    """in the order of the queue"""
    idle_gpus: WholeNumber
    """GPUs that the plan leaves without a job"""
    stage: Stage
    objective: Number
    bound: Number
    gap: Number
    """(bound − objective) / bound, proven"""
    decision_s: Amount
    """cluster seconds from the first look at the view to the plan"""
    solve_s: Amount
    """machine seconds in the solver"""
    configurations: WholeNumber
    notes: tuple[str, ...] = ()
    """what went wrong on the way: a late estimator, a solver at its deadline, a policy that failed"""
    memory: bytes = b""
    """the policy's memory, for its next decision; opaque to everybody else"""
    measures: Measures = Measures()
    standings: dict[JobId, Standing] = {}
    """by the measures; empty where the policy has none"""
    horizon_s: Amount | None = None
    """no schedule ends all its jobs, placed or left out, in fewer seconds; None: no such bound is known"""


class PolicyChosen(Event, frozen=True, kw_only=True, tag="policy.chosen", omit_defaults=True):
    """Somebody set the policy of the running stack; the next plan is made by it."""

    entity_field: ClassVar[str] = "policy"
    identity: ClassVar[tuple[str, ...]] = ("policy", "at")

    policy: Policy
    by: PlainLine = ""
    """as in `JobSubmitted`"""

    @property
    def subject(self) -> str:
        """A `module:attribute` has dots, an option's value may have spaces: no subject can."""
        return f"hopyard.policy.{_NO_TOKEN.sub('-', self.policy)}.chosen"


class PlacementRefused(Event, frozen=True, kw_only=True, tag="placement.refused", omit_defaults=True):
    """The placer found that a placement no longer holds; the job comes back in the next plan."""

    entity_field: ClassVar[str] = "placement_id"
    identity: ClassVar[tuple[str, ...]] = ("placement_id", "plan_id")  # a later plan may ask for it again

    placement_id: PlacementId
    plan_id: PlanId
    job_id: JobId
    reason: str
    cause: Cause | None = written(None)
    late: bool = False
    """its workers were not up in time: for the job that is an interruption"""


# ---- nodes ------------------------------------------------------------------------------------------


class NodeEvent(Event, frozen=True, kw_only=True):
    entity_field: ClassVar[str] = "node_id"

    node_id: NodeId


class NodeJoined(NodeEvent, frozen=True, kw_only=True, tag="node.joined", omit_defaults=True):
    """An agent began a life on the node. Workers of an earlier life that it does not list are gone."""

    identity: ClassVar[tuple[str, ...]] = ("node_id", "life")

    node: Node
    life: PlainLine
    """new at every start of the agent"""
    workers: tuple[PlacementId, ...] = written(())
    modes: tuple[str, ...] = written(ONLY_LOCKSTEP)
    """how gangs may synchronise that the node's runner runs, in alphabetical order"""
    workloads: tuple[str, ...] = written(())
    """what can train there, each as `MODEL on DATASET`; empty: anything, as far as the node knows"""
    runs_commands: bool = False
    """true: it starts the command of a job; false: jobs are emulated there, and need none"""
    residents_max: WholeNumber = 0
    """processes of relaxed jobs that a GPU has at most, those that stand by among them; 0: none stands by"""
    withheld: dict[Index, str] = {}
    """GPUs of the node that no job gets, by index, and why: somebody else uses them, or they are broken"""

    def __post_init__(self) -> None:
        if self.node.node_id != self.node_id:
            raise ValueError(f"{self.node_id} joins as {self.node.node_id}")


class NodeLost(NodeEvent, frozen=True, kw_only=True, tag="node.lost"):
    """The node's heartbeats stayed out for longer than its lease."""

    identity: ClassVar[tuple[str, ...]] = ("node_id", "at")


class NodeReturned(NodeEvent, frozen=True, kw_only=True, tag="node.returned"):
    """A lost node's heartbeats came back in the same life: it may still run stale workers."""

    identity: ClassVar[tuple[str, ...]] = ("node_id", "at")


class NodeDrained(NodeEvent, frozen=True, kw_only=True, tag="node.drained", omit_defaults=True):
    """Nothing new starts on the node; what runs leaves it at the next round, or at once with a `life`."""

    identity: ClassVar[tuple[str, ...]] = ("node_id", "at")

    reason: str = ""
    """why, in a few words; empty: nobody said"""
    life: PlainLine = ""
    """life of an agent that leaves: the drain ends with this life; empty: a drain that only a restore ends"""
    by: PlainLine = ""
    """as in `JobSubmitted`"""


class NodeRestored(NodeEvent, frozen=True, kw_only=True, tag="node.restored", omit_defaults=True):
    """The drain has ended."""

    identity: ClassVar[tuple[str, ...]] = ("node_id", "at")

    by: PlainLine = ""
    """as in `JobSubmitted`"""


class GpusWithheld(NodeEvent, frozen=True, kw_only=True, tag="node.gpus-withheld"):
    """From now on these GPUs of the node are the ones that no job gets; all others can be had."""

    identity: ClassVar[tuple[str, ...]] = ("node_id", "at")

    gpus: dict[Index, str]
    """by index, and why; empty: all are available again"""


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
    """the workers that exchange gradients with those of this node; to a copy, the node alone"""
    nodes: tuple[Node, ...]
    """of the gang's members, in their order"""
    samples_done: Amount
    """in the checkpoint to resume from"""
    learning_rate: Amount | None
    profile_iterations: WholeNumber = written(0)
    """above 0: measure this many iterations instead of training"""
    until: Amount | None = None
    """of a copy, samples of the job at which its share is done; null: it trains to the job's end"""

    def __post_init__(self) -> None:
        if tuple([node.node_id for node in self.nodes]) != self.gang.nodes:
            raise ValueError("the nodes of an order are those of its gang")


class GangFormed(WorkerEvent, frozen=True, kw_only=True, tag="worker.gang-formed", omit_defaults=True):
    """An order: every worker of the gang is up, training begins.

    With a `meeting`, or in a rota, it goes to every node of the gang, else to its leaders alone.
    """

    meeting: str = ""
    """`host:port` where the processes of the gang meet; empty: they need not"""


class TurnsOrdered(WorkerEvent, frozen=True, kw_only=True, tag="worker.turns-ordered"):
    """An order: from now on the gang takes these turns in its rota, on the GPUs that it has there."""

    identity: ClassVar[tuple[str, ...]] = ("placement_id", "node_id", "plan_id")

    gang: Gang
    """the gang with the same members, and other tasks, turns or place"""
    plan_id: PlanId


class StopOrdered(WorkerEvent, frozen=True, kw_only=True, tag="worker.stop-ordered"):
    """An order: the processes write a checkpoint and end. Without effect if they are gone already."""


class WorkerStarted(WorkerEvent, frozen=True, kw_only=True, tag="worker.started", omit_defaults=True):
    gpu_indices: tuple[Index, ...]
    """the GPUs that it owns on the node"""
    meeting: str = ""
    """`host:port` where the gang's processes meet; from the node of rank 0 alone"""
    samples_restored: Amount | None = None
    """in the checkpoint that the leader found and restored; null: the one that was ordered"""

    def __post_init__(self) -> None:
        if not self.gpu_indices or len(set(self.gpu_indices)) < len(self.gpu_indices):
            raise ValueError("a worker owns at least one GPU, and none twice")


class WorkerCheckpointed(WorkerEvent, frozen=True, kw_only=True, tag="worker.checkpointed"):
    """The leader wrote a periodic checkpoint."""

    identity: ClassVar[tuple[str, ...]] = ("placement_id", "node_id", "samples_done")

    samples_done: Amount


class Outcome(StrEnum):
    CHECKPOINTED = "checkpointed"
    """stopped on order, its work saved"""
    COMPLETED = "completed"
    FAILED = "failed"
    """ended by a fault of the job's own: an exit code, an exception"""
    REFUSED = "refused"
    """never started: the node lacked the GPUs"""
    INTERRUPTED = "interrupted"
    """ended by what is no fault of the job: a lost peer, a signal not ours, the node out of memory, a GPU"""
    QUOTA = "quota"
    """a copy that did its share of the samples"""


class WorkerStopped(WorkerEvent, frozen=True, kw_only=True, tag="worker.stopped", omit_defaults=True):
    """The processes are gone and their GPUs free."""

    outcome: Outcome
    samples_done: Amount
    leads: bool
    """whether this node leads the gang: only the leader's samples count"""
    reason: str = written("")
    exit_code: Code | None = None
    """of the process that ended first; null: it did not exit by itself, or has no processes"""
    signal: Code | None = None
    """that ended that process"""
    final: bool = False
    """true: it would fail every time on this GPU type, as when out of memory"""


# ---- services ---------------------------------------------------------------------------------------


class ServiceLed(Event, frozen=True, kw_only=True, tag="service.led", omit_defaults=True):
    """An instance of a service began to lead. The stream takes no fact of an earlier leader behind it."""

    entity_field: ClassVar[str] = "service"
    identity: ClassVar[tuple[str, ...]] = ("service", "token", "repetition")

    service: PlainLine
    instance: WholeNumber
    token: WholeNumber
    """fencing token of its lease: larger than that of every leader before"""
    repetition: WholeNumber
    """0: for the first time; then again and again, since the log may lose its oldest facts"""
    first: WholeNumber = 0
    """sequence of the first fact of this kind, of any service; 0: there was none, or it is not known"""


# ---- the tables ---------------------------------------------------------------------------------------

Fact = (
    JobSubmitted | JobProfiled | JobQueued | JobRejected | JobStarted | JobPreempted
    | JobCompleted | JobFailed | JobCancelled
    | ProfilingPlanned | ProfilingAdded | ProfileMeasured | ProfileFailed
    | PlanPublished | PolicyChosen | PlacementRefused
    | NodeJoined | NodeLost | NodeReturned | NodeDrained | NodeRestored | GpusWithheld
    | StartOrdered | GangFormed | TurnsOrdered | StopOrdered
    | WorkerStarted | WorkerCheckpointed | WorkerStopped
    | ServiceLed
)  # fmt: skip

FACTS: dict[str, type[Event]] = {kind.tag(): kind for kind in Fact.__args__}
