"""What users see of jobs, nodes, plans and services: bodies of the HTTP API, and replies of the monitor."""

from enum import StrEnum

from schemas.base import Message
from schemas.cluster import Node
from schemas.events import PreemptReason
from schemas.ids import GpuType, JobId, NodeId, PlanId
from schemas.jobs import JobSpec, Priority
from schemas.placement import Gang
from schemas.plans import Cause, Layer, Measures, PlanKind, Stage, Standing
from schemas.quarantine import Death


class HoldView(Message, frozen=True, kw_only=True):
    at: float
    by: str = ""
    """the user who put the job on hold; empty: the API asks for no token"""
    keeps_gpus: bool = False
    """it runs and is not preemptible: it was put on hold just before it started, and no plan stops it"""


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
    """while it waits: how long it will have waited in all, roughly; see `WhyView`"""
    samples_done: float = 0.0
    restarts: int = 0
    gang: Gang | None = None
    estimated_throughput: float | None = None
    """samples/s of the gang, as estimated when it was placed"""
    layer: Layer | None = None
    reason: str = ""
    """why it failed or was rejected"""
    unmeasured: str = ""
    """while it waits to be measured: on which node the last attempt failed, and why"""
    hold: HoldView | None = None
    """null: it is not on hold, or has ended"""
    preemptions: tuple["PreemptionView", ...] = ()
    """only in the answer for a single job: the last ones, oldest first"""
    interruptions: int = 0
    """how often a run ended by no fault of the job"""
    failures: int = 0
    """how often its own processes failed"""
    exit_code: int | None = None
    """exit code of the process that failed or was interrupted last"""
    signal: int | None = None
    """signal that ended that process"""
    checkpoints: int = 0
    """number of checkpoints written so far, also at stops"""
    samples_saved: float = 0.0
    """samples in the newest checkpoint"""
    saved_at: float | None = None
    """time of the newest checkpoint; null: there is none, or its run is no longer kept"""
    running_s: float = 0.0
    """running time of all its runs, which counts against `spec.time_limit_s`"""
    nodes: tuple[NodeId, ...] = ()
    """only in the answer for a single job: nodes on which its processes were ordered to start, also for
    measurements"""


class PreemptionView(Message, frozen=True, kw_only=True):
    """The end of a run after which the job goes on."""

    at: float
    started_at: float
    gang: Gang
    reason: PreemptReason
    cause: Cause | None = None
    """null in logs of earlier versions"""
    samples_done: float = 0.0
    """samples in the checkpoint"""
    detail: str = ""
    """of a run that was interrupted or failed: the reason, and the last lines of its process"""
    exit_code: int | None = None
    signal: int | None = None


class JobSorting(StrEnum):
    """The order in which jobs are listed; within equal jobs the newest submission comes first."""

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
    """A job that holds GPUs that a waiting job could use."""

    job_id: JobId
    gpus: int
    """number of these GPUs, which it has or is about to get"""
    submitted_at: float
    started_at: float | None = None
    """start of its present run; null: it is still starting"""
    standing: Standing | None = None
    """its standing in the plan that left the waiting job out"""


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
    """rough estimate of its whole waiting time, including what it has waited: the mean latency ratio of the
    jobs that ended lately (RAQLR, Hops eq. 7) × this job's age; null unless it waits for GPUs"""
    since: float | None = None
    """time since which the reason holds"""
    wait_s: float = 0.0
    """waiting time so far"""
    plan: "PlanView | None" = None
    """the newest plan that left it out; of a running job, the plan that placed it"""
    position: int | None = None
    """its position among the jobs that this plan left out, in the order of the queue, from 1"""
    queue_length: int | None = None
    """number of jobs that this plan left out"""
    standing: Standing | None = None
    """the job's standing in this plan, in the units of `plan.measures`"""
    holders: tuple[HolderView, ...] = ()
    """the jobs that have GPUs that it could use; those with most GPUs come first"""
    gang: Gang | None = None
    """the gang on which it runs or is about to run"""
    estimated_throughput: float | None = None
    """estimated samples/s of this gang"""
    last_preemption: PreemptionView | None = None
    hold: HoldView | None = None
    """null: it is not on hold, or has ended"""


class NodeSpeed(Message, frozen=True, kw_only=True):
    """How fast jobs run on a node, compared with the same jobs on other nodes of its kind."""

    ratio: float
    """their median; 0.5: half as fast as elsewhere"""
    jobs: int
    """number of jobs that it is about"""
    across: bool
    """whether it is about gangs over several nodes, which show the network, too"""
    slow: bool
    """whether this is more than noise, and more than servers differ"""


