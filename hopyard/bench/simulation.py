"""How long a simulated run takes: hours of a cluster, every service in it, in one process."""

from hopyard.bench.figures import Benchmark, count, rate, seconds
from loadgen.scenarios import load_scenario
from loadgen.simulation import simulate

SCENARIO = "hops-64"


def simulation(scenario: str = SCENARIO) -> Benchmark:
    result = simulate(load_scenario(scenario)).result
    makespan_s = result.metrics["makespan_s"] or 0.0
    return Benchmark(
        name="simulation",
        conditions=f"scenario {scenario}, policy {result.policy}, seed {result.seed}, one process",
        figures=(
            seconds("wall time", result.wall_s),
            seconds("simulated", makespan_s),
            rate("simulated seconds", makespan_s / result.wall_s),
            count("plans", result.plans.plans),
            count("facts", result.events),
        ),
    )
