"""Back ends side by side on the same problems: time to a certified gap, final gap, memory.

Problems are saved ones, or made for every size and kind asked for (see `instances`). Each solve has a process
of its own; they follow one another, instance by instance, so that all back ends meet the same machine.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from statistics import median

import msgspec

from hopyard.failures import Invalid
from hopyard.lab.bench.figures import Benchmark, Grid
from hopyard.lab.bench.planning.instances import Shape, instance
from hopyard.lab.bench.planning.solving import Attempt, run_attempt
from hopyard.local.processes import Say
from hopyard.show.units import duration
from schemas.plans import PlanKind, Stage
from services.planner.solver import MODULES
from services.planner.solver.files import read_problem, write_problem
from services.planner.solver.problem import Problem

OURS = "hopyard"
SIZES = (64, 512, 1_024, 2_048, 4_096, 8_192)
"""GPUs"""
COLUMNS = (
    "problems",
    "back end",
    "certified",
    "time p50 s",
    "time max s",
    "gap p50 %",
    "gap max %",
    "worth / ours, max",
    "slower than ours, p50",
    "memory max MiB",
)
ENDINGS = (".json", ".json.gz")
"""of saved problems' names"""
MIB = 1024**2


class Trials(msgspec.Struct, frozen=True, kw_only=True):
    """What to measure."""

    sizes: Sequence[int] = ()
    """GPUs; none: the usual ones"""
    instances: int = 1
    """problems of every size and kind; of saved problems, this many files, the largest"""
    deadline_s: float = 20.0
    """CPU seconds for each solve"""
    gap: float = 0.01
    problems: Path | None = None
    """a folder of saved problems, in place of made ones"""
    backends: Sequence[str] = tuple(MODULES)
    classes: Sequence[str] = ()
    """classes of the zoo, in place of these problems (see `classes`)"""
    quick: bool = False
    """classes only: one problem of each, and less patience with the others"""


class _Row(msgspec.Struct, frozen=True):
    group: str
    trials: dict[str, Attempt | None]
    """the attempts on one problem, by back end"""


def solver(data: Path, say: Say, asked: Trials) -> Benchmark:
    """Raises Invalid for a folder without problems, InvalidFile for a file that is not a saved problem."""
    rows = [_row(group, problem, data / "problem.json", say, asked) for group, problem in _problems(asked)]
    grouped = [(group, list(of_group)) for group, of_group in groupby(rows, key=lambda row: row.group)]
    return Benchmark(
        name="solver",
        conditions=(
            f"{len(rows)} problems to a gap of {asked.gap:.2%} within {asked.deadline_s:g} s of CPU, each"
            " solve in a process of its own; times of those certified, gaps of all"
        ),
        figures=(),
        grid=Grid(
            columns=COLUMNS,
            rows=tuple(
                _line(group, name, of_group) for group, of_group in grouped for name in asked.backends
            ),
        ),
    )


def _problems(asked: Trials) -> Iterator[tuple[str, Problem]]:
    if asked.problems is not None:
        for file in _saved(asked.problems)[: asked.instances]:
            yield f"saved in {asked.problems.name}", read_problem(file).problem
        return
    for gpus in asked.sizes or SIZES:
        for kind in PlanKind:
            for unlike in (False, True):
                group = f"{gpus} {kind.value} {'unlike' if unlike else 'alike'}"
                for seed in range(1, asked.instances + 1):
                    yield group, instance(Shape(gpus=gpus, kind=kind, unlike=unlike), seed)


def _saved(folder: Path) -> list[Path]:
    """The folder's problems, the largest file first. Raises Invalid if there is none."""
    files = [file for ending in ENDINGS for file in folder.glob(f"[!.]*{ending}")]
    if not files:
        raise Invalid(f"--problems {folder}: it holds no saved problem ({' or '.join(ENDINGS)})")
    return sorted(files, key=lambda file: (-file.stat().st_size, file.name))


def _row(group: str, problem: Problem, file: Path, say: Say, asked: Trials) -> _Row:
    write_problem(file, problem, [str(index) for index in range(problem.jobs)])
    trials = {}
    for name in asked.backends:
        trials[name] = run_attempt(file, name, asked.gap, asked.deadline_s)
        say(f"  {group}, {len(problem)} configurations, {name}: {_summary(trials[name])}")
    file.unlink()
    return _Row(group, trials)


def _summary(trial: Attempt | None) -> str:
    return "failed" if trial is None else f"{duration(trial.seconds)}, gap {trial.gap:.2%}"


def _line(group: str, name: str, rows: Sequence[_Row]) -> tuple[str | float | None, ...]:
    """One back end on one group; see COLUMNS."""
    trials = [trial for row in rows if (trial := row.trials[name]) is not None]
    times = [trial.seconds for trial in trials if trial.stage == Stage.OPTIMAL]
    gaps = [100 * trial.gap for trial in trials]
    pairs = [(trial, ours) for row in rows if (trial := row.trials[name]) and (ours := row.trials.get(OURS))]
    return (
        group,
        name,
        f"{len(times)}/{len(rows)}",
        median(times) if times else None,
        max(times, default=None),
        median(gaps) if gaps else None,
        max(gaps, default=None),
        max((_ratio(trial.objective, ours.objective) for trial, ours in pairs), default=None),
        median(_ratio(trial.seconds, ours.seconds) for trial, ours in pairs) if pairs else None,
        max((trial.peak_bytes / MIB for trial in trials), default=None),
    )


def _ratio(value: float, of: float) -> float:
    return value / of if of > 0 else 1.0
