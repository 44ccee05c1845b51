"""The estimator's state: unfinished jobs, nodes, and placements with their estimates."""

import msgspec

from schemas.accuracy import Execution
from schemas.ids import GpuType, JobId, NodeId
from schemas.jobs import JobSpec
from schemas.measurements import TimeModules
from services.estimator.belief import Ended
from shared.domain.accuracy import Executions
from shared.domain.nodes import KnownNode
from shared.domain.states import JobState


class KnownJob(msgspec.Struct, kw_only=True):
    """An unfinished job."""

    spec: JobSpec
    modules: dict[GpuType, TimeModules] = {}
    """empty: not profiled yet"""
    state: JobState = JobState.SUBMITTED
    types: frozenset[GpuType] = frozenset()
    """types of which the facts say how fast it is there; empty: it is not queued yet"""

    @property
    def queued(self) -> bool:
        """Whether a profiled job has been queued, so that the store has time modules of it."""
        return self.state is not JobState.PROFILED


class State(msgspec.Struct, kw_only=True):
    jobs: dict[JobId, KnownJob] = {}
    nodes: dict[NodeId, KnownNode] = {}
    executions: Executions = msgspec.field(default_factory=Executions)
    ended: Ended = {}
    """the last gangs that have ended: samples of them may come after a restart too"""
    logged: list[Execution] = []
    """the last executions that ended: a start writes them again, in case the store lacks them"""
