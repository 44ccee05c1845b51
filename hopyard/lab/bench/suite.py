"""All measurements by name. One after the other, since they would disturb each other."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from hopyard.failures import Interrupted
from hopyard.lab.bench.figures import Benchmark
from hopyard.lab.bench.growth import Growth, growth
from hopyard.lab.bench.planning.classes import PATIENCE, QUICK, Classes, classes
from hopyard.lab.bench.planning.policies import policies
from hopyard.lab.bench.planning.solver import OURS, Trials, solver
from hopyard.lab.bench.simulation import TIMES, simulation
from hopyard.lab.bench.stack import access, dispatch, latency, restart, submissions
from hopyard.local.processes import Say
from hopyard.local.signals import run_until_stopped
from hopyard.local.torch_python import torch_python


class BenchRun(msgspec.Struct, frozen=True):
    data: Path
    """an empty folder"""
    scale: float
    """factor on the usual numbers of jobs and facts"""
    say: Say
    trials: Trials = Trials()
    """options for the solver; sizes and instances for the policies too"""
    grown: Growth | None = None
    """a simulation by number of jobs, in place of the usual runs"""
    python: Path | None = None
    """a Python with torch; None: the first that is found"""
    times: int = TIMES
    """runs of each simulation, of which the cheapest counts; `access` has eight slices for each"""

    def scaled(self, usual: int) -> int:
        return max(round(usual * self.scale), 1)


Measurement = Callable[[BenchRun], Benchmark | None]
"""runs one benchmark; returns None if a signal ended it"""


def _latency(run: BenchRun) -> Benchmark | None:
    return run_until_stopped(latency.latency(run.data, run.say, run.scaled(latency.JOBS)))


def _submissions(run: BenchRun) -> Benchmark | None:
    return run_until_stopped(submissions.submissions(run.data, run.scaled(submissions.JOBS)))


def _dispatch(run: BenchRun) -> Benchmark | None:
    counts = run.scaled(dispatch.FACTS), run.scaled(dispatch.ONE_BY_ONE)
    return run_until_stopped(dispatch.dispatch(run.data, *counts))


def _access(run: BenchRun) -> Benchmark | None:
    return run_until_stopped(access.access(run.data, run.say, scale=run.scale, times=run.times))


def _restart(run: BenchRun) -> Benchmark | None:
    return run_until_stopped(restart.restart(run.data, run.scaled(restart.JOBS)))


def _simulation(run: BenchRun) -> Benchmark | None:
    return simulation(run.times) if run.grown is None else growth(run.grown)


def _solver(run: BenchRun) -> Benchmark | None:
    trials = run.trials
    if not trials.classes:
        return solver(run.data, run.say, trials)
    asked = Classes(
        names=trials.classes,
        instances=1 if trials.quick else trials.instances,
        gap=trials.gap,
        limit_s=trials.deadline_s,
        backends=tuple(name for name in trials.backends if name != OURS),
        patience=QUICK if trials.quick else PATIENCE,
    )
    return classes(run.data, run.say, asked)


def _policies(run: BenchRun) -> Benchmark | None:
    return run_until_stopped(policies(run.say, run.trials.sizes, run.trials.instances))


def _page(run: BenchRun) -> Benchmark | None:
    from hopyard.lab.bench.page.opening import JOBS, page  # noqa: PLC0415 - brings what drives a browser

    return run_until_stopped(page(run.data, run.scaled(JOBS)))


def _switching(run: BenchRun) -> Benchmark | None:
    from hopyard.lab.bench.switching import switching  # noqa: PLC0415 - brings the runner of processes

    found = torch_python(run.python)
    return run_until_stopped(switching(run.data, found.python, run.say))


BENCHMARKS: Mapping[str, Measurement] = {
    "latency": _latency,
    "submissions": _submissions,
    "dispatch": _dispatch,
    "access": _access,
    "restart": _restart,
    "simulation": _simulation,
    "solver": _solver,
    "policies": _policies,
    "page": _page,
    "switching": _switching,
}


def _browser(_: BenchRun) -> None:
    from hopyard.lab.bench.page.chromium import PROGRAMS, found  # noqa: PLC0415 - brings what drives a browser

    for program in PROGRAMS:
        found(program)


NEEDS: Mapping[str, Callable[[BenchRun], object]] = {
    "page": _browser,
    "switching": lambda run: torch_python(run.python),
}
"""what looks for the programs that a benchmark takes beside hopyard; raises Failure where they are not"""


def check(names: Iterable[str], run: BenchRun) -> None:
    """Raises Failure for a benchmark that could not run, before the others have measured for minutes."""
    for name in names:
        if name in NEEDS:
            NEEDS[name](run)


def measured(names: Iterable[str], run: BenchRun) -> Iterator[Benchmark]:
    """Raises Failure when a part does not work, Interrupted."""
    for name in names:
        yield _timed(name, msgspec.structs.replace(run, data=run.data / name))


def _timed(name: str, run: BenchRun) -> Benchmark:
    run.say(f"{name} …")
    run.data.mkdir()
    began = time.monotonic()
    measured = BENCHMARKS[name](run)
    if measured is None:
        raise Interrupted("interrupted")
    return msgspec.structs.replace(measured, wall_s=time.monotonic() - began)
