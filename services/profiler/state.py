"""What facts taught the profiler: jobs to be measured, where runs are, what was measured."""

import msgspec

from schemas.cluster import Node
from schemas.events import ProfileRun, TimeModules
from schemas.ids import Fingerprint, GpuType, JobId, NodeId, PlacementId
from schemas.jobs import JobSpec


class Out(msgspec.Struct, frozen=True):
    """Why a job cannot use a type."""

    reason: str
    lasting: bool
    """true: the agent was sure, so it holds for the workload if the workload runs elsewhere"""


class Job(msgspec.Struct, kw_only=True):
    """A job that is not profiled yet."""

    spec: JobSpec
    fingerprint: Fingerprint
    tries: dict[GpuType, int] = {}
    """runs that failed, by type"""
    away: dict[GpuType, int] = {}
    """rounds in a row that opened without a node of the type"""
    out: dict[GpuType, Out] = {}
    measured: bool = False
    """a run of its own brought numbers"""


class Run(msgspec.Struct, kw_only=True):
    """A measurement on its way: it holds one GPU of a node."""

    plan: ProfileRun
    fingerprint: Fingerprint
    planned_at: float
    started_at: float | None = None
    over: str = ""
    """why it will bring no numbers; empty: it may yet"""
    excused: bool = False
    """its end says nothing about the job, so it is not counted as an attempt"""


class Held(msgspec.Struct, kw_only=True):
    """A node and what is on it."""

    node: Node
    alive: bool = True
    drained: bool = False
    workers: dict[PlacementId, int] = {}
    """GPUs in use, by placement"""

    @property
    def opens(self) -> bool:
        """Whether something new may start on it."""
        return self.alive and not self.drained


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """What one run showed; one number an iteration, seconds."""

    data_s: tuple[float, ...]
    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]
    update_s: tuple[float, ...]
    iteration_s: tuple[float, ...]
    parameters: float


class State(msgspec.Struct, kw_only=True):
    round: int = -1
    """the last round that was opened"""
    jobs: dict[JobId, Job] = {}
    """not profiled yet, in the order of submission"""
    runs: dict[PlacementId, Run] = {}
    nodes: dict[NodeId, Held] = {}
    raw: dict[Fingerprint, dict[GpuType, Measurement]] = {}
    """measured, not yet told as modules"""
    modules: dict[Fingerprint, dict[GpuType, TimeModules]] = {}
    unfit: dict[Fingerprint, dict[GpuType, str]] = {}
    """types that a workload which runs elsewhere does not run on, and why"""
