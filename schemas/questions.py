"""Questions between services: each with its reply and the service that answers."""

from enum import StrEnum
from typing import Annotated, ClassVar

from msgspec import Meta

from schemas.accuracy import AccuracyReport
from schemas.base import Message, Question
from schemas.calibration import AllReduceMeeting, AllReduceTimes, Calibration, Ring
from schemas.ids import Fingerprint, JobId, NodeId, PlanId
from schemas.measurements import DataMode
from schemas.numbers import Amount, Time, WholeNumber
from schemas.output import OutputPage
from schemas.overview import PlanDetail, PlanPage, RunPage, SummaryPage, TimelineView, Which
from schemas.views import JobPage, JobSorting, JobView, NodePage, StatusView, WhyView

ADMISSION = "hopyard.ask.admission"
ESTIMATOR = "hopyard.ask.estimator"
MONITOR = "hopyard.ask.monitor"
PLANNER = "hopyard.ask.planner"
PROFILER = "hopyard.ask.profiler"
AGENTS = "hopyard.ask.agent"
ARCHIVE = "hopyard.ask.archive"

Limit = Annotated[int, Meta(ge=0, le=1_000_000)]
"""largest number of entries in a reply"""
JOBS_PER_PAGE = 1_000
"""jobs at most in a reply to `ListJobs` or `ListSummaries`"""


def agent_of(node_id: NodeId) -> str:
    """The subject on which the agent of a node answers."""
    return f"{AGENTS}.{node_id}"


def node_asked(subject: str) -> str:
    """The node whose agent answers on a subject; empty: no agent does."""
    _, asked, node_id = subject.partition(f"{AGENTS}.")
    return node_id if asked else ""


# ---- admission


class HandedOn(Question, frozen=True, kw_only=True, tag="handed-on"):
    """An HTTP request that an instance of admission passes to the one that leads."""

    subject: ClassVar[str] = ADMISSION

    asked: bytes
    """the request in admission's own form, with the caller's identity, as MessagePack"""


class HandedBack(Message, frozen=True, kw_only=True):
    """The leading instance's answer to a request."""

    said: bytes
    """the body of the answer, as MessagePack"""
    problem: bool
    """true: the request was refused, and the body is the refusal"""


# ---- the estimator


class Estimates(Message, frozen=True, kw_only=True):
    """A row for each configuration asked about, as little-endian columns."""

    throughput: bytes
    """float64, samples/s of the whole configuration; NaN where nothing is known"""
    variance: bytes
    """float64, variance of the throughput; NaN where none is known: in theory, and of a single observation"""
    count: bytes
    """int32, number of observations that it is from; 0 for the theory layer"""
    layer: bytes
    """uint8, index into `LAYERS`"""


LAYERS = ("entity", "type", "theory", "cached")


class EstimateQuestion(Question, frozen=True, kw_only=True, tag="estimate"):
    """Throughput of many configurations at once: rows as compressed sparse columns, little-endian int32.

    Configuration c belongs to `jobs[job[c]]` and takes `gpus[k]` GPUs on `nodes[node[k]]` for
    k in start[c] … start[c + 1] − 1. If a configuration names a node several times, it means as many nodes of
    that node's kind: so a question can be about more nodes than the cluster has. If `samples` is not empty,
    the GPUs of cell k together take `samples[k]` samples of an iteration; 0 in all cells of a configuration:
    a batch on every GPU.
    """

    subject: ClassVar[str] = ESTIMATOR

    jobs: tuple[JobId, ...]
    workloads: tuple[Fingerprint, ...] = ()
    """workload of each job; if given, the estimator need not know the jobs"""
    nodes: tuple[NodeId, ...]
    job: bytes
    start: bytes
    node: bytes
    gpus: bytes
    samples: bytes = b""


class ShowAccuracy(Question, frozen=True, kw_only=True, tag="accuracy"):
    """Compare estimated with measured throughput."""

    subject: ClassVar[str] = ESTIMATOR

    by: tuple[str, ...] = ("layer",)
    """names of `shared.domain.accuracy.KEYS`"""
    shortest_s: Amount = 60.0
    """seconds; shorter executions are left out"""


class Calibrate(Question, frozen=True, kw_only=True, tag="calibrate"):
    """Measure all-reduces on idle nodes, or show the last measurements."""

    subject: ClassVar[str] = ESTIMATOR

    measure: bool = True
    """false: only show"""


class ExportStore(Question, frozen=True, kw_only=True, tag="export-store"):
    """Export a page of the estimator's store, as JSON lines (`schemas/archive.py`)."""

    subject: ClassVar[str] = ESTIMATOR

    after: WholeNumber = 0
    """`next` of the page before"""
    limit: Annotated[int, Meta(ge=1, le=20_000)] = 20_000
    """lines, at most; a page of long ones has fewer"""


class StorePage(Message, frozen=True, kw_only=True):
    lines: tuple[bytes, ...]
    next: int | None
    """with which to ask for the page after this one. None: this was the last"""


