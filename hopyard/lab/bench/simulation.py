"""What a simulated run costs: every service of a cluster in one process. CPU seconds, imports left out."""

import time

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

SCENARIO = "hops-64"
LARGER = "hops-512-three"
QUEUE = "fifo-skipping"
"""a policy that solves nothing: what is left is the engine and the services"""

solving_s: list[float] = []
"""CPU seconds of every solve of `TimedHops`"""


class TimedHops(Hops):
    """Looks on as its programs are solved."""

    def decide(self, view: View, wanted: Configurations, estimates: Estimated, solve: Solve) -> Decision:
        def timed(problem: Problem, effort: Effort) -> Solution:
            began = time.process_time()
            solution = solve(problem, effort)
            solving_s.append(time.process_time() - began)
            return solution

        return super().decide(view, wanted, estimates, timed)


def simulation(scenario: str = SCENARIO) -> Benchmark:
    simulate(load_scenario("tiny"))  # brings what is imported late
    queue_result, queue, queue_s = _run(scenario, QUEUE)
    larger, _, larger_s = _run(LARGER, QUEUE)
    solving_s.clear()
    result, hops, hops_s = _run(scenario, f"{__name__}:{TimedHops.__name__}")
    makespan_s = result.metrics["makespan_s"] or 0.0
    return Benchmark(
        name="simulation",
        conditions=f"scenario {scenario}, seed {result.seed}, one process; CPU seconds unless said otherwise",
        figures=(
            *queue,
            seconds(f"{QUEUE}: a job", queue_s / queue_result.jobs["submitted"]),
            seconds(f"{QUEUE}, {LARGER}: a job", larger_s / larger.jobs["submitted"]),
            *hops,
            seconds("hops: without the solver", hops_s - sum(solving_s)),
            seconds("wall time", result.wall_s),
            seconds("simulated", makespan_s),
            rate("simulated seconds", makespan_s / result.wall_s),
        ),
    )


def _run(scenario: str, policy: str) -> tuple[RunResult, tuple[Reading, ...], float]:
    name = "hops" if ":" in policy else policy
    began = time.process_time()
    result = simulate(load_scenario(scenario), policy=policy).result
    took_s = time.process_time() - began
    figures = (
        seconds(f"{name}: whole", took_s),
        count(f"{name}: plans", result.plans.plans),
        count(f"{name}: facts", result.events),
    )
    return result, figures, took_s
