"""Calls policies: loads one, and does the two steps of a plan. An exception of a policy becomes an answer.

Runs inline or in a process of its own (`policy_process`); requests and answers can be sent there. No I/O.
"""

from collections.abc import Collection

import msgspec

from schemas.placement import Mode
from schemas.plans import Waiting
from services.planner.core.tasks import Known, Look, Unfit
from services.planner.policies.contract.checks import misfit
from services.planner.policies.contract.configurations import Configurations
from services.planner.policies.contract.decision import (
    Decision,
    Left,
    Policy,
    asks_modes,
    bounded,
    fault,
    modes_of,
    moves_for_waiting,
    sees_staying,
)
from services.planner.policies.contract.estimates import Estimated
from services.planner.policies.contract.view import View
from services.planner.policies.kit.keeping import kept
from services.planner.policies.registry import Registry, UnfitPolicy
from services.planner.solver.problem import Solve, SolverFailed
from shared.domain import gangs

CAUGHT = (Exception, SystemExit)
"""what a policy may raise without ending the process; a MemoryError ends it, which frees the memory"""
OURS = "services.planner.policies."
CHARACTERS = 300
"""characters of a policy's error message that are kept"""

_encoder, _decoder = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(Decision)


class Want(msgspec.Struct, frozen=True, kw_only=True):
    """Asks a policy which configurations it needs estimates of."""

    policy: str
    view: View
    stands_in: bool = False
    """whether the policy plans in place of another, which cannot"""


class Decide(msgspec.Struct, frozen=True, kw_only=True):
    """Asks a policy for its decision."""

    policy: str
    view: View
    wanted: Configurations
    estimates: Estimated
    stands_in: bool = False
    """as in `Want`"""


class PolicyFailed(msgspec.Struct, frozen=True, kw_only=True):
    """The policy raised, or its decision broke a rule; the text says which."""

    reason: str
    crashed: bool = False
    """whether its process ended, or it overran its time limit"""


def looked_at(registry: Registry, look: Look) -> Known | Unfit:
    """Load a policy and see whether it can be asked for plans."""
    try:
        calls, policy = registry.calls(look.policy), registry.find(look.policy)
        return Known(
            policy=look.policy,
            calls=calls,
            sees_staying=sees_staying(policy),
            moves_for_waiting=moves_for_waiting(policy),
            fills_any_room=gangs.fill_any_room(modes_of(policy)),
        )
    except MemoryError:
        raise
    except CAUGHT as error:
        return Unfit(policy=look.policy, reason=_text(error))


def wanted_by(registry: Registry, step: Want) -> Configurations | PolicyFailed:
    try:
        policy = registry.find(step.policy)
        wanted = policy.wants(shown(policy, step.view, stands_in=step.stands_in))
        broken = None if _is_ours(policy) else misfit(step.view, wanted)
    except MemoryError:
        raise
    except CAUGHT as error:
        return PolicyFailed(reason=f"{step.policy} failed: {_text(error)}")
    return (
        wanted if broken is None else PolicyFailed(reason=f"{step.policy} made an invalid request: {broken}")
    )


def decided_by(registry: Registry, step: Decide, solve: Solve) -> Decision | PolicyFailed:
    try:
        policy = registry.find(step.policy)
        view = shown(policy, step.view, stands_in=step.stands_in)
        made = policy.decide(view, step.wanted, step.estimates, solve)
        decision = bounded(made) if _is_ours(policy) else _plain(made)
        broken = fault(view, decision)
    except SolverFailed as error:
        return PolicyFailed(reason=f"the solver failed: {error}", crashed=True)
    except MemoryError:
        raise
    except CAUGHT as error:
        return PolicyFailed(reason=f"{step.policy} failed: {_text(error)}")
    if broken is not None:
        return PolicyFailed(reason=f"{step.policy} made an invalid decision: {broken}")
    return with_all_left(view, decision)


def shown(policy: Policy, view: View, *, stands_in: bool = False) -> View:
    """The view as the policy sees it: in the modes that it plans."""
    planned = modes_of(policy)
    seen = _held_still(view, planned) if stands_in else view
    return seen.in_modes(planned, by_job=asks_modes(policy))


def _held_still(view: View, planned: Collection[type[Mode]]) -> View:
    """The view, with jobs that run in modes that a stand-in does not plan as jobs that have to stay.

    Else a plan of the stand-in would restart all of them.
    """
    choices, _ = kept(view, everything=True)
    still = {choice.job_id for choice in choices if type(choice.gang.sync) not in planned}
    jobs = [msgspec.structs.replace(job, stays=True) if job.job_id in still else job for job in view.jobs]
    return msgspec.structs.replace(view, jobs=tuple(jobs)) if still else view


def with_all_left(view: View, decision: Decision) -> Decision:
    """The decision with every job that it does not place among those left out.

    Added are the jobs that it does not mention, and those that the policy was not shown.
    """
    mentioned = {choice.job_id for choice in decision.choices} | {left.job_id for left in decision.left}
    forgotten = [
        Left(job_id=job.job_id, reason=Waiting.OUTWEIGHED, detail="the policy gives no reason")
        for job in view.jobs
        if job.job_id not in mentioned
    ]
    lacking = [
        Left(job_id=job_id, reason=Waiting.NO_CONFIGURATION, detail=why)
        for job_id, why in sorted(view.lacking.items())
    ]
    return msgspec.structs.replace(decision, left=(*decision.left, *forgotten, *lacking))


def _is_ours(policy: Policy) -> bool:
    """Whether it is a policy of this package: the contract suite tests that these ask and decide in form."""
    return type(policy).__module__.startswith(OURS)


def _plain(made: object) -> Decision:
    """The decision, rebuilt from its encoding: it can be published, and has no types of the policy's own."""
    return _decoder.decode(_encoder.encode(made))


def _text(error: BaseException) -> str:
    words = str(error) if isinstance(error, UnfitPolicy) else f"{type(error).__name__}: {error}"
    return words[:CHARACTERS]
