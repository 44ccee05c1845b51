"""What a page over the whole cluster shows: who held which GPUs when, the jobs in short, the last plans."""

from enum import StrEnum

from schemas.base import Message
from schemas.events import PreemptReason
from schemas.ids import GpuType, JobId, NodeId, PlacementId, PlanId
from schemas.placement import Gang
from schemas.plans import Cause, Layer, LeftOut, Placement
from schemas.views import PlanView

# ---- who held which GPUs when


class Holding(Message, frozen=True, kw_only=True):
    """GPUs of one node in the hands of one placement, from the start of its processes to their end."""

    revision: int
    """of the timeline, when this entry was made or last changed"""
    node_id: NodeId
    job_id: JobId
    placement_id: PlacementId
    gpu_indices: tuple[int, ...]
    measures: bool
    """true: it measures the job for its profile; false: it trains"""
    since: float
    until: float | None = None
    """null while it goes on"""
    end: str = ""
    """how it ended: an outcome of a worker, `node-lost` or `agent-restarted`"""


class NodeSpell(Message, frozen=True, kw_only=True):
    """A time in which a node was out of use."""

    revision: int
    node_id: NodeId
    state: str
    """draining or lost"""
    since: float
    until: float | None = None


class NodeLane(Message, frozen=True, kw_only=True):
    node_id: NodeId
    gpu_type: GpuType
    gpus: int
    state: str
    """alive, draining or lost"""


class TimelineView(Message, frozen=True, kw_only=True):
    """What has changed since a revision. A reader goes on with `revision`; once that falls, from 0."""

    at: float
    """cluster time of the answer"""
    revision: int
    """of the last change in this answer"""
    more: bool
    """true: there are later changes; ask again with `revision`"""
    complete_from: float | None
    """what ended before may be forgotten; null: nothing is"""
    nodes: tuple[NodeLane, ...]
    holdings: tuple[Holding, ...]
    spells: tuple[NodeSpell, ...]
    planned: tuple[Placement, ...]
    """what the newest plans want to start, and has not begun"""
    expected: dict[PlacementId, float]
    """when the jobs that run are expected to be complete, if they stay where they are"""


# ---- jobs in short


class Which(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"


class JobSummary(Message, frozen=True, kw_only=True):
    job_id: JobId
    state: str
    project: str
    model: str
    demand: tuple[int, ...]
    """GPU counts it can run with"""
    gang: Gang | None
    """while it runs"""
    submitted_at: float
    ended_at: float | None
    wait_s: float
    age_s: float | None
    expected_wait_s: float | None
    """as in `WhyView`"""
    expected_end: float | None
    """while it runs: when it is complete, if it stays where it is"""
    progress: float
    """0 to 1, of its samples"""
    reason: str
    """why it waits, or how it ended"""
    detail: str


class SummaryPage(Message, frozen=True, kw_only=True):
    total: int
    """how many there are, of which these come first"""
    jobs: tuple[JobSummary, ...]


# ---- where a job has run


class RunView(Message, frozen=True, kw_only=True):
    placement_id: PlacementId
    gang: Gang
    started_at: float
    ended_at: float | None
    samples_from: float
    """in the checkpoint it resumed from"""
    samples_to: float
    """done so far, or at its end as far as they count"""
    estimated_throughput: float | None
    """samples/s, when it was placed"""
    measured_throughput: float | None
    """samples/s that counted, over the whole run; null in its first seconds"""
    layer: Layer | None
    plan_id: PlanId | None = None
    """the plan that gave it these GPUs"""
    preempted: PreemptReason | None = None
    """why it ended, if the job did not"""
    cause: Cause | None = None
    start_s: float | None = None
    """from the order to start until its processes were up"""
    stop_s: float | None = None
    """from the order to stop until its GPUs were free; null: nobody ordered it"""


class RunPage(Message, frozen=True, kw_only=True):
    job_id: JobId
    runs: tuple[RunView, ...]
    """oldest first; the newest are kept"""
    total: int
    """how many there were; of jobs that ended long ago they are forgotten"""


# ---- plans


class PlanSummary(Message, frozen=True, kw_only=True):
    plan: PlanView
    left_out: dict[str, int]
    """number of jobs by the reason why"""


class PlanPage(Message, frozen=True, kw_only=True):
    plans: tuple[PlanSummary, ...]
    """newest first"""


class PlanDetail(Message, frozen=True, kw_only=True):
    plan_id: PlanId
    placements: tuple[Placement, ...]
    left_out: tuple[LeftOut, ...]
    """those that come first in the plan, `plan.left_out` says how many there were"""
