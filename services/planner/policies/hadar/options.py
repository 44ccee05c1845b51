"""Options of Hadar, mostly for what the paper leaves open (`docs/policies/hadar.md`)."""

from typing import Annotated, Literal

from msgspec import Meta

from services.planner.policies.hadar.jobs import Stake
from services.planner.policies.hadar.offers import Walk
from services.planner.policies.hadar.prices import PriceTop
from services.planner.policies.kit.completion import Utility
from services.planner.policies.kit.rigid import RigidOptions


class HadarOptions(RigidOptions, frozen=True, kw_only=True):
    utility: Utility = "normalised"
    """what a job completion time d is worth: `normalised`, the job's time alone over d; `raw`, its samples
    over d, as printed; `inverse`, 1/d"""
    stake: Stake = "total"
    """what a job loses if a round leaves it out: its `total` utility; or only what a `delay` of one round
    costs it"""
    requeue: Literal["all", "waiting"] = "all"
    """which jobs are placed from scratch in a round: `all`; or only those `waiting`, while running jobs stay,
    as printed"""
    order: Literal["payoff", "arrival"] = "payoff"
    """the order of the queue: by payoff for each GPU, on the GPUs that are free; or by submission"""
    branches: Annotated[int, Meta(ge=0, le=10_000)] = 0
    """places of a job that the dynamic program tries in one state; 1: the best, as printed; 0: all"""
    beam: Annotated[int, Meta(ge=0, le=1_000_000)] = 64
    """states that the dynamic program keeps after each job; 0: all, with no limit on time and memory"""
    walk: Walk = "fastest"
    """how a gang fills nodes of speed s or more: the `fastest` first, as printed; or those of speed s first,
    the `bottleneck`"""
    restart_s: Annotated[float, Meta(ge=0, le=1e6)] = 10.0
    """δ: seconds that a new allocation costs a job"""
    cost_over: Literal["round", "finish"] = "round"
    """for how many rounds a job pays for its GPUs: for one `round`, or for all to its end (`finish`)"""
    price_top: PriceTop = "job"
    """the price of a GPU on a node whose GPUs are all in use: the largest value of a `job`, or the largest
    value of a job divided by its GPUs (`gang`)"""
    network_price: Annotated[float, Meta(ge=0, le=1e9)] = 0.0
    """the price of each node of a gang but the first, in utility; that a spread gang is slower counts in any
    case"""
    fill: bool = False
    """GPUs that the program leaves idle go to waiting jobs by payoff, even if their payoff is not above 0"""
