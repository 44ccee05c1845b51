"""How much time or work a solve may take, and when it may stop."""

import msgspec


class Effort(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one solve, and which solver to use."""

    gap: float = 0.01
    """tolerated relative gap"""
    budget_s: float = 10.0
    """seconds for solving: of the wall clock, or modelled ones (see `modelled`)"""
    node_limit: int | None = None
    """branch-and-bound nodes of one solve; None: no limit"""
    modelled: bool = False
    """whether seconds are computed from the work done, so that the answer does not depend on the machine"""
    greedy: bool = False
    """whether the greedy plan is taken without solving"""
    backend: str = "hopyard"
    """which solver, by its name in `solver.BACKENDS`"""
