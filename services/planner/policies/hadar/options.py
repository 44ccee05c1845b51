"""Options of Hadar. What the paper leaves open is an option; `docs/policies/hadar.md` says why."""

from typing import Annotated, Literal

from msgspec import Meta

from services.planner.policies.hadar.jobs import Stake
from services.planner.policies.hadar.offers import Walk
from services.planner.policies.hadar.prices import PriceTop
from services.planner.policies.kit.completion import Utility
from services.planner.policies.kit.rigid import RigidOptions


class HadarOptions(RigidOptions, frozen=True, kw_only=True):
    utility: Utility = "normalised"
    """what a job completion time d is worth: the job's time alone over d; `raw`: its samples over d, as
    printed; `inverse`: 1/d"""
    stake: Stake = "total"
    """what a round decides about: a job's whole utility; or what it loses by one round's `delay`"""
    requeue: Literal["all", "waiting"] = "all"
    """whose places are decided anew in a round; with `waiting`, as printed, running jobs stay"""
    order: Literal["payoff", "arrival"] = "payoff"
    """the order of the queue: by payoff a GPU on the GPUs that are free, or by submission"""
    branches: Annotated[int, Meta(ge=0, le=10_000)] = 0
    """places of a job that the dynamic program tries in one state; 1: the best, as printed; 0: all"""
    beam: Annotated[int, Meta(ge=0, le=1_000_000)] = 64
    """states that the dynamic program keeps of a turn; 0: all, in time and memory without bound"""
    walk: Walk = "fastest"
    """how a gang fills nodes of speed s or more: the fastest first, as printed; or those of speed s first"""
    restart_s: Annotated[float, Meta(ge=0, le=1e6)] = 10.0
    """δ: seconds that a new allocation costs a job"""
    cost_over: Literal["round", "finish"] = "round"
    """a place is paid for one round, or for all to the job's end"""
    price_top: PriceTop = "job"
    """the price of the last GPU of a node: the largest value of a job, or that value a GPU of its gang"""
    network_price: Annotated[float, Meta(ge=0, le=1e9)] = 0.0
    """of each node of a gang but the first, in utility; what spreading does to the rate counts anyway"""
    fill: bool = False
    """GPUs left idle go to waiting jobs by payoff, even where that is none"""
