"""The core's outside work and its answers, and the token with which it plans."""

import msgspec

from schemas.plans import PlanKind
from services.planner.policies.contract.configurations import Configurations
from services.planner.policies.contract.decision import Decision, Trigger
from services.planner.policies.contract.estimates import Estimated
from services.planner.policies.contract.view import View


class Leadership(msgspec.Struct, frozen=True, kw_only=True):
    """An input: this planner leads, with the fencing token; None if it no longer does."""

    token: int | None
    announce: bool = False
    """whether this planner's settings name another policy than those of the leader before it"""


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """Find a policy, build it, and see whether it can be asked for plans."""

    policy: str


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """An answer: the policy can plan."""

    policy: str
    calls: dict[Trigger, PlanKind]
    """which kind of plan each trigger calls for"""
    sees_staying: bool = False
    """whether views show it the jobs that it has to leave in place"""
    moves_for_waiting: bool = False
    """whether it moves running jobs only so that waiting ones can start"""
    fills_any_room: bool = False
    """whether it can use a single idle GPU for any job"""


class Unfit(msgspec.Struct, frozen=True, kw_only=True):
    """An answer: the policy cannot plan, or not now; the text says why."""

    policy: str
    reason: str
    passing: bool = False
    """whether the look itself failed, as on a machine without memory"""


class Judge(msgspec.Struct, frozen=True, kw_only=True):
    """As `Look`, for a policy that is not chosen yet."""

    policy: str


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    policy: str
    unfit: str
    """why it cannot plan; empty: it can"""


class Prepare(msgspec.Struct, frozen=True, kw_only=True):
    """Ask the policy which configurations it wants estimates of, and have them estimated."""

    number: int
    """number of the plan in the making: an answer to an earlier one is void"""
    policy: str
    view: View
    stands_in: bool = False
    """whether the policy plans in place of the chosen one, which cannot be loaded"""


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    policy: str
    """the policy that decides: the one asked, or `fifo` in its place"""
    wanted: Configurations
    estimates: Estimated
    unanswered: bool = False
    """whether the estimator did not answer: the estimates are those of earlier plans, if any"""
    notes: tuple[str, ...] = ()


class Resolve(msgspec.Struct, frozen=True, kw_only=True):
    """Let the policy decide."""

    number: int
    policy: str
    view: View
    wanted: Configurations
    estimates: Estimated
    stands_in: bool = False
    """whether the policy plans in place of another, which cannot be loaded or failed"""


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    decision: Decision
