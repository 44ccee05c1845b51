"""How the cost of a simulated run grows with its jobs: one scenario, more and more of its jobs."""

import resource
import sys
import time

import msgspec

from hopyard.failures import Failure
from hopyard.lab.bench.figures import Benchmark, Grid
from loadgen.scenarios import load_scenario
from loadgen.simulation import simulate_streaming
from loadgen.stack import Endless
from schemas.scenarios import ListedWorkload, PoissonWorkload, ScenarioFile, TraceWorkload, WorkloadSource
from shared.runtime.bus.contract import Record

COLUMNS = ("jobs", "CPU ms a job", "plans", "facts", "peak memory, MB")
BYTES = 1 if sys.platform == "darwin" else 1024
"""bytes in the unit of `ru_maxrss`"""


class Growth(msgspec.Struct, frozen=True):
    """What to run, the smallest number of jobs first."""

    scenario: ScenarioFile
    counts: tuple[int, ...]


def growth(asked: Growth) -> Benchmark:
    """Run each size. Events are not kept; the peak of memory is that of all runs so far.

    Raises Failure for a run without end, or without a job that the cluster takes.
    """
    simulate_streaming(load_scenario("tiny"), _pass_over)  # brings what is imported late
    rows = tuple(_row(with_jobs(asked.scenario, count)) for count in sorted(asked.counts))
    return Benchmark(
        name="simulation",
        conditions=f"scenario {asked.scenario.name}, one process; CPU with the reading of the workload",
        figures=(),
        grid=Grid(columns=COLUMNS, rows=rows),
    )


def with_jobs(scenario: ScenarioFile, count: int) -> ScenarioFile:
    """The scenario with `count` jobs: so many drawn, or the first of a list, or of a trace that is whole."""
    match scenario.workload:
        case PoissonWorkload() as drawn:
            workload: WorkloadSource = msgspec.structs.replace(drawn, count=count)
        case TraceWorkload(sample=None) as traced:
            workload = msgspec.structs.replace(traced, limit=count)
        case TraceWorkload() as sampled:
            workload = msgspec.structs.replace(sampled, sample=count)
        case ListedWorkload(jobs=jobs) as listed:
            first = sorted(jobs, key=lambda one: one.at_s)[:count]
            workload = msgspec.structs.replace(listed, jobs=first)
    return msgspec.structs.replace(scenario, workload=workload)


def _row(scenario: ScenarioFile) -> tuple[float, ...]:
    began = time.process_time()
    try:
        result = simulate_streaming(scenario, _pass_over)
    except Endless as error:
        raise Failure(f"{scenario.name}: {error}") from None
    took_s = time.process_time() - began
    jobs = result.jobs["submitted"]
    if not jobs:
        raise Failure(f"{scenario.name}: every job was refused: {result.refused[0].reason}")
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * BYTES / 1e6
    return jobs, round(took_s / jobs * 1e3, 2), result.plans.plans, result.events, round(peak_mb)


def _pass_over(record: Record) -> None:
    """A sink that ignores facts."""