class NodeView(Message, frozen=True, kw_only=True):
    node: Node
    state: str
    """alive, draining or lost"""
    gpus_free: int
    jobs: dict[JobId, int]
    """GPUs in use, by job"""
    heartbeat_age_s: float | None
    withheld: dict[int, str] = {}
    """GPUs that no job gets, by index, with the reason"""
    reason: str = ""
    """why it drains or leaves; empty: no reason was given"""
    left_s: float | None = None
    """cluster seconds until it goes away; null: not known to go away"""
    speed: NodeSpeed | None = None
    """null: not enough is known"""


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
    """it runs but does not do its work; it gives up its lease and ends, so that another instance can lead"""
    FAILED = "failed"
    """it ended with an error; its supervisor may start it again"""
    ENDED = "ended"
    """it ended as ordered"""
    GONE = "gone"
    """it ended without a report, or cannot be reached"""


class ServiceView(Message, frozen=True, kw_only=True):
    """The state of a service as it reports it. Times are Unix seconds."""

    name: str
    state: ServiceState
    since: float
    """start of its present process"""
    at: float
    """time of the report"""
    restarts: int = 0
    """number of starts after an end that was not ordered"""
    last_error: str = ""
    last_error_at: float | None = None
    troubles: tuple[str, ...] = ()
    """what does not work, in words, such as a policy that cannot be loaded or a full disk"""
    quarantined: tuple[Death, ...] = ()
    """facts that it skips because each ended it twice, or that keep it down"""
    instance: int = 1
    """its number among the instances of the service"""
    leads: bool = True
    """whether it decides and publishes; if not, it only follows the facts"""
    worked_at: float | None = None
    """when it last did its main work, as far as it reports that; null: not since its start"""
    last_activity: str = ""
    """the last fact that it published or message that it handled, as `plan.published` or `heartbeat`"""
    last_activity_at: float | None = None
    speed: float | None = None
    """cluster seconds a second, as its settings have it; null: a service of an earlier version"""
    clock_origin: float | None = None
    """Unix time of cluster second 0, as its settings have it; null: as above"""


class StatusView(Message, frozen=True, kw_only=True):
    """The whole cluster at a glance."""

    at: float
    jobs: dict[str, int]
    """number of jobs by state"""
    gpus: dict[GpuType, tuple[int, int]]
    """(busy, all) GPUs by type, those of lost nodes left out"""
    nodes: dict[str, int]
    policy: str | None
    plan: PlanView | None
    raqlr: float | None
    """mean latency ratio of the jobs that ended lately (Hops eq. 7)"""
    metrics: dict[str, float | None]
    speed: float = 1.0
    """cluster seconds per second of the wall clock"""
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
    """false: a submission with the same idempotency key came before; this is its job"""


class Cancelled(Message, frozen=True, kw_only=True):
    """The cancellation is stored. A job that has ended in the meantime stays as it ended."""

    job_id: JobId


class PriorityChoice(Message, frozen=True, kw_only=True, forbid_unknown_fields=True):
    priority: Priority


class JobPriority(Message, frozen=True, kw_only=True):
    """The change is stored. A job that has ended in the meantime keeps its priority."""

    job_id: JobId
    priority: float


class JobHold(Message, frozen=True, kw_only=True):
    """The hold, or its end, is stored. A job that has ended in the meantime stays as it ended."""

    job_id: JobId
    held: bool


class PolicyChoice(Message, frozen=True, kw_only=True, forbid_unknown_fields=True):
    policy: str


class PolicyPage(Message, frozen=True, kw_only=True):
    policies: tuple[str, ...]
    """names of policies; `*` at the end: any `module:attribute` can be chosen too"""


class ClockView(Message, frozen=True, kw_only=True):
    """The cluster's clock at the time of an answer, in the header `Hopyard-Clock` as JSON."""

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
    """the invalid field, as a path such as `$.gpus[1]`; null: no single field"""
    state: str | None = None
    """of a job that ended so long ago that no more is known of it: how it ended; null: another refusal"""


class NodeDrain(Message, frozen=True, kw_only=True):
    node_id: NodeId
    draining: bool


class NodeRemoval(Message, frozen=True, kw_only=True):
    node_id: NodeId


class SettingView(Message, frozen=True, kw_only=True):
    """A setting in force. Secrets are shown as asterisks."""

    name: str
    value: str | int | float | bool
    default: str | int | float | bool
    source: str
    """where its value is from: a file, the environment, a scenario, …, or `default`"""
    doc: str
    """what it means"""


class SettingsView(Message, frozen=True, kw_only=True):
    settings: tuple[SettingView, ...]
    scope: str = ""
    """which settings these are, in words: those of a stack, or those of a shell"""
