"""The profiler's state: jobs to be measured, runs under way, what was measured."""

import msgspec

from schemas.events import ProfileRun
from schemas.ids import Fingerprint, GpuType, JobId, NodeId, PlacementId
from schemas.jobs import JobSpec, Workload
from schemas.measurements import Measured, TimeModules
from shared.domain.nodes import KnownNode


class Exclusion(msgspec.Struct, frozen=True):
    reason: str
    final: bool
    """true: the agent was sure, so it holds for the workload if the workload runs elsewhere"""


class UnprofiledJob(msgspec.Struct, kw_only=True):
    """A job that is not profiled yet."""

    spec: JobSpec
    fingerprint: Fingerprint
    """the key of its measurements: see `State.kept_by`"""
    failed_runs: dict[GpuType, int] = {}
    added: list[GpuType] = []
    """types it was measured on within a round; where that failed, it waits for a round's opening"""
    rounds_without_node: dict[GpuType, int] = {}
    """in a row"""
    excluded: dict[GpuType, Exclusion] = {}
    absent: dict[NodeId, str] = {}
    """nodes that lack its program, script, folder or image, and what they said"""
    measured: bool = False
    """whether a run of its own brought numbers"""


class PendingRun(msgspec.Struct, kw_only=True):
    """A measurement on its way: it holds one GPU of a node."""

    plan: ProfileRun
    fingerprint: Fingerprint
    planned_at: float
    started_at: float | None = None
    failure: str = ""
    """why it will bring no numbers; empty: it may yet"""
    excused: bool = False
    """its end says nothing about the job, so it is not counted as an attempt"""


class State(msgspec.Struct, kw_only=True):
    every_job: bool = False
    """no job rests on what another one's measurement has shown"""
    round: int = -1
    """number of the last round that was opened"""
    additions: int = 0
    """how often runs were added within a round"""
    jobs: dict[JobId, UnprofiledJob] = {}
    """not profiled yet, in the order of submission"""
    runs: dict[PlacementId, PendingRun] = {}
    ended: dict[PlacementId, ProfileRun] = {}
    """the last runs that ended; their numbers may come late"""
    nodes: dict[NodeId, KnownNode] = {}
    workers: dict[NodeId, dict[PlacementId, int]] = {}
    """GPUs in use on a node, or ordered to be, by placement"""
    raw: dict[Fingerprint, dict[GpuType, Measured]] = {}
    """measurements whose time modules are not yet published"""
    modules: dict[Fingerprint, dict[GpuType, TimeModules]] = {}
    unfit: dict[Fingerprint, dict[GpuType, str]] = {}
    """types that a workload which runs elsewhere does not run on, and why"""

    def kept_by(self, job_id: JobId, workload: Workload) -> Fingerprint:
        """What a job's measurements are kept by: its workload, or with `every_job` itself."""
        return Fingerprint(job_id) if self.every_job else workload.fingerprint
