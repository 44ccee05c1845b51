"""Views for users: jobs, nodes and rounds as the monitor sees them. Also the bodies of the HTTP API."""

from enum import StrEnum

from schemas.base import Message
from schemas.cluster import Node
from schemas.events import PreemptReason
from schemas.ids import GpuType, JobId, NodeId, PlanId
from schemas.jobs import JobSpec
from schemas.placement import Gang
from schemas.plans import Cause, Layer, Measures, PlanKind, Stage, Standing
from schemas.quarantine import Death


class JobView(Message, frozen=True, kw_only=True):
    job_id: JobId
    state: str
    spec: JobSpec
    submitted_at: float
    started_at: float | None = None
    ended_at: float | None = None
    wait_s: float = 0.0
    age_s: float | None = None
    latency_ratio: float | None = None
    expected_wait_s: float | None = None
    """while it waits: how long it will have waited in all, roughly (as in `WhyView`)"""
    samples_done: float = 0.0
    restarts: int = 0
    gang: Gang | None = None
    estimated_throughput: float | None = None
    """samples/s of the gang, as estimated when it was placed"""
    layer: Layer | None = None
    reason: str = ""
    """why it failed or was rejected"""
    unmeasured: str = ""
    """while it waits to be measured: where and why it could not be last"""
    preemptions: tuple["PreemptionView", ...] = ()
    """only where one job is asked for: the last ones, oldest first"""
    interruptions: int = 0
    """how often a run ended by what was no fault of the job"""
    failures: int = 0
    """how often its own processes failed"""
    exit_code: int | None = None
    """of the process that failed or was interrupted last"""
    signal: int | None = None
    """that ended that process"""
    checkpoints: int = 0
    """written so far, when it was stopped as well"""
    samples_saved: float = 0.0
    """in the newest checkpoint"""
    saved_at: float | None = None
    """time of the newest checkpoint; null: there is none, or its run is no longer kept"""
    running_s: float = 0.0
    """all its runs together; counted against `spec.time_limit_s`"""
    nodes: tuple[NodeId, ...] = ()
    """only where one job is asked for: nodes where its processes were ordered to start, also to be
    measured"""


class PreemptionView(Message, frozen=True, kw_only=True):
    """The end of a run after which the job goes on."""

    at: float
    started_at: float
    gang: Gang
    reason: PreemptReason
    cause: Cause | None = None
    """null in logs of earlier versions"""
    samples_done: float = 0.0
    """in the checkpoint"""
    detail: str = ""
    """of a run that was interrupted or failed: the last words of its processes"""
    exit_code: int | None = None
    signal: int | None = None


class JobSorting(StrEnum):
    """In which order jobs are listed; jobs alike in it follow one another by submission, newest first."""

    SUBMITTED = "submitted"
    """oldest submission first"""
    NEWEST = "newest"
    """newest submission first"""
    ACTIVE = "active"
    """those that have not ended first, newest submission first"""
    STARTED = "started"
    """newest start first, those that never started last"""
    ENDED = "ended"
    """newest end first, those that have not ended last"""
    WAITED = "waited"
    """longest wait first"""


class HolderView(Message, frozen=True, kw_only=True):
    """A job that holds GPUs which another could use."""

    job_id: JobId
    gpus: int
    """GPUs of types that the waiting job may use, which this one holds or is promised"""
    submitted_at: float
    started_at: float | None = None
    """of its present run; null: it is still starting"""
    standing: Standing | None = None
    """in the plan that left the other out"""


class WhyView(Message, frozen=True, kw_only=True):
    """One dominant reason why a job is not running, or why it runs where it does."""

    job_id: JobId
    state: str
    reason: str
    detail: str
    held_by: tuple[JobId, ...] = ()
    """as in `LeftOut`"""
    plan_id: PlanId | None = None
    expected_wait_s: float | None = None
    """rough, and what it has waited is part of it: the mean latency ratio of the jobs that ended lately
    (RAQLR, Hops eq. 7) × this job's age; null unless it waits for GPUs"""
    since: float | None = None
    """time from which on the reason holds"""
    wait_s: float = 0.0
    """so far"""
    plan: "PlanView | None" = None
    """the newest that left it out; of a running job, the one that gave it its place"""
    position: int | None = None
    """among the jobs that this plan left out, in the order of its queue, from 1"""
    queue_length: int | None = None
    """number of jobs that it left out"""
    standing: Standing | None = None
    """the job's in this plan, by `plan.measures`"""
    holders: tuple[HolderView, ...] = ()
    """who has what it could use, most GPUs first"""
    gang: Gang | None = None
    """where it runs or starts"""
    estimated_throughput: float | None = None
    """samples/s there"""
    last_preemption: PreemptionView | None = None


class NodeView(Message, frozen=True, kw_only=True):
    node: Node
    state: str
    """alive, draining or lost"""
    gpus_free: int
    jobs: dict[JobId, int]
    """GPUs by job"""
    heartbeat_age_s: float | None
    withheld: dict[int, str] = {}
    """GPUs that no job gets, by index, and why"""
    reason: str = ""
    """why it drains, where somebody said"""
    left_s: float | None = None
    """cluster seconds until it goes away; null: it is not known to go"""


