"""What a policy is, and what every decision must keep to.

A policy is built from the settings and found by name (see `registry`). It is asked in two steps, both
pure: `wants` names the configurations whose throughput it needs, `decide` chooses. It keeps nothing
between calls but the `memory` of its last decision, which comes back in the next view, after a restart
of the planner too. It runs in a process of its own and under a time limit; one that raises, overruns or
breaks a rule below costs a note in the plan, which `fifo` then makes.
"""

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import ClassVar, Protocol

import msgspec

from schemas.ids import JobId
from schemas.plans import Configuration, Layer, PlanKind, Stage, Waiting
from schemas.settings import Settings
from services.planner.configurations import Configurations
from services.planner.estimates import Estimated
from services.planner.problem import Solve
from services.planner.view import View


class Trigger(StrEnum):
    """What may call for a plan."""

    ROUND = "round"
    """a round begins"""
    ARRIVAL = "arrival"
    """a job entered the queue"""
    FREED = "freed"
    """GPUs came free: a job ended or was preempted, a placement was refused, a profile is over"""
    NODE = "node"
    """a node joined, came back or is drained no more"""


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """One job's configuration. The present one keeps the job where it is."""

    job_id: JobId
    configuration: Configuration
    throughput: float
    layer: Layer


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """One dominant reason for a job without a configuration."""

    job_id: JobId
    reason: Waiting
    detail: str = ""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    choices: tuple[Choice, ...]
    """a first plan: all that shall run; a fragment plan: what shall start besides"""
    left: tuple[Left, ...] = ()
    stage: Stage = Stage.QUEUE
    objective: float = 0.0
    bound: float = 0.0
    gap: float = 0.0
    solve_s: float = 0.0
    configurations: int = 0
    memory: bytes = b""
    again_at: float | None = None
    """ask again at this cluster time at the latest, even if nothing happens"""
    notes: tuple[str, ...] = ()


class Policy(Protocol):
    calls: ClassVar[Mapping[Trigger, PlanKind]]
    """which kind of plan each trigger calls for; triggers left out call for none"""

    def wants(self, view: View) -> Configurations:
        """The configurations to be estimated: none is an answer."""
        ...

    def decide(self, view: View, wanted: Configurations, estimates: Estimated, solve: Solve) -> Decision:
        """The same arguments, the same decision."""
        ...


class PolicyFactory(Protocol):
    """What an entry point of `hopyard.policies` names."""

    def __call__(self, settings: Settings) -> Policy: ...


def fault(view: View, decision: Decision) -> str | None:
    """The first rule that the decision breaks, in words; None for a sound one.

    Capacity: no node gives more GPUs than it may. One configuration a job, of a size in its demand, on
    nodes of the view, of types it can run on: gangs are whole.
    """
    jobs = {job.job_id: job for job in view.jobs}
    nodes = {node.node_id: node for node in view.nodes}
    free = {node.node_id: node.idle for node in view.nodes}
    for job_id, times in Counter(choice.job_id for choice in decision.choices).items():
        if job_id not in jobs or times > 1:
            return f"{times} configurations for job {job_id}"
    for choice in decision.choices:
        place, job = choice.configuration, jobs[choice.job_id]
        if sum(place.values()) not in job.demand or min(place.values()) < 1:
            return f"{sum(place.values())} GPUs for job {job.job_id}"
        for node_id, gpus in place.items():
            if node_id not in nodes or nodes[node_id].gpu_type not in job.gpu_types:
                return f"job {job.job_id} on node {node_id}"
            free[node_id] -= gpus
            if free[node_id] < 0:
                return f"node {node_id} is over-allocated"
    return None
