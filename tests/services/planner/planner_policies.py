"""Policies that misbehave, found as `planner_policies:<name>`."""

import math
import os
import sys
import time
from collections.abc import Mapping
from typing import ClassVar

import msgspec
import numpy as np

from schemas.plans import PlanKind
from services.planner.policies.contract.configurations import Configurations
from services.planner.policies.contract.decision import Decision, Trigger
from services.planner.policies.contract.estimates import Estimated
from services.planner.policies.contract.view import View
from services.planner.policies.hops.policy import Hops, HopsOptions
from services.planner.solver.effort import Effort
from services.planner.solver.problem import Problem, Solution, Solve


class Raises(Hops):
    def wants(self, view: View) -> Configurations:
        raise RuntimeError(f"out of ideas for {len(view.jobs)} jobs")


class Greedy(Hops):
    """Wants the same GPUs twice."""

    def decide(self, view: View, wanted: Configurations, estimates: Estimated, solve: Solve) -> Decision:
        decision = super().decide(view, wanted, estimates, solve)
        return msgspec.structs.replace(decision, choices=decision.choices * 2)


class Forgets(Hops):
    """Mentions only the first job."""

    def decide(self, view: View, wanted: Configurations, estimates: Estimated, solve: Solve) -> Decision:
        decision = super().decide(view, wanted, estimates, solve)
        return msgspec.structs.replace(decision, choices=decision.choices[:1], left=())


class Numbers(Hops):
    """Gives numbers of a kind that no message can hold."""

    def decide(self, view: View, wanted: Configurations, estimates: Estimated, solve: Solve) -> Decision:
        decision = super().decide(view, wanted, estimates, solve)
        return msgspec.structs.replace(decision, gap=np.float32(0.5))


class WithoutRounds(Hops):
    calls = dict.fromkeys((Trigger.ARRIVAL, Trigger.FREED, Trigger.NODE), PlanKind.FRAGMENT)


class AtOnceAgain(Hops):
    """Starts nothing, and asks for the next plan as soon as one can ask."""

    def decide(self, view: View, wanted: Configurations, estimates: Estimated, solve: Solve) -> Decision:  # noqa: ARG002 - the contract's
        return Decision(choices=(), again_at=math.nextafter(view.at, math.inf))


class Crashes(Hops):
    """Takes the process with it, as a broken solver would; not when it is not asked to solve."""

    def decide(self, view: View, wanted: Configurations, estimates: Estimated, solve: Solve) -> Decision:
        if not view.effort.greedy:
            os._exit(3)
        return super().decide(view, wanted, estimates, solve)


class Hangs(Hops):
    def decide(self, view: View, wanted: Configurations, estimates: Estimated, solve: Solve) -> Decision:
        if not view.effort.greedy:
            time.sleep(60.0)
        return super().decide(view, wanted, estimates, solve)


class RaisesWhenBuilt(Hops):
    def __init__(self, options: HopsOptions) -> None:  # noqa: ARG002 - the contract's
        raise RuntimeError("no licence")


class Exits(Hops):
    def __init__(self, options: HopsOptions) -> None:  # noqa: ARG002 - the contract's
        sys.exit(3)


class OddCalls(Hops):
    calls = {"whenever": "first"}  # type: ignore[dict-item]


class WithoutDecide:
    calls: ClassVar[Mapping[Trigger, PlanKind]] = Hops.calls

    def wants(self, view: View) -> Configurations:
        return Hops(HopsOptions()).wants(view)


def no_policy() -> object:
    return object()


class Counts:
    """Remembers how often it decided."""

    calls: ClassVar[Mapping[Trigger, PlanKind]] = {Trigger.ROUND: PlanKind.FIRST}

    def __init__(self) -> None:
        self._inner = Hops(HopsOptions())

    def wants(self, view: View) -> Configurations:
        return self._inner.wants(view)

    def decide(self, view: View, wanted: Configurations, estimates: Estimated, solve: Solve) -> Decision:
        decision = self._inner.decide(view, wanted, estimates, solve)
        times = int(view.memory or b"0") + 1
        return msgspec.structs.replace(decision, memory=str(times).encode())


class Continues(Counts):
    """Notes whether it decides from the very view that it was asked about first."""

    def wants(self, view: View) -> Configurations:
        self._seen = view
        return super().wants(view)

    def decide(self, view: View, wanted: Configurations, estimates: Estimated, solve: Solve) -> Decision:
        decision = super().decide(view, wanted, estimates, solve)
        return msgspec.structs.replace(decision, notes=(str(view is self._seen),))


class Slow(Hops):
    """Reckons for a while before it solves, three times, the last with a second at most."""

    TAKES_S = 0.1

    def decide(self, view: View, wanted: Configurations, estimates: Estimated, solve: Solve) -> Decision:
        until = time.perf_counter() + self.TAKES_S
        while time.perf_counter() < until:
            pass

        def thrice(problem: Problem, effort: Effort) -> Solution:
            solve(problem, effort)
            solve(problem, effort)
            return solve(problem, msgspec.structs.replace(effort, budget_s=1.0))

        return super().decide(view, wanted, estimates, thrice)
