"""How hard a solver may try."""

import msgspec


class Effort(msgspec.Struct, frozen=True, kw_only=True):
    """The effort of one plan: the tolerated gap, the seconds, the solver."""

    gap: float = 0.01
    """tolerated relative gap"""
    budget_s: float = 10.0
    """seconds for solving: of the wall clock, or modelled ones (see `modelled`)"""
    node_limit: int | None = None
    """branch-and-bound nodes of one solve; None: no limit"""
    modelled: bool = False
    """seconds are computed from the work done, so that the answer does not depend on the machine"""
    greedy: bool = False
    """do not solve at all"""
    backend: str = "hopyard"
    """which solver, by its name in `solver.BACKENDS`"""
