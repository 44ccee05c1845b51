"""All measurements by name. One after the other, since they would disturb each other."""

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import msgspec

from hopyard.bench import dispatch, latency, restart, submissions
from hopyard.bench.figures import Benchmark, Report
from hopyard.bench.machine import machine_facts
from hopyard.bench.policies import policies
from hopyard.bench.simulation import simulation
from hopyard.bench.solver import Trials, solver
from hopyard.failures import Interrupted
from hopyard.processes import Say
from hopyard.signals import run_until_stopped


class Run(msgspec.Struct, frozen=True):
    data: Path
    """an empty folder"""
    scale: float
    """how many jobs and facts, in multiples of the usual number"""
    say: Say
    trials: Trials = Trials()
    """of the solver, and sizes and instances of the policies"""

    def scaled(self, usual: int) -> int:
        return max(round(usual * self.scale), 1)


Measure = Callable[[Run], Benchmark | None]
"""None: a signal ended it"""


def _latency(run: Run) -> Benchmark | None:
    return run_until_stopped(latency.latency(run.data, run.say, run.scaled(latency.JOBS)))


def _submissions(run: Run) -> Benchmark | None:
    return run_until_stopped(submissions.submissions(run.data, run.scaled(submissions.JOBS)))


def _dispatch(run: Run) -> Benchmark | None:
    counts = run.scaled(dispatch.FACTS), run.scaled(dispatch.ONE_BY_ONE)
    return run_until_stopped(dispatch.dispatch(run.data, *counts))


def _restart(run: Run) -> Benchmark | None:
    return run_until_stopped(restart.restart(run.data, run.scaled(restart.JOBS)))


def _simulation(_: Run) -> Benchmark | None:
    return simulation()


def _solver(run: Run) -> Benchmark | None:
    return solver(run.data, run.say, run.trials)


def _policies(run: Run) -> Benchmark | None:
    return run_until_stopped(policies(run.say, run.trials.sizes, run.trials.instances))


BENCHMARKS: Mapping[str, Measure] = {
    "latency": _latency,
    "submissions": _submissions,
    "dispatch": _dispatch,
    "restart": _restart,
    "simulation": _simulation,
    "solver": _solver,
    "policies": _policies,
}


def report(
    names: Iterable[str],
    versions: dict[str, str],
    data: Path,
    scale: float,
    say: Say,
    *,
    trials: Trials | None = None,
) -> Report:
    """Raises Failure when a part does not work, Interrupted."""
    data.mkdir(parents=True, exist_ok=True)
    machine = machine_facts(data)
    done = [_timed(name, Run(data / name, scale, say, trials or Trials())) for name in names]
    return Report(machine=machine, versions=versions, benchmarks=tuple(done))


def _timed(name: str, run: Run) -> Benchmark:
    run.say(f"{name} …")
    run.data.mkdir()
    began = time.monotonic()
    measured = BENCHMARKS[name](run)
    if measured is None:
        raise Interrupted("interrupted")
    return msgspec.structs.replace(measured, wall_s=time.monotonic() - began)
