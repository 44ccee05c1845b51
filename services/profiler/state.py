"""The profiler's state: jobs to be measured, runs under way, what was measured."""

import msgspec

from schemas.events import ProfileRun
from schemas.ids import Fingerprint, GpuType, JobId, NodeId, PlacementId
from schemas.jobs import JobSpec, Workload
from schemas.measurements import Measured, TimeModules
from shared.domain.nodes import KnownNode


class Exclusion(msgspec.Struct, frozen=True):
    reason: str
    whole_workload: bool
    """true: it is no fault of the job. If the workload runs on another type, this holds for all jobs of it"""


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What the folds need to know of the settings. No part of the state, since a restart may change it."""

    attempts: int
    """failed runs after which a type is excluded"""
    every_job: bool = False
    """true: every job is measured, even if its workload was measured before"""

    def measured_as(self, job_id: JobId, workload: Workload) -> Fingerprint:
        """The key of a job's measurements: its workload's fingerprint or, with `every_job`, its own id."""
        return Fingerprint(job_id) if self.every_job else workload.fingerprint


class KnownJob(msgspec.Struct, kw_only=True):
    """An unfinished job."""

    spec: JobSpec
    fingerprint: Fingerprint
    """key of its measurements: see `Rules.measured_as`"""
    failed_runs: dict[GpuType, int] = {}
    added: list[GpuType] = []
    """types on which it was measured within a round, and is to be again only in a round's opening"""
    rounds_without_node: dict[GpuType, int] = {}
    """by type: rounds in a row in which no node of it was open"""
    excluded: dict[GpuType, Exclusion] = {}
    absent: dict[NodeId, str] = {}
    """nodes that lack its program, script, folder or image, each with its agent's message"""
    failed_on: list[NodeId] = []
    """nodes on which a run of it failed; others are tried first"""
    measured: bool = False
    """whether a run of this job, not only of another job of its workload, brought measurements"""
    types: frozenset[GpuType] = frozenset()
    """types on which it is profiled; empty: it is not profiled yet"""


class PendingRun(msgspec.Struct, kw_only=True):
    """A measurement on its way: it holds one GPU of a node."""

    plan: ProfileRun
    fingerprint: Fingerprint
    planned_at: float
    started_at: float | None = None
    failure: str = ""
    """why it will bring no measurement; empty: it may still bring one"""
    excused: bool = False
    """true: the failure says nothing about the job and does not count as an attempt"""


class State(msgspec.Struct, kw_only=True):
    round: int = -1
    """number of the last round that was opened"""
    opened_at: float | None = None
    """when it was opened; None: that was not kept, or there is none"""
    additions: int = 0
    """how often runs were added within a round, in all rounds: the number of the next `ProfilingAdded`"""
    jobs: dict[JobId, KnownJob] = {}
    """not profiled yet, in the order of submission"""
    profiled: dict[JobId, KnownJob] = {}
    """profiled, and unfinished: they may still lack types whose nodes come later"""
    on_hold: dict[JobId, None] = {}
    """jobs that are not measured, since they are on hold"""
    runs: dict[PlacementId, PendingRun] = {}
    ended: dict[PlacementId, ProfileRun] = {}
    """the last runs that ended; their measurements may arrive late"""
    nodes: dict[NodeId, KnownNode] = {}
    workers: dict[NodeId, dict[PlacementId, int]] = {}
    """GPUs in use on a node, or ordered to be, by placement"""
    raw: dict[Fingerprint, dict[GpuType, Measured]] = {}
    """measurements whose time modules are not yet published"""
    modules: dict[Fingerprint, dict[GpuType, TimeModules]] = {}
    unfit: dict[Fingerprint, dict[GpuType, str]] = {}
    """by workload: types on which it does not run although it runs on others, and why"""

    def job(self, job_id: JobId) -> KnownJob | None:
        """The job, profiled or not."""
        return self.jobs.get(job_id) or self.profiled.get(job_id)
