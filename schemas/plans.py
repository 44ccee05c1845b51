"""The parts of a plan: placements, jobs left out with the reasons, and why placements end."""

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
    """no layer: the estimate of an earlier plan, used while the estimator is late or down"""


class PlanKind(StrEnum):
    FIRST = "first"
    """the plan at the start of a round, for all GPUs and all jobs, running ones included"""
    FRAGMENT = "fragment"
    """a later plan in the round, for idle GPUs and waiting jobs only"""


class Stage(StrEnum):
    """How the choice of a plan was found."""

    OPTIMAL = "optimal"
    """by the solver, within the tolerated gap"""
    INCUMBENT = "incumbent"
    """by the solver: its best choice at its deadline"""
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
    """it had configurations, but the plan gains more by giving the GPUs to other jobs"""
    ON_HOLD = "on-hold"
    """it is on hold"""


class Placement(Message, frozen=True, kw_only=True, omit_defaults=True):
    """One job on one gang. `placement_id` stays the same as long as the job keeps its gang."""

    placement_id: PlacementId
    job_id: JobId
    gang: Gang
    throughput: Amount
    """estimated samples/s of the whole gang"""
    layer: Layer
    share: Fraction = 1.0
    """share of its GPUs' time that it is to get; below 1 if other jobs take turns on them"""

    @property
    def gpus(self) -> int:
        return self.gang.gpus


class LeftOut(Message, frozen=True, kw_only=True):
    """A job that gets no GPUs in a plan, with the reason."""

    job_id: JobId
    reason: Waiting
    detail: str = ""
    held_by: tuple[JobId, ...]
    """the jobs that have the GPUs that it could use; those with most GPUs come first"""


class Measures(Message, frozen=True, kw_only=True, omit_defaults=True):
    """What the numbers of a policy's standings mean: name and unit, and an explanation after a comma.

    Empty: the policy has no such number.
    """

    priority: str = ""
    """what orders the queue"""
    gain: str = ""
    """what a placement is worth"""


class Standing(Message, frozen=True, kw_only=True, omit_defaults=True):
    """How a job stood in a plan, by the measures of its policy."""

    priority: Number | None = None
    gain: Number | None = None
    """gain of the placement that it got, or else of the best that it could have got"""
    stay: Number | None = None
    """gain of the placement that it had"""

    @property
    def numbers(self) -> tuple[float, ...]:
        return tuple([one for one in (self.priority, self.gain, self.stay) if one is not None])


class Beneficiary(Message, frozen=True, kw_only=True, omit_defaults=True):
    """A job that got GPUs on the nodes of a job whose placement ended."""

    job_id: JobId
    gpus: WholeNumber
    """GPUs that it got on those nodes"""
    standing: Standing | None = None


class Cause(Message, frozen=True, kw_only=True, omit_defaults=True):
    """Why a placement was ended: the plan, the jobs that got its GPUs, and the standings of all."""

    plan_id: PlanId | None = None
    """the plan that ended it; None: no plan did"""
    moved: bool = False
    """the plan gave the job another placement"""
    to: tuple[Beneficiary, ...] = ()
    """the jobs that got its GPUs; those with most GPUs come first"""
    others: WholeNumber = 0
    """number of further jobs that `to` does not name"""
    measures: Measures = Measures()
    standing: Standing | None = None
    """standing of the job whose placement ended"""
    node: NodeId | None = None
    """the node that drains, was lost or lost the worker"""
    on_hold: bool = False
    """the job was put on hold"""
