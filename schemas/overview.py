"""What the page shows: which jobs held which GPUs when, summaries of jobs, their runs, the last plans."""

from enum import StrEnum

from schemas.base import Message
from schemas.events import PreemptReason
from schemas.ids import GpuType, JobId, NodeId, PlacementId, PlanId
from schemas.placement import Gang
from schemas.plans import Cause, Layer, LeftOut, Placement
from schemas.views import PlanView

# ---- who held which GPUs when


class Holding(Message, frozen=True, kw_only=True):
    """GPUs of one node that one placement holds, from the start of its processes to their end."""

    revision: int
    """revision of the timeline in which this entry was made or last changed"""
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
    """A period in which a node was out of use."""

    revision: int
    node_id: NodeId
    state: str
    """draining, leaving or lost"""
    since: float
    until: float | None = None


class NodeLane(Message, frozen=True, kw_only=True):
    node_id: NodeId
    gpu_type: GpuType
    gpus: int
    state: str
    """alive, draining or lost"""
    slow: float | None = None
    """speed of jobs there relative to other nodes of its kind; null: not slow, or not known"""


class TimelineView(Message, frozen=True, kw_only=True):
    """Changes of the timeline since a revision.

    A reader asks next for changes since `revision`. If `revision` is smaller than the last one, the monitor
    began again, and the reader asks from 0. It does so too if `complete_from` is after `at` of the last
    answer: what has ended since may be missing.
    """

    at: float
    """cluster time of the answer"""
    revision: int
    """revision of the last change in this answer"""
    more: bool
    """true: there are later changes; ask again with `revision`"""
    complete_from: float | None
    """holdings and spells that ended before this time may be missing; null: none is missing"""
    nodes: tuple[NodeLane, ...]
    holdings: tuple[Holding, ...]
    spells: tuple[NodeSpell, ...]
    planned: tuple[Placement, ...]
    """placements of the newest plans that have not started yet"""
    expected: dict[PlacementId, float]
    """time at which each running placement would complete its job, if nothing changes"""


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
    """GPU counts with which it can run"""
    gang: Gang | None
    """while it runs"""
    submitted_at: float
    ended_at: float | None
    wait_s: float
    age_s: float | None
    expected_wait_s: float | None
    """as in `WhyView`"""
    expected_end: float | None
    """while it runs: time at which it completes, if nothing changes"""
    progress: float
    """0 to 1, of its samples"""
    reason: str
    """why it waits, or how it ended"""
    detail: str


class SummaryPage(Message, frozen=True, kw_only=True):
    total: int
    """number of such jobs; `jobs` has the first of them"""
    jobs: tuple[JobSummary, ...]


# ---- where a job has run


class RunView(Message, frozen=True, kw_only=True):
    placement_id: PlacementId
    gang: Gang
    started_at: float
    ended_at: float | None
    samples_from: float
    """samples in the checkpoint from which it resumed"""
    samples_to: float
    """samples done so far; of a run that has ended, those that were not lost"""
    estimated_throughput: float | None
    """samples/s, as estimated when it was placed"""
    measured_throughput: float | None
    """samples/s over the whole run, lost samples left out; null in its first second"""
    layer: Layer | None
    plan_id: PlanId | None = None
    """the plan that gave it these GPUs"""
    preempted: PreemptReason | None = None
    """why the run ended, if the job went on"""
    cause: Cause | None = None
    start_s: float | None = None
    """seconds from the order to start until its processes were up"""
    stop_s: float | None = None
    """seconds from the order to stop until its GPUs were free; null: it was not ordered to stop"""


class RunPage(Message, frozen=True, kw_only=True):
    job_id: JobId
    runs: tuple[RunView, ...]
    """the newest runs, oldest first"""
    total: int
    """number of runs; those of jobs that ended long ago are forgotten"""


# ---- plans


class PlanSummary(Message, frozen=True, kw_only=True):
    plan: PlanView
    left_out: dict[str, int]
    """number of jobs left out, by reason"""


class PlanPage(Message, frozen=True, kw_only=True):
    plans: tuple[PlanSummary, ...]
    """newest first"""


class PlanDetail(Message, frozen=True, kw_only=True):
    plan_id: PlanId
    placements: tuple[Placement, ...]
    left_out: tuple[LeftOut, ...]
    """the first jobs left out; `PlanView.left_out` is their full number"""
