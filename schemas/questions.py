"""Questions between services: each with its reply and the service that answers."""

from enum import StrEnum
from typing import Annotated, ClassVar

from msgspec import Meta

from schemas.accuracy import AccuracyReport
from schemas.base import Message, Question
from schemas.calibration import AllReduceMeeting, AllReduceTimes, Calibration, Ring
from schemas.ids import Fingerprint, JobId, NodeId, PlanId
from schemas.measurements import DataMode
from schemas.numbers import Amount, WholeNumber
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
"""the largest number of entries in a reply"""


def agent_of(node_id: NodeId) -> str:
    """The subject on which the agent of a node answers."""
    return f"{AGENTS}.{node_id}"


def node_asked(subject: str) -> str:
    """The node whose agent answers on a subject; empty if no agent does."""
    _, asked, node_id = subject.partition(f"{AGENTS}.")
    return node_id if asked else ""


# ---- admission


class HandedOn(Question, frozen=True, kw_only=True, tag="handed-on"):
    """A request that came over HTTP to an admission that does not lead, passed to the one that leads."""

    subject: ClassVar[str] = ADMISSION

    asked: bytes
    """the request as admission itself represents it, in MessagePack, with the caller's name and rights"""


class HandedBack(Message, frozen=True, kw_only=True):
    said: bytes
    problem: bool
    """the refusal, if the request was refused"""


# ---- the estimator


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
    k in start[c] … start[c + 1] − 1. A node that a configuration names several times stands for as many nodes
    like it: for what a GPU type would do, had it more of them. Where `samples` is not empty, those GPUs take
    `samples[k]` samples of an iteration together; 0 in all cells of a row: a batch on every GPU.
    """

    subject: ClassVar[str] = ESTIMATOR

    jobs: tuple[JobId, ...]
    workloads: tuple[Fingerprint, ...] = ()
    """by job, what it trains; where given, the estimator need not know the job"""
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
    """executions that ran for less are left out"""


class Calibrate(Question, frozen=True, kw_only=True, tag="calibrate"):
    """Measure the paths of gradients on idle nodes, or show what was measured before."""

    subject: ClassVar[str] = ESTIMATOR

    measure: bool = True


class ExportStore(Question, frozen=True, kw_only=True, tag="export-store"):
    """A page of what the estimator's store knows, as JSON lines."""

    subject: ClassVar[str] = ESTIMATOR

    after: WholeNumber = 0
    """`next` of the page before"""
    limit: Annotated[int, Meta(ge=1, le=20_000)] = 20_000


class StorePage(Message, frozen=True, kw_only=True):
    lines: tuple[bytes, ...]
    next: int | None
    """None: this was the last page"""


class ImportStore(Question, frozen=True, kw_only=True, tag="import-store"):
    """Enter lines of an export. What the store has already is skipped."""

    subject: ClassVar[str] = ESTIMATOR

    lines: tuple[bytes, ...]


class Imported(Message, frozen=True, kw_only=True):
    entered: int
    known: int
    """observations that were there already"""
    wrong: tuple[int, str] | None = None
    """index of the first line that cannot be read, and why; then nothing of the page is entered"""


# ---- the planner


class JudgePolicy(Question, frozen=True, kw_only=True, tag="judge-policy"):
    """Ask whether a policy can plan with these options; only the process that may run its code knows."""

    subject: ClassVar[str] = PLANNER

    policy: str
    """as `NAME+OPTION=VALUE`"""


class PolicyVerdict(Message, frozen=True, kw_only=True):
    unfit: str
    """why it cannot; empty if it can"""


# ---- the profiler


class FitLoading(Question, frozen=True, kw_only=True, tag="fit-loading"):
    """The data-loading mixture (Hops eq. 3) behind some measured times."""

    subject: ClassVar[str] = PROFILER

    data_s: tuple[Amount, ...]


class FittedLoading(Message, frozen=True, kw_only=True):
    data: tuple[DataMode, ...]


# ---- the agents


class OpenAllReduce(Question, frozen=True, kw_only=True, tag="open-all-reduce"):
    """Whether a node would take part in all-reduces of a gang, and where to meet if it is the first of it.

    Refused unless its GPUs are free. Nothing is begun.
    """

    node_id: NodeId
    ring: Ring
    sizes: Annotated[tuple[Amount, ...], Meta(max_length=100)]
    """bytes"""

    @property
    def subject(self) -> str:  # type: ignore[override]  # one for each node
        return agent_of(self.node_id)


class JoinAllReduce(Question, frozen=True, kw_only=True, tag="join-all-reduce"):
    """Run the part of one node in all-reduces, which the first node times: all nodes are asked at once."""

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
    """What processes of a job printed on the agent's node."""

    node_id: NodeId
    job_id: JobId
    after: dict[WholeNumber, WholeNumber] = {}
    """by rank, `next` of the page before"""
    tail_lines: WholeNumber = 100
    """of each rank that is not in `after`"""

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
    """the first fact, and the newest; ascending"""
    complete: bool
    """false: between the first and the second there are others"""
    last_seq: int
    """of the facts that were looked at"""


class ListPlans(Question, frozen=True, kw_only=True, tag="plans"):
    subject: ClassVar[str] = MONITOR

    limit: Limit = 20


class ShowPlan(Question, frozen=True, kw_only=True, tag="plan"):
    subject: ClassVar[str] = MONITOR

    plan_id: PlanId


# ---- the archive of what streams have dropped, which the monitor keeps


class ArchiveKind(StrEnum):
    """What an archive has."""

    FACTS = "facts"
    OBSERVATIONS = "observations"


class ReadArchive(Question, frozen=True, kw_only=True, tag="archive"):
    """What the streams have dropped, in the order in which it was stored."""

    subject: ClassVar[str] = ARCHIVE

    kind: ArchiveKind = ArchiveKind.FACTS
    after: WholeNumber = 0
    seqs: tuple[WholeNumber, ...] = ()
    """only these sequence numbers; empty: all after `after`"""
    node: str = ""
    """facts about this node alone"""


class ArchivedMessage(Message, frozen=True, kw_only=True):
    seq: WholeNumber
    subject: str
    data: bytes
    """as it was stored"""


class ArchivePage(Message, frozen=True, kw_only=True):
    messages: tuple[ArchivedMessage, ...]
    """ascending"""
    upto: WholeNumber
    """the page has all that is wanted up to this sequence; the sequence where the question began: there is no
    more"""
    begins: WholeNumber
    """sequence of the first that the archive has; 0: it has none"""
    lacks: tuple[tuple[int, int], ...] = ()
    """first and last of stretches that the archive ought to have here, and has not"""
    damage: str = ""
    """which file cannot be read, and why; the facts that it had are in `lacks`"""


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
    """of each kind by `first`"""
    folder: str
    """on the monitor's machine; empty: nothing is archived"""


class CopyArchive(Question, frozen=True, kw_only=True, tag="archive-file"):
    """Copy a file of the archive, a part at a time."""

    subject: ClassVar[str] = ARCHIVE

    name: str
    offset: WholeNumber = 0


class ArchivePart(Message, frozen=True, kw_only=True):
    data: bytes
    """empty: the file ends there"""


class Refused(Message, frozen=True, kw_only=True, tag_field="reply", tag="refused", omit_defaults=True):
    """The one other reply: the question was understood and cannot be answered."""

    reason: str
    passing: bool = False
    """true: nobody answers at the moment, as where the service ended; whoever asks takes it for no answer"""


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
