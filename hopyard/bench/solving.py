"""One solve in a process of its own: what it came to, how long it took, how much memory at most.

`python -m hopyard.bench.solving FILE BACKEND GAP DEADLINE_S` prints a `Trial` as JSON and ends at once, with
whatever the solver has left running.
"""

import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import numpy as np

from schemas.base import Message
from schemas.plans import Stage
from services.planner.problem import Problem
from services.planner.solver import load, solve
from services.planner.view import Effort

MEMORY_AT_MOST = 8 * 1024**3
"""bytes of address space; a solver that needs more fails, and not the machine"""
LOADING_S = 60.0
"""beside the solve: start of the process, imports, reading"""
KIB = 1024
COLUMNS = ("capacity", "weight", "job", "start", "node", "gpus", "gain")


class Trial(Message, frozen=True, kw_only=True):
    objective: float
    bound: float
    gap: float
    seconds: float
    """of the wall clock, around the solve"""
    stage: Stage
    configurations: int
    peak_bytes: int
    """of the whole process, the problem and Python included"""


def tried(file: Path, backend: str, gap: float, deadline_s: float) -> Trial | None:
    """None where it failed: out of memory, mostly."""
    words = [sys.executable, "-m", __name__, str(file), backend, str(gap), str(deadline_s)]
    try:
        ran = subprocess.run(words, capture_output=True, check=True, timeout=2 * deadline_s + LOADING_S)  # noqa: S603 - ourselves
        return msgspec.json.decode(ran.stdout, type=Trial)
    except (subprocess.SubprocessError, msgspec.DecodeError):
        return None


def keep(problem: Problem, file: Path) -> None:
    """Write the columns for `tried`."""
    with file.open("wb") as out:
        np.savez(out, **{name: getattr(problem, name) for name in COLUMNS})


def main(file: str, backend: str, gap: str, deadline_s: str) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_AT_MOST, MEMORY_AT_MOST))
    with np.load(file) as columns:
        problem = Problem(**{name: columns[name] for name in COLUMNS})
    load(backend)
    began = time.perf_counter()
    solution = solve(problem, Effort(gap=float(gap), budget_s=float(deadline_s), backend=backend))
    trial = Trial(
        objective=solution.objective,
        bound=solution.bound,
        gap=solution.gap,
        seconds=time.perf_counter() - began,
        stage=solution.stage,
        configurations=len(problem),
        peak_bytes=_peak_bytes(),
    )
    sys.stdout.buffer.write(msgspec.json.encode(trial))
    sys.stdout.flush()
    os._exit(0)


def _peak_bytes() -> int:
    """Linux lets a process begin with the peak of the one that started it, in `getrusage` but not here."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * KIB
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB


if __name__ == "__main__":
    main(*sys.argv[1:])
