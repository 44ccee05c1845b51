"""The cost of a simulated run, every service of a cluster in one process: CPU seconds without imports."""

import time
from collections.abc import Iterator, Sequence
from itertools import chain

import msgspec

from hopyard.lab.bench.figures import Benchmark, Reading, count, rate, seconds
from loadgen.scenarios import load_scenario
from loadgen.simulation import simulate
from schemas.results import RunResult
from services.planner.policies.contract.configurations import Configurations
from services.planner.policies.contract.decision import Decision
from services.planner.policies.contract.estimates import Estimated
from services.planner.policies.contract.view import View
from services.planner.policies.hops.policy import Hops
from services.planner.solver.effort import Effort
from services.planner.solver.problem import Problem, Solution, Solve

QUEUE = "fifo-skipping"
"""a policy without a solver, so that only the engine and the services are measured"""
PROGRAM = "hops"
RUNS = (("hops-64", QUEUE), ("hops-512", QUEUE), ("hops-64", PROGRAM), ("hops-512", PROGRAM))
"""scenario and policy"""
TIMES = 3
"""runs of each; other work on the machine only adds to a run, so the cheapest counts"""

solving_s: list[float] = []
"""CPU seconds of every solve of `TimedHops`"""


class TimedHops(Hops):
    """`Hops`, noting the CPU seconds of its solves. `__module__` is that of Hops: others are checked."""

    __module__ = Hops.__module__

    def decide(self, view: View, wanted: Configurations, estimates: Estimated, solve: Solve) -> Decision:
        def timed(problem: Problem, effort: Effort) -> Solution:
            began = time.process_time()
            solution = solve(problem, effort)
            solving_s.append(time.process_time() - began)
            return solution

        return super().decide(view, wanted, estimates, timed)


class SimulatedRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a scenario, CPU seconds."""

    result: RunResult
    cpu_s: float
    solver_s: float


def simulation(times: int = TIMES, runs: Sequence[tuple[str, str]] = RUNS) -> Benchmark:
    """Run each of `runs` `times` times; the cheapest counts."""
    simulate(load_scenario("tiny"))  # brings what is imported late
    cheapest = [(*one, min((_run(*one) for _ in range(times)), key=lambda run: run.cpu_s)) for one in runs]
    return Benchmark(
        name="simulation",
        conditions=f"CPU seconds of one process, the least of {times}; seed {cheapest[0][2].result.seed}",
        figures=tuple(chain.from_iterable(_figures(*one) for one in cheapest)),
    )


def _run(scenario: str, policy: str) -> SimulatedRun:
    solving_s.clear()
    name = f"{__name__}:{TimedHops.__name__}" if policy == PROGRAM else policy
    began = time.process_time()
    result = simulate(load_scenario(scenario), policy=name).result
    return SimulatedRun(result=result, cpu_s=time.process_time() - began, solver_s=sum(solving_s))


def _figures(scenario: str, policy: str, run: SimulatedRun) -> Iterator[Reading]:
    result, name = run.result, f"{policy} on {scenario}"
    yield seconds(f"{name}: CPU", run.cpu_s)
    if run.solver_s:
        yield seconds(f"{name}: without the solver", run.cpu_s - run.solver_s)
    yield seconds(f"{name}: CPU a job", run.cpu_s / result.jobs["submitted"])
    yield count(f"{name}: plans", result.plans.plans)
    yield count(f"{name}: facts", result.events)
    yield rate(f"{name}: simulated seconds", (result.metrics["makespan_s"] or 0.0) / run.cpu_s)