class PlanView(Message, frozen=True, kw_only=True):
    plan_id: PlanId
    at: float
    kind: PlanKind
    round: int
    policy: str
    stage: Stage
    placements: int
    left_out: int
    idle_gpus: int
    objective: float
    bound: float
    gap: float
    decision_s: float
    solve_s: float
    configurations: int
    notes: tuple[str, ...]
    measures: Measures = Measures()
    horizon_s: float | None = None


class ServiceState(StrEnum):
    STARTING = "starting"
    """it runs but is not ready: it has not caught up with the stream, or the bus is away"""
    UP = "up"
    STUCK = "stuck"
    """it lives and does not work; it ends, and another leads in its place"""
    FAILED = "failed"
    """it ended with an error; its supervisor may start it again"""
    ENDED = "ended"
    """it ended as ordered"""
    GONE = "gone"
    """it ended without a report, or is out of reach"""


class ServiceView(Message, frozen=True, kw_only=True):
    """The state of a service as it reports it. Times are Unix seconds."""

    name: str
    state: ServiceState
    since: float
    """start of its present life"""
    at: float
    """time of the report"""
    restarts: int = 0
    """starts that followed an end which was not ordered"""
    last_error: str = ""
    last_error_at: float | None = None
    troubles: tuple[str, ...] = ()
    """what it does without, in words: a policy that cannot be loaded, or a disk, say"""
    quarantined: tuple[Death, ...] = ()
    """facts that it skips, since it ended by each of them twice, or that keep it down"""
    instance: int = 1
    """its number among the instances of the service"""
    leads: bool = True
    """whether it acts; if not, it follows the instance that does"""
    worked_at: float | None = None
    """when it last did what it is for, as far as it reports; null: not in this life"""
    last_activity: str = ""
    """the fact that it published, or the kind of message that it handled, as `plan.published`, `heartbeat`"""
    last_activity_at: float | None = None


class StatusView(Message, frozen=True, kw_only=True):
    """The whole cluster at a glance."""

    at: float
    jobs: dict[str, int]
    """number of jobs by state"""
    gpus: dict[GpuType, tuple[int, int]]
    """busy and all GPUs by type, lost nodes left out"""
    nodes: dict[str, int]
    policy: str | None
    plan: PlanView | None
    raqlr: float | None
    """mean latency ratio of the jobs that ended lately (Hops eq. 7)"""
    metrics: dict[str, float | None]
    speed: float = 1.0
    """of the cluster's clock: cluster seconds per second"""
    services: tuple[ServiceView, ...] = ()


class Readiness(Message, frozen=True, kw_only=True):
    """The answer at `/readyz` of a service that is ready: the state of all services, without texts."""

    status: str = "ready"
    services: tuple[ServiceView, ...] = ()


class JobPage(Message, frozen=True, kw_only=True):
    jobs: tuple[JobView, ...]
    next: str | None = None
    """opaque: pass it as `after` for the next page"""


class NodePage(Message, frozen=True, kw_only=True):
    nodes: tuple[NodeView, ...]


class Submitted(Message, frozen=True, kw_only=True):
    job_id: JobId
    created: bool
    """false: the same idempotency key came before, this is that job"""


class Cancelled(Message, frozen=True, kw_only=True):
    """The withdrawal is stored. A job that ended in the meantime keeps the end it had."""

    job_id: JobId


class PolicyChoice(Message, frozen=True, kw_only=True, forbid_unknown_fields=True):
    policy: str


class PolicyPage(Message, frozen=True, kw_only=True):
    policies: tuple[str, ...]
    """names; a last `*`: any `module:attribute` besides"""


class ClockView(Message, frozen=True, kw_only=True):
    """The cluster's clock at the moment of an answer: the header `Hopyard-Clock`, as JSON."""

    now: float
    """cluster time"""
    origin: float
    """Unix time of cluster second 0"""
    speed: float
    """cluster seconds per second"""


class Problem(Message, frozen=True, kw_only=True):
    """A refusal, in the form of RFC 9457."""

    title: str
    status: int
    detail: str
    type: str = "about:blank"
    field: str | None = None
    """the field that is wrong, as a path such as `$.gpus[1]`"""


class NodeDrain(Message, frozen=True, kw_only=True):
    node_id: NodeId
    draining: bool


class SettingView(Message, frozen=True, kw_only=True):
    """A setting in force. A secret that is set shows as stars."""

    name: str
    value: str | int | float | bool
    default: str | int | float | bool
    source: str
    """who set it: a file, the environment, a scenario, …; `default`: nobody"""
    doc: str
    """what it means"""


class SettingsView(Message, frozen=True, kw_only=True):
    settings: tuple[SettingView, ...]
    scope: str = ""
    """in words: of which stack, or of which shell"""
