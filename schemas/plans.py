"""A plan: for each job a configuration or a reason why not; and how good the plan is known to be."""

from enum import StrEnum

from schemas.base import Message
from schemas.ids import JobId, NodeId, PlacementId, PlanId
from schemas.numbers import Amount, Fraction, Number, WholeNumber
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
    """The stage of planning that produced the choice."""

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
    """no set of nodes that the policy would give it has enough idle GPUs of types it may use"""
    NO_ESTIMATE = "no-estimate"
    OUTWEIGHED = "outweighed"
    """it had configurations; others made more of the GPUs"""


class Placement(Message, frozen=True, kw_only=True, omit_defaults=True):
    """One job on one gang. `placement_id` stays while the job keeps its gang."""

    placement_id: PlacementId
    job_id: JobId
    gang: Gang
    throughput: Amount
    """estimated samples/s of the whole gang"""
    layer: Layer
    share: Fraction = 1.0
    """of the time of its GPUs that it is to have: below 1 where others take turns on them"""

    @property
    def gpus(self) -> int:
        return self.gang.gpus


class LeftOut(Message, frozen=True, kw_only=True):
    job_id: JobId
    reason: Waiting
    detail: str = ""
    held_by: tuple[JobId, ...]
    """the jobs that hold what it wanted, most GPUs first"""


class Measures(Message, frozen=True, kw_only=True, omit_defaults=True):
    """What the numbers of standings are: a name with its unit and, after a comma, what explains it.

    Empty: the policy has no such number.
    """

    priority: str = ""
    """what orders the queue"""
    gain: str = ""
    """what a place is worth"""


class Standing(Message, frozen=True, kw_only=True, omit_defaults=True):
    """How a job stood in a plan, by the measures of its policy."""

    priority: Number | None = None
    gain: Number | None = None
    """of the place that it was given; else of the best that it could have been given"""
    stay: Number | None = None
    """the gain of the place that it had"""

    @property
    def numbers(self) -> tuple[float, ...]:
        return tuple([one for one in (self.priority, self.gain, self.stay) if one is not None])


class Beneficiary(Message, frozen=True, kw_only=True, omit_defaults=True):
    """A job that a plan gave GPUs on the nodes of another."""

    job_id: JobId
    gpus: WholeNumber
    """on those nodes"""
    standing: Standing | None = None


class Cause(Message, frozen=True, kw_only=True, omit_defaults=True):
    """Why a placement was ended: for whom, and what that was worth in the plan."""

    plan_id: PlanId | None = None
    """the plan that ended it; None: no plan did"""
    moved: bool = False
    """the plan gave the job another place"""
    to: tuple[Beneficiary, ...] = ()
    """those with most GPUs first"""
    others: WholeNumber = 0
    """beneficiaries that are not named"""
    measures: Measures = Measures()
    standing: Standing | None = None
    """of the job itself"""
    node: NodeId | None = None
    """the node that drains, was lost or lost the worker"""
