"""The integer programs that a scenario leads to, and how long the solver takes over each.

The programs are the planner's own: the services run on virtual time until the wanted rounds are over,
under the policy below, which is `hops` but for one thing. It notes the program of every round's first
plan and takes the greedy choice, so that getting there costs no solving.
"""

import contextlib
import threading
import time
from collections.abc import Iterator

import msgspec

from hopyard.lab.runs.trials import Solved, SolveRow, Solving
from loadgen.fault_injection import Stack
from loadgen.simulation import simulate, virtual_settings
from schemas.plans import PlanKind
from services.planner.policies.contract.configurations import Configurations
from services.planner.policies.contract.decision import Decision
from services.planner.policies.contract.estimates import Estimated
from services.planner.policies.contract.view import View
from services.planner.policies.hops.policy import Hops
from services.planner.solver import solve
from services.planner.solver.effort import Effort
from services.planner.solver.problem import Problem, Solution, Solve
from shared.domain.policy_names import written

OVERRUN_LIMIT_S = 600.0
"""how long we wait for an abandoned solve, which would slow the next measurement"""

noted: list[Problem] = []
"""a round each; a policy is built by name, so there is no other way to hand them on"""


class NotedHops(Hops):
    def decide(self, view: View, wanted: Configurations, estimates: Estimated, solve: Solve) -> Decision:
        def note(problem: Problem, effort: Effort) -> Solution:
            if view.kind == PlanKind.FIRST:
                noted.append(problem)
            return solve(problem, msgspec.structs.replace(effort, greedy=True))

        return super().decide(view, wanted, estimates, note)


class EnoughError(Exception):
    """The wanted rounds are over."""


def solved(trial: Solving) -> Solved:
    """Raises LookupError when the scenario was over before the wanted rounds were."""
    programs = _programs(trial)
    if len(programs) < trial.rounds:
        raise LookupError(f"{trial.scenario.name}: {len(programs)} programs instead of {trial.rounds}")
    return Solved(rows=tuple(row for program in programs for row in _timed(trial, program)))


def _programs(trial: Solving) -> list[Problem]:
    """The last programs before the end of the wanted rounds."""
    settings = virtual_settings(trial.scenario, trial.overrides)
    noted.clear()

    async def enough(stack: Stack) -> None:
        await stack.sleep(settings.round_s * (trial.warm_rounds + trial.rounds))
        raise EnoughError

    with contextlib.suppress(EnoughError):
        simulate(
            trial.scenario,
            policy=written(f"{__name__}:{NotedHops.__name__}", trial.options),
            seed=trial.seed,
            overrides={**trial.overrides, "round_s": settings.round_s},
            disturb=[enough],
        )
    return noted[-trial.rounds :]


def _timed(trial: Solving, program: Problem) -> Iterator[SolveRow]:
    backend = virtual_settings(trial.scenario, trial.overrides).solver
    for gap in trial.gaps:
        others = set(threading.enumerate())
        began = time.process_time()
        solution = solve(program, Effort(gap=gap, budget_s=trial.budget_s, backend=backend))
        cpu_s = time.process_time() - began
        for thread in set(threading.enumerate()) - others:  # of a solve abandoned at its deadline
            thread.join(OVERRUN_LIMIT_S)
        yield SolveRow(
            configurations=len(program),
            tolerated=gap,
            cpu_s=cpu_s,
            gap=solution.gap,
            stage=solution.stage.value,
        )
