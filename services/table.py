"""All services in one table, in the order the data flows. Programs that run them read it; no service does.

Names are here and no code, so that a command can list services without importing one. Compose, images and
docs name the same services; `tests/services/test_table.py` holds them to this table.
"""

from importlib import import_module
from typing import Protocol, cast

import msgspec

from schemas.base import Event
from schemas.events import (
    GangFormed,
    GpusWithheld,
    JobCancelled,
    JobCompleted,
    JobFailed,
    JobHeld,
    JobPreempted,
    JobPriorityChanged,
    JobProfiled,
    JobQueued,
    JobRejected,
    JobReleased,
    JobStarted,
    JobSubmitted,
    JobTypeEstimated,
    JobTypeProfiled,
    NodeDrained,
    NodeJoined,
    NodeLost,
    NodeRemoved,
    NodeRestored,
    NodeReturned,
    PlacementRefused,
    PlanPublished,
    PolicyChosen,
    ProfileFailed,
    ProfileMeasured,
    ProfilingAdded,
    ProfilingPlanned,
    StartOrdered,
    StopOrdered,
    TurnsOrdered,
    WorkerCheckpointed,
    WorkerStarted,
    WorkerStopped,
)
from schemas.settings import Settings
from shared.runtime.service import Ports, Service


class Builder(Protocol):
    """`build` of a service. Some take more by keyword: nodes that are known, a node to stand for."""

    def __call__(self, settings: Settings, ports: Ports, **more: object) -> Service: ...


class ServiceEntry(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    """of its package in `services`, its process, its image"""
    purpose: str
    libraries: str = "process"
    """the dependency group of `pyproject.toml` that it runs with"""
    turn: int
    """its place, on virtual time, among services that are ready at the same instant: what happened on the
    nodes comes first and the planner last, so that a plan knows all of its instant"""
    publishes: tuple[type[Event], ...]
    """the facts that are its own to tell; an agent's, about its node"""
    on_every_node: bool = False
    """one for each node of the cluster; the others: one for the cluster"""

    @property
    def module(self) -> str:
        """What `python -m` runs."""
        return f"services.{self.name}"

    def build(self) -> Builder:
        """The function that wires it. Imports the service."""
        return cast("Builder", import_module(f"{self.module}.build").build)


TABLE: tuple[ServiceEntry, ...] = (
    ServiceEntry(
        name="admission",
        turn=5,
        purpose="takes jobs in and answers the HTTP API",
        publishes=(
            JobSubmitted,
            JobCancelled,
            JobPriorityChanged,
            JobHeld,
            JobReleased,
            NodeDrained,
            NodeRestored,
            NodeRemoved,
            PolicyChosen,
        ),
    ),
    ServiceEntry(
        name="profiler",
        turn=1,
        purpose="measures new workloads on each GPU type",
        publishes=(
            ProfilingPlanned,
            ProfilingAdded,
            ProfileFailed,
            JobProfiled,
            JobTypeProfiled,
            JobRejected,
        ),
    ),
    ServiceEntry(
        name="estimator",
        turn=2,
        purpose="predicts throughputs from what ran",
        publishes=(JobQueued, JobTypeEstimated),
        libraries="estimator",
    ),
    ServiceEntry(
        name="planner",
        turn=6,
        purpose="decides which jobs run where",
        publishes=(PlanPublished, PolicyChosen),
        libraries="planner",
    ),
    ServiceEntry(
        name="placer",
        turn=3,
        purpose="turns plans into starts and stops on nodes",
        publishes=(
            *(StartOrdered, GangFormed, TurnsOrdered, StopOrdered),
            *(JobStarted, JobPreempted, PlacementRefused),
        ),
    ),
    ServiceEntry(
        name="monitor",
        turn=4,
        purpose="finds lost nodes and ended jobs, answers about the present, and archives the past",
        libraries="monitor",
        publishes=(NodeLost, NodeReturned, JobCompleted, JobFailed),
    ),
    ServiceEntry(
        name="agent",
        turn=0,
        purpose="starts and stops jobs on its node",
        publishes=(
            *(NodeJoined, NodeDrained, GpusWithheld, ProfileMeasured, ProfileFailed),
            *(WorkerStarted, WorkerCheckpointed, WorkerStopped),
        ),
        on_every_node=True,
    ),
)

OF_CLUSTER: tuple[ServiceEntry, ...] = tuple(entry for entry in TABLE if not entry.on_every_node)
OF_NODE: tuple[ServiceEntry, ...] = tuple(entry for entry in TABLE if entry.on_every_node)
