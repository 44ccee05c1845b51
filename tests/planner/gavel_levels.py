"""What Gavel's max-min fairness levels, reckoned from the shares that come of it."""

from services.planner.programs.gavel_shares import Demand, proportional, throughput
from services.planner.programs.linear import Floats


def normalised(demand: Demand, share: Floats) -> Floats:
    """s·thr / (w·thr^prop), by job (m)."""
    fair = demand.weight * throughput(demand, proportional(demand))
    return demand.gang * throughput(demand, share) / fair
