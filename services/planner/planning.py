"""One plan's two steps around a policy, guarded: what is asked of a policy, and what comes back.

Runs inline or in a process of its own (`aside`); everything here can be sent there. No I/O.
"""

import msgspec

from schemas.plans import PlanKind, Waiting
from services.planner.configurations import Configurations
from services.planner.estimates import Estimated
from services.planner.policies.contract import Choice, Decision, Left, fault
from services.planner.problem import Solve, SolverFailed
from services.planner.registry import Registry
from services.planner.view import View


class Want(msgspec.Struct, frozen=True, kw_only=True):
    """Asks a policy which configurations it needs estimates of."""

    policy: str
    view: View


class Decide(msgspec.Struct, frozen=True, kw_only=True):
    """Asks a policy for its decision."""

    policy: str
    view: View
    wanted: Configurations
    estimates: Estimated


class Failed(msgspec.Struct, frozen=True, kw_only=True):
    """The policy raised, or decided what cannot be; the text says it."""

    reason: str
    crashed: bool = False
    """it took the process with it, or overran its time"""


def wanted_by(registry: Registry, step: Want) -> Configurations | Failed:
    try:
        return registry.find(step.policy).wants(step.view)
    except Exception as error:  # noqa: BLE001 - a policy is somebody else's code
        return Failed(reason=f"{step.policy} failed: {type(error).__name__}: {error}")


def decided_by(registry: Registry, step: Decide, solve: Solve) -> Decision | Failed:
    try:
        policy = registry.find(step.policy)
        decision = policy.decide(step.view, step.wanted, step.estimates, solve)
        msgspec.convert(msgspec.to_builtins(decision), Decision)  # what cannot be published is no decision
    except SolverFailed as error:
        return Failed(reason=f"the solver failed: {error}", crashed=True)
    except Exception as error:  # noqa: BLE001 - a policy is somebody else's code
        return Failed(reason=f"{step.policy} failed: {type(error).__name__}: {error}")
    broken = fault(step.view, decision)
    return decision if broken is None else Failed(reason=f"{step.policy} decided wrongly: {broken}")


def kept(view: View, note: str) -> Decision:
    """What to do without any estimate: a first plan keeps what runs, a fragment plan starts nothing."""
    free = {node.node_id: node.idle for node in view.nodes}
    choices = []
    for job in view.jobs if view.kind == PlanKind.FIRST else ():
        present = job.present
        if present is None or any(gpus > free.get(node, 0) for node, gpus in present.configuration.items()):
            continue
        for node, gpus in present.configuration.items():
            free[node] -= gpus
        choices.append(
            Choice(
                job_id=job.job_id,
                configuration=present.configuration,
                throughput=present.throughput,
                layer=present.layer,
            )
        )
    placed = {choice.job_id for choice in choices}
    left = (job.job_id for job in view.jobs if job.job_id not in placed)
    return Decision(
        choices=tuple(choices),
        left=tuple(Left(job_id=job_id, reason=Waiting.NO_ESTIMATE) for job_id in left),
        memory=view.memory,
        notes=(note,),
    )
