"""The decision without any estimate. Pure."""

from schemas.plans import PlanKind, Waiting
from services.planner.policies.contract.decision import Decision, Left
from services.planner.policies.contract.view import View
from services.planner.policies.kit.keeping import kept


def keep_running(view: View, note: str) -> Decision:
    """A first plan keeps running jobs where they are; nothing starts. `note`: why, for the plan."""
    choices, _ = kept(view, everything=True) if view.kind == PlanKind.FIRST else ((), {})
    placed = {choice.job_id for choice in choices}
    left = (job.job_id for job in view.jobs if job.job_id not in placed)
    return Decision(
        choices=choices,
        left=tuple(Left(job_id=job_id, reason=Waiting.NO_ESTIMATE) for job_id in left),
        memory=view.memory,
        notes=(note,),
    )
