"""Questions between services: each with its reply and the service that answers."""

from typing import ClassVar

from schemas.base import Message, Question
from schemas.ids import JobId, NodeId
from schemas.views import JobPage, JobView, NodePage, StatusView, WhyView

ESTIMATOR = "hopyard.ask.estimator"
MONITOR = "hopyard.ask.monitor"


class Estimates(Message, frozen=True, kw_only=True):
    """One row a configuration asked about, as little-endian columns."""

    throughput: bytes
    """float64, samples/s of the whole configuration; NaN where nothing is known"""
    variance: bytes
    """float64, of the throughput; NaN where the theory layer has none"""
    count: bytes
    """int32, observations behind it; 0 for the theory layer"""
    layer: bytes
    """uint8, index into `LAYERS`"""


LAYERS = ("entity", "type", "theory", "cached")


class EstimateQuestion(Question, frozen=True, kw_only=True, tag="estimate"):
    """Throughput of many configurations at once: rows as compressed sparse columns, little-endian int32.

    Configuration c belongs to `jobs[job[c]]` and takes `gpus[k]` GPUs on `nodes[node[k]]` for
    k in start[c] … start[c + 1] − 1.
    """

    subject: ClassVar[str] = ESTIMATOR

    jobs: tuple[JobId, ...]
    nodes: tuple[NodeId, ...]
    job: bytes
    start: bytes
    node: bytes
    gpus: bytes


class ShowStatus(Question, frozen=True, kw_only=True, tag="status"):
    subject: ClassVar[str] = MONITOR


class ListJobs(Question, frozen=True, kw_only=True, tag="jobs"):
    subject: ClassVar[str] = MONITOR

    state: str | None = None
    project: str | None = None
    after: str | None = None
    limit: int = 100


class ShowJob(Question, frozen=True, kw_only=True, tag="job"):
    subject: ClassVar[str] = MONITOR

    job_id: JobId


class ExplainJob(Question, frozen=True, kw_only=True, tag="why"):
    subject: ClassVar[str] = MONITOR

    job_id: JobId


class ListNodes(Question, frozen=True, kw_only=True, tag="nodes"):
    subject: ClassVar[str] = MONITOR


class Refused(Message, frozen=True, kw_only=True, tag_field="reply", tag="refused"):
    """The one other reply: the question was understood and cannot be answered."""

    reason: str


REPLIES: dict[type[Question], type[Message]] = {
    EstimateQuestion: Estimates,
    ShowStatus: StatusView,
    ListJobs: JobPage,
    ShowJob: JobView,
    ExplainJob: WhyView,
    ListNodes: NodePage,
}

Asked = EstimateQuestion | ShowStatus | ListJobs | ShowJob | ExplainJob | ListNodes
