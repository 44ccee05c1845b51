"""Policies whose solving is slow, wrong, or gone, now and then: by the round they plan."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import msgspec

from schemas.plans import PlanKind
from services.planner.policies.classical.fifo import FifoSkipping
from services.planner.policies.contract.configurations import Configurations
from services.planner.policies.contract.decision import Decision, Trigger
from services.planner.policies.contract.estimates import Estimated
from services.planner.policies.contract.view import View
from services.planner.policies.kit.ordered import EVENTS
from services.planner.solver.problem import Solve, SolverFailed

SLOW_S = 45.0


class Sound(FifoSkipping):
    """First come, first served, at every event."""

    calls: ClassVar[Mapping[Trigger, PlanKind]] = EVENTS


class Raises(Sound):
    """Decides nothing: it raises."""

    def decide(self, *_: object) -> Decision:
        raise ZeroDivisionError("a policy at fault")


class Overbooks(Sound):
    """Gives every job its place twice."""

    def decide(
        self, view: View, wanted: Configurations, estimates: Estimated, solve: Solve | None = None
    ) -> Decision:
        made = super().decide(view, wanted, estimates, solve)
        return msgspec.structs.replace(made, choices=(*made.choices, *made.choices))


class Gone(Sound):
    """Its solver is gone, so that it has to do without."""

    def decide(
        self, view: View, wanted: Configurations, estimates: Estimated, solve: Solve | None = None
    ) -> Decision:
        if not view.effort.greedy:
            raise SolverFailed("the process ended with signal SIGKILL")
        return super().decide(view, wanted, estimates, solve)


class Slow(Sound):
    """Takes most of a minute for a plan, and much happens meanwhile."""

    def decide(
        self, view: View, wanted: Configurations, estimates: Estimated, solve: Solve | None = None
    ) -> Decision:
        made = super().decide(view, wanted, estimates, solve)
        return msgspec.structs.replace(made, solve_s=SLOW_S)


ERRING: Sequence[str] = tuple(
    f"tests.chaos.solvers:{one.__name__}" for one in (Raises, Overbooks, Gone, Slow)
)
