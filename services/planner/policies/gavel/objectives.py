"""Gavel's objectives by name. Pure."""

from collections.abc import Callable
from typing import Literal

import msgspec

from services.planner.policies.gavel.memory import Now
from services.planner.policies.gavel.shares import (
    Shares,
    evened,
    fifo,
    finish_time,
    makespan,
    max_min,
    max_sum,
)
from services.planner.solver.budget import Budget
from shared.domain.arrays import Floats

Objective = Literal["max-min", "finish-time", "makespan", "throughput", "fifo"]


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """The data that an objective is computed from."""

    now: Now
    isolated_s: Floats
    """seconds that each job's past work would have taken on 1/m of the cluster (m)"""
    budget: Budget
    authors: bool
    """with the quirks of the authors' code"""


OBJECTIVES: dict[Objective, Callable[[Case], Shares]] = {
    "max-min": lambda case: max_min(case.now.demand, case.budget, fill=not case.authors),
    "finish-time": lambda case: finish_time(
        case.now.demand, case.now.left, case.now.elapsed, case.isolated_s, case.budget, fill=not case.authors
    ),
    "makespan": lambda case: makespan(case.now.demand, case.now.left, case.budget, fill=not case.authors),
    "throughput": lambda case: max_sum(case.now.demand, case.budget),
    "fifo": lambda case: fifo(case.now.demand, authors=case.authors),
}


def computed(objective: Objective, case: Case, *, blind: bool) -> Shares:
    """The shares of time by an objective. `blind`: the speeds of the demand do not distinguish types."""
    shares = OBJECTIVES[objective](case)
    if not blind or objective == "fifo":
        return shares
    return msgspec.structs.replace(shares, share=evened(case.now.demand, shares.share))
