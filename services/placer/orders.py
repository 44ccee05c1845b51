"""Facts about a placement that both folds and `converge` publish."""

from schemas.events import PlacementRefused, StopOrdered
from schemas.ids import JobId, NodeId, PlacementId, PlanId
from schemas.plans import Cause
from services.placer.state import Placed


def stop_order(placed: Placed, node_id: NodeId, at: float) -> StopOrdered:
    return StopOrdered(at=at, node_id=node_id, placement_id=placed.placement_id, job_id=placed.job_id)


def refused(
    placed: Placed, reason: str, at: float, cause: Cause | None = None, *, late: bool = False
) -> PlacementRefused:
    return PlacementRefused(
        at=at,
        placement_id=placed.placement_id,
        plan_id=placed.plan_id,
        job_id=placed.job_id,
        reason=reason,
        cause=cause,
        late=late,
    )


def refusal(
    placement_id: PlacementId, plan_id: PlanId, job_id: JobId, reason: str, at: float
) -> PlacementRefused:
    """The refusal of a placement that has no record yet."""
    return PlacementRefused(at=at, placement_id=placement_id, plan_id=plan_id, job_id=job_id, reason=reason)
