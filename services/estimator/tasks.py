"""The estimator's outside work: what the core asks for, and what comes back."""

import msgspec

from schemas.accuracy import Execution
from schemas.base import Message
from schemas.cluster import Node
from schemas.ids import Fingerprint, GpuType, JobId
from schemas.jobs import JobSpec
from schemas.measurements import TimeModules
from schemas.questions import Calibrate, EstimateQuestion, ExportStore, ImportStore, ShowAccuracy
from schemas.samples import ThroughputObserved


class WriteObservations(msgspec.Struct, frozen=True):
    """Work: write observations."""

    observations: tuple[ThroughputObserved, ...]
    now: float
    again: bool = False
    """some may be written: the last attempt failed, or was given up"""


class ObservationsWritten(msgspec.Struct, frozen=True):
    """The answer to `WriteObservations`."""

    due: tuple[tuple[Fingerprint, GpuType], ...]
    """workloads and types with enough new observations to refine their loading"""


class Correct(msgspec.Struct, frozen=True, kw_only=True):
    """Work: compare gangs of unlike shares with their estimates. Nothing comes back."""

    observations: tuple[ThroughputObserved, ...]
    cluster: tuple[Node, ...]
    """as in `Estimate`"""


class Refine(msgspec.Struct, frozen=True, kw_only=True):
    """Work: fit a workload's loading on a type to what ran. Nothing comes back."""

    fingerprint: Fingerprint
    node: Node
    """any node of the type"""


class WriteExecutions(msgspec.Struct, frozen=True):
    """Work: write executions to the prediction log. Nothing comes back."""

    executions: tuple[Execution, ...]


class MeasurePaths(msgspec.Struct, frozen=True, kw_only=True):
    """Work: have nodes time their paths, and keep the bandwidths that follow."""

    ticket: int | None
    """None: no caller waits for the answer"""
    nodes: tuple[Node, ...]
    now: float


class ReadStore(msgspec.Struct, frozen=True):
    """Work: answer a question from the store alone."""

    ticket: int | None
    """None: the core itself asks"""
    question: ShowAccuracy | Calibrate | ExportStore | ImportStore
    now: float
    cluster: tuple[Node, ...] = ()
    """as in `Estimate`, for an export"""


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """Work: estimate what a question asks about."""

    ticket: int
    question: EstimateQuestion
    fingerprints: tuple[Fingerprint | None, ...]
    """fingerprints of the question's jobs; None: not known"""
    nodes: tuple[Node | None, ...]
    """the question's nodes; None: not known"""
    cluster: tuple[Node, ...]
    """all nodes that ever joined, by id; the question need not have all of them"""


class Answered(msgspec.Struct, frozen=True):
    """The answer to `Estimate`, `ReadStore` and `MeasurePaths`: a message for the caller."""

    ticket: int | None
    message: Message


class Learn(msgspec.Struct, frozen=True, kw_only=True):
    """Work: write a job's time modules, and compute its age, sensitivity and speed on single GPUs."""

    job_id: JobId
    spec: JobSpec
    modules: dict[GpuType, TimeModules]
    known: bool
    """some were written before, by whatever instance (see `keep_profile`)"""
    node_by_type: dict[GpuType, Node]
    """a node of each type that ever joined, one that is not lost if there is one"""
    gpus_alive: dict[GpuType, int]


class Learned(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to `Learn`: what `JobQueued` says of the job."""

    job_id: JobId
    age_s: float
    sensitivity: float
    single_gpu: dict[GpuType, float]
    """samples/s on one GPU, by type"""
