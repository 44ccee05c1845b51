"""A plan: for each job a configuration or a reason why not; and how good the plan is known to be."""

from enum import StrEnum

from schemas.base import Message
from schemas.ids import JobId, PlacementId
from schemas.placement import Gang


class Layer(StrEnum):
    """Which layer of the estimator's store answered (Hops section 3.5, top-down)."""

    ENTITY = "entity"
    TYPE = "type"
    THEORY = "theory"
    CACHED = "cached"
    """the planner's own last answer, while the estimator is late or down"""


class PlanKind(StrEnum):
    FIRST = "first"
    """the plan that opens a round: over all GPUs and all jobs, running ones included"""
    FRAGMENT = "fragment"
    """a later plan of the round: idle GPUs and waiting jobs only"""


class Stage(StrEnum):
    """What produced the choice."""

    OPTIMAL = "optimal"
    """the solver, within the tolerated gap"""
    INCUMBENT = "incumbent"
    """the solver's best at its deadline"""
    GREEDY = "greedy"
    """by priority, because the solver had nothing at its deadline or failed"""
    QUEUE = "queue"
    """the policy decides by order alone; nothing was solved"""


class Waiting(StrEnum):
    """The one dominant reason why a job is not running."""

    NOT_PLANNED = "not-planned"
    """it came after the last plan"""
    PROFILING = "profiling"
    OUTSIDE_WINDOW = "outside-window"
    NO_CONFIGURATION = "no-configuration"
    """no node set has enough idle GPUs of a type it may use"""
    NO_ESTIMATE = "no-estimate"
    OUTWEIGHED = "outweighed"
    """it had configurations; others made more of the GPUs"""


class Placement(Message, frozen=True, kw_only=True):
    """One job on one gang. `placement_id` stays while the job keeps its gang."""

    placement_id: PlacementId
    job_id: JobId
    gang: Gang
    throughput: float
    """estimated samples/s of the whole gang"""
    layer: Layer

    @property
    def gpus(self) -> int:
        return self.gang.gpus


class LeftOut(Message, frozen=True, kw_only=True):
    job_id: JobId
    reason: Waiting
    detail: str = ""
    to: tuple[JobId, ...] = ()
    """the jobs that hold what it wanted, most GPUs first"""