class ImportStore(Question, frozen=True, kw_only=True, tag="import-store"):
    """Enter lines of an export into the estimator's store; entries that it has already are skipped."""

    subject: ClassVar[str] = ESTIMATOR

    lines: tuple[bytes, ...]
    newest_at: Time | None = None
    """time of the export's newest observation. If this stack's clock is behind it, all of them count as made
    so much earlier. None: that of these lines"""


class Imported(Message, frozen=True, kw_only=True):
    entered: int
    """number of new entries"""
    known: int
    """number of the other entries: the store has them already, or not the time modules that they refine, or
    they do not show the pace of GPUs"""
    wrong: tuple[int, str] | None = None
    """(index of the first invalid line, why it is invalid); then no line of the page is entered"""


# ---- the planner


class JudgePolicy(Question, frozen=True, kw_only=True, tag="judge-policy"):
    """Ask whether a policy can plan with these options.

    Only the planner's policy process may run its code.
    """

    subject: ClassVar[str] = PLANNER

    policy: str
    """as `NAME+OPTION=VALUE`"""


class PolicyVerdict(Message, frozen=True, kw_only=True):
    unfit: str
    """why it cannot; empty if it can"""


# ---- the profiler


class FitLoading(Question, frozen=True, kw_only=True, tag="fit-loading"):
    """Fit the data-loading mixture (Hops eq. 3) to measured times."""

    subject: ClassVar[str] = PROFILER

    data_s: tuple[Amount, ...]


class FittedLoading(Message, frozen=True, kw_only=True):
    data: tuple[DataMode, ...]


# ---- the agents


class OpenAllReduce(Question, frozen=True, kw_only=True, tag="open-all-reduce"):
    """Ask whether a node can take part in timed all-reduces, and where to meet if it is the first.

    Refused unless enough GPUs are free. Nothing is started yet.
    """

    node_id: NodeId
    ring: Ring
    sizes: Annotated[tuple[Amount, ...], Meta(max_length=100)]
    """bytes"""

    @property
    def subject(self) -> str:  # type: ignore[override]  # one for each node
        return agent_of(self.node_id)


class JoinAllReduce(Question, frozen=True, kw_only=True, tag="join-all-reduce"):
    """Have a node take part in all-reduces, which the first node times; all nodes are asked at once."""

    node_id: NodeId
    ring: Ring
    sizes: Annotated[tuple[Amount, ...], Meta(max_length=100)]
    repeats: Annotated[int, Meta(ge=1, le=1_000)]
    meeting: str
    """`host:port` of rank 0"""

    @property
    def subject(self) -> str:  # type: ignore[override]  # one for each node
        return agent_of(self.node_id)


class ReadOutput(Question, frozen=True, kw_only=True, tag="read-output"):
    """Read the output of a job's processes on the agent's node."""

    node_id: NodeId
    job_id: JobId
    after: dict[WholeNumber, WholeNumber] = {}
    """by rank, `next` of the page before"""
    others_after: WholeNumber | None = None
    """the position at which ranks that are not in `after` begin; None: with their last `tail_lines`"""
    tail_lines: WholeNumber = 100

    @property
    def subject(self) -> str:  # type: ignore[override]  # one for each node
        return agent_of(self.node_id)


# ---- the monitor


class ShowStatus(Question, frozen=True, kw_only=True, tag="status"):
    subject: ClassVar[str] = MONITOR


class ListJobs(Question, frozen=True, kw_only=True, tag="jobs"):
    subject: ClassVar[str] = MONITOR

    states: tuple[str, ...] = ()
    """any of these; empty: every state"""
    project: str | None = None
    user: str | None = None
    sort: JobSorting = JobSorting.SUBMITTED
    after: str | None = None
    limit: Limit = 100


class ShowJob(Question, frozen=True, kw_only=True, tag="job"):
    subject: ClassVar[str] = MONITOR

    job_id: JobId


class ExplainJob(Question, frozen=True, kw_only=True, tag="why"):
    subject: ClassVar[str] = MONITOR

    job_id: JobId


class ListNodes(Question, frozen=True, kw_only=True, tag="nodes"):
    subject: ClassVar[str] = MONITOR


class ShowTimeline(Question, frozen=True, kw_only=True, tag="timeline"):
    subject: ClassVar[str] = MONITOR

    after: WholeNumber = 0
    """`revision` of the answer before"""
    limit: Limit = 2_000
    """changes in one answer"""


class ListSummaries(Question, frozen=True, kw_only=True, tag="summaries"):
    subject: ClassVar[str] = MONITOR

    which: Which = Which.WAITING
    limit: Limit = 100


class ListRuns(Question, frozen=True, kw_only=True, tag="runs"):
    subject: ClassVar[str] = MONITOR

    job_id: JobId


class FindFacts(Question, frozen=True, kw_only=True, tag="facts"):
    """Find the sequence numbers of the facts about a job."""

    subject: ClassVar[str] = MONITOR

    job_id: JobId


