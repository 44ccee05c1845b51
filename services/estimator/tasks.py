"""The estimator's outside work: what the core asks for, and what comes back."""

import msgspec

from schemas.base import Message
from schemas.cluster import Node
from schemas.events import TimeModules
from schemas.ids import Fingerprint, GpuType, JobId
from schemas.jobs import JobSpec
from schemas.questions import EstimateQuestion
from schemas.samples import ThroughputObserved


class Record(msgspec.Struct, frozen=True):
    """Work: write observations. Nothing comes back."""

    observations: tuple[ThroughputObserved, ...]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Work: estimate what a question asks about."""

    ticket: int
    question: EstimateQuestion
    fingerprints: tuple[Fingerprint | None, ...]
    """of the question's jobs; None: not known"""
    nodes: tuple[Node | None, ...]
    """the question's nodes; None: not known"""


class Answered(msgspec.Struct, frozen=True):
    ticket: int
    message: Message


class Learn(msgspec.Struct, frozen=True, kw_only=True):
    """Work: write a job's time modules, and say what makes it plannable."""

    job_id: JobId
    spec: JobSpec
    modules: dict[GpuType, TimeModules]
    nodes: dict[GpuType, Node]
    """one node of each type that is known"""
    gpus: dict[GpuType, int]
    """of the nodes that are there, by type"""


class Learned(msgspec.Struct, frozen=True, kw_only=True):
    job_id: JobId
    age_s: float
    sensitivity: float
    single_gpu: dict[GpuType, float]
    """samples/s"""
