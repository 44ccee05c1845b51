"""What Gavel's max-min fairness levels, computed from the shares that come of it."""

from services.planner.policies.gavel.shares import Demand, proportional, throughput
from shared.domain.arrays import Floats


def normalised(demand: Demand, share: Floats) -> Floats:
    """s·thr / (w·thr^prop), by job (m)."""
    fair = demand.weight * throughput(demand, proportional(demand))
    return demand.gang * throughput(demand, share) / fair