class FactPlaces(Message, frozen=True, kw_only=True):
    seqs: tuple[int, ...]
    """sequences of the first fact and of the newest facts, ascending"""
    complete: bool
    """false: facts between `seqs[0]` and `seqs[1]` are left out"""
    last_seq: int
    """sequence of the newest fact that the monitor has handled"""


class ListPlans(Question, frozen=True, kw_only=True, tag="plans"):
    subject: ClassVar[str] = MONITOR

    limit: Limit = 20


class ShowPlan(Question, frozen=True, kw_only=True, tag="plan"):
    subject: ClassVar[str] = MONITOR

    plan_id: PlanId


# ---- the archive of what streams have dropped, which the monitor keeps


class ArchiveKind(StrEnum):
    """Which stream's messages an archived file holds."""

    FACTS = "facts"
    OBSERVATIONS = "observations"


class ReadArchive(Question, frozen=True, kw_only=True, tag="archive"):
    """Read archived messages, in the order of the stream."""

    subject: ClassVar[str] = ARCHIVE

    kind: ArchiveKind = ArchiveKind.FACTS
    after: WholeNumber = 0
    seqs: tuple[WholeNumber, ...] = ()
    """only these sequence numbers; empty: all after `after`"""
    node: str = ""
    """only facts about this node; empty: all"""


class ArchivedMessage(Message, frozen=True, kw_only=True):
    seq: WholeNumber
    subject: str
    data: bytes
    """the message as it was stored"""


class ArchivePage(Message, frozen=True, kw_only=True):
    messages: tuple[ArchivedMessage, ...]
    """ascending"""
    upto: WholeNumber
    """the page has all wanted messages up to this sequence; if it equals the `after` of the question, there
    are no more"""
    begins: WholeNumber
    """sequence of the first archived message; 0: there is none"""
    lacks: tuple[tuple[int, int], ...] = ()
    """(first, last) of ranges that the archive should have within this page, and lacks"""
    damage: str = ""
    """which file cannot be read, and why; the ranges that it should hold are in `lacks`; empty: none"""


class ListArchive(Question, frozen=True, kw_only=True, tag="archive-files"):
    subject: ClassVar[str] = ARCHIVE


class ArchivedFile(Message, frozen=True, kw_only=True):
    name: str
    kind: ArchiveKind
    first: WholeNumber
    last: WholeNumber
    bytes: WholeNumber


class ArchiveFiles(Message, frozen=True, kw_only=True):
    files: tuple[ArchivedFile, ...]
    """by kind, and in the order of `first`"""
    folder: str
    """the archive's folder on the monitor's machine; empty: nothing is archived"""


class CopyArchive(Question, frozen=True, kw_only=True, tag="archive-file"):
    """Copy a file of the archive, a part at a time."""

    subject: ClassVar[str] = ARCHIVE

    name: str
    offset: WholeNumber = 0


class ArchivePart(Message, frozen=True, kw_only=True):
    data: bytes
    """empty: the file ends at the offset"""


class Refused(Message, frozen=True, kw_only=True, tag_field="reply", tag="refused", omit_defaults=True):
    """The reply in place of the usual one: the question was understood, but cannot be answered."""

    reason: str
    passing: bool = False
    """true: the service cannot answer at the moment, as while it ends; it counts as no answer"""
    failed: bool = False
    """true: the service raised an error at the question, which `reason` quotes"""
    seq: WholeNumber = 0
    """stream sequence up to which the service had read, where the answer depends on that; 0: not said"""


REPLIES: dict[type[Question], type[Message]] = {
    HandedOn: HandedBack,
    EstimateQuestion: Estimates,
    ShowAccuracy: AccuracyReport,
    Calibrate: Calibration,
    ExportStore: StorePage,
    ImportStore: Imported,
    JudgePolicy: PolicyVerdict,
    FitLoading: FittedLoading,
    OpenAllReduce: AllReduceMeeting,
    JoinAllReduce: AllReduceTimes,
    ReadOutput: OutputPage,
    ShowStatus: StatusView,
    ListJobs: JobPage,
    ShowJob: JobView,
    ExplainJob: WhyView,
    ListNodes: NodePage,
    ShowTimeline: TimelineView,
    ListSummaries: SummaryPage,
    ListRuns: RunPage,
    FindFacts: FactPlaces,
    ListPlans: PlanPage,
    ShowPlan: PlanDetail,
    ReadArchive: ArchivePage,
    ListArchive: ArchiveFiles,
    CopyArchive: ArchivePart,
}

Asked = (
    HandedOn
    | EstimateQuestion | ShowAccuracy | Calibrate | ExportStore | ImportStore
    | JudgePolicy
    | FitLoading
    | OpenAllReduce | JoinAllReduce | ReadOutput
    | ShowStatus | ListJobs | ShowJob | ExplainJob | ListNodes
    | ShowTimeline | ListSummaries | ListRuns | FindFacts | ListPlans | ShowPlan
    | ReadArchive | ListArchive | CopyArchive
)  # fmt: skip
