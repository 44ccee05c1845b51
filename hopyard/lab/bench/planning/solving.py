"""One solve in a process of its own: its result, its progress over time, its peak memory.

`python -m hopyard.lab.bench.planning.solving FILE BACKEND GAP LIMIT_S` solves what `hopyard solve FILE`
solves, prints an `Attempt` as JSON and ends at once, with whatever the solver has left running. Seconds are
of CPU, of all threads and without imports: those of the wall clock say little where others share the cores.

Other back ends are not spared a search by our greedy plan, as they are in `search.drive`: they are given it
to begin with, and prove what they find.
"""

import contextlib
import os
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec

from schemas.base import Message
from schemas.plans import Stage
from services.planner.solver import load
from services.planner.solver.budget import Budget
from services.planner.solver.effort import Effort
from services.planner.solver.files import read_problem
from services.planner.solver.greedy import beginning
from services.planner.solver.problem import Problem, Solution
from services.planner.solver.search import Search, drive, finished

MEMORY_AT_MOST = 8 * 1024**3
"""bytes of address space; a solver that needs more fails, and not the machine"""
SLOWEST = 20.0
"""a solve may take this many times its CPU seconds by the clock, on a busy machine"""
LOADING_S = 60.0
"""seconds of the clock besides the solve: start of the process, imports, reading"""
WATCHED_S = 0.005
GRACE_S = 0.5
"""seconds after the limit; a back end that goes on is abandoned, with what it has reported until then"""
KIB = 1024
OURS = "hopyard"


class Step(Message, frozen=True, kw_only=True):
    """A step of progress: what was known from some time on."""

    seconds: float
    objective: float
    bound: float


class Attempt(Message, frozen=True, kw_only=True):
    objective: float
    bound: float
    gap: float
    seconds: float
    stage: Stage
    configurations: int
    peak_bytes: int
    """peak memory of the process after reading the problem, with the problem and Python"""
    steps: tuple[Step, ...]
    """steps of progress in order; the last is the result"""

    def objective_at(self, seconds: float) -> float:
        """The best objective known after `seconds`; 0 before the first plan."""
        return max((step.objective for step in self.steps if step.seconds <= seconds), default=0.0)


def run_attempt(file: Path, backend: str, gap: float, limit_s: float) -> Attempt | None:
    """The attempt; None if the solve failed, mostly for want of memory."""
    words = [sys.executable, "-P", "-m", __name__, str(file), backend, str(gap), str(limit_s)]
    longest_s = SLOWEST * limit_s + LOADING_S
    try:
        ran = subprocess.run(words, capture_output=True, check=True, timeout=longest_s)  # noqa: S603 - ourselves
        return msgspec.json.decode(ran.stdout, type=Attempt)
    except (subprocess.SubprocessError, msgspec.DecodeError):
        return None


class _Watch:
    """Records the progress of a search, and ends it at its limit of CPU seconds."""

    def __init__(self, problem: Problem, backend: str, limit_s: float) -> None:
        self._problem, self._backend, self._limit_s = problem, backend, limit_s
        self._steps: list[Step] = []
        self._best: Solution | None = None
        self._began = time.process_time()

    def run(self, search: Search) -> None:
        self.note(search.best)
        search.on_better(self.note)
        threading.Thread(target=self._limit, args=(search,), daemon=True).start()
        load(self._backend).run(search)

    def note(self, best: Solution) -> None:
        self._best = best
        self._steps.append(Step(seconds=self._spent_s(), objective=best.objective, bound=best.bound))

    def end(self, solution: Solution) -> None:
        """Print the attempt and end the process."""
        self.note(solution)
        attempt = Attempt(
            objective=solution.objective,
            bound=solution.bound,
            gap=solution.gap,
            seconds=self._steps[-1].seconds,
            stage=solution.stage,
            configurations=len(self._problem),
            peak_bytes=_peak_bytes(),
            steps=tuple(self._steps),
        )
        sys.stdout.buffer.write(msgspec.json.encode(attempt))
        sys.stdout.flush()
        os._exit(0)

    def _limit(self, search: Search) -> None:
        while self._spent_s() < self._limit_s:
            time.sleep(WATCHED_S)
        search.stop()
        while self._spent_s() < self._limit_s + GRACE_S:
            time.sleep(WATCHED_S)
        self.end(search.best)

    def _spent_s(self) -> float:
        return time.process_time() - self._began


def main(file: str, backend: str, gap: str, limit_s: str) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_AT_MOST, MEMORY_AT_MOST))
    problem = read_problem(Path(file)).problem
    load(backend)
    _forget_peak()
    effort = Effort(gap=float(gap), budget_s=SLOWEST * float(limit_s), backend=backend)
    watch = _Watch(problem, backend, float(limit_s))
    watch.end(drive(problem, effort, watch.run) if backend == OURS else _alone(problem, effort, watch))


def _alone(problem: Problem, effort: Effort, watch: "_Watch") -> Solution:
    """A back end's own solution, even if the initial plan is already good enough."""
    search = Search(problem, effort, beginning(problem), Budget(seconds=effort.budget_s, modelled=False))
    watch.run(search)
    return finished(search.best, effort, 0.0)


def _forget_peak() -> None:
    """Have Linux count `VmHWM` from here on; elsewhere the reading stays in the figure."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _peak_bytes() -> int:
    """Linux lets a process begin with the peak of the one that started it, in `getrusage` but not here."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * KIB
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB


if __name__ == "__main__":
    main(*sys.argv[1:])
