"""The zoo, class by class: how much sooner our solver has a certified gap than the fastest direct back end.

A *direct* back end is given the full model. All seconds are of CPU, in one run. On every problem ours comes
first; the others may take `PATIENCE` times as long. Where none of them is certified by then, the ratio is a
lower bound, marked ≥.

Equal time is looked at twice: whether a direct one held a better plan at any moment until ours was certified,
and whether ours, not content with the gap, holds one as good when the fastest direct one is certified.
"""

from collections.abc import Sequence
from pathlib import Path
from statistics import median

import msgspec

from hopyard.lab.bench.figures import Benchmark, Grid
from hopyard.lab.bench.planning.solving import OURS, Attempt, run_attempt
from hopyard.lab.bench.planning.zoo import CLASSES, problem_of
from hopyard.local.processes import Say
from hopyard.show.units import duration
from schemas.plans import Stage
from services.planner.solver.files import write_problem
from services.planner.solver.problem import Problem

FIRST_SEED = 201
"""the solver was developed on problems of smaller seeds: 1 to 10, and from 101 its versions were compared"""
PATIENCE = 15.0
QUICK = 5.0
"""`PATIENCE` of a quick look"""
LEAST_S = 1.0
"""seconds that a direct back end has in any case"""
COLUMNS = (
    "class",
    "fastest direct",
    "configurations",
    "certified",
    "ours p50 s",
    "ours max s",
    "direct p50 s",
    "ratio p50",
    "ratio worst",
    "direct / ours until then, max",
    "direct / ours at its end, max",
)


class Classes(msgspec.Struct, frozen=True, kw_only=True):
    """What to measure."""

    names: Sequence[str] = tuple(CLASSES)
    instances: int = 1
    first_seed: int = FIRST_SEED
    gap: float = 0.01
    limit_s: float = 60.0
    """CPU seconds for each solve"""
    backends: Sequence[str]
    """the direct back ends"""
    patience: float = PATIENCE
    """a direct back end may take this many times as long as ours"""


class InstanceOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured on one problem."""

    name: str
    configurations: int
    certified: bool
    ours_s: float
    fastest: str
    direct_s: float
    cut: bool
    """no direct back end was certified within its limit; `direct_s` is that limit"""
    worth_until: float
    """the largest of: a direct plan's objective / ours at the same moment, until ours was certified"""
    worth_after: float
    """the direct plan's objective / ours, when the fastest direct one was certified"""

    @property
    def ratio(self) -> float:
        return self.direct_s / self.ours_s


def classes(data: Path, say: Say, asked: Classes) -> Benchmark:
    outcomes = {
        name: [_outcome(name, seed, data, say, asked) for seed in _seeds(asked)] for name in asked.names
    }
    return Benchmark(
        name="solver",
        conditions=(
            f"{asked.instances} problems of each class, seeds from {asked.first_seed}, to a gap of"
            f" {asked.gap:.2%}; CPU seconds of a process of its own, without imports;"
            " ≥: no direct back end was done by then"
        ),
        figures=(),
        grid=Grid(columns=COLUMNS, rows=tuple(_line(name, each) for name, each in outcomes.items())),
    )


def _seeds(asked: Classes) -> range:
    return range(asked.first_seed, asked.first_seed + asked.instances)


def _outcome(name: str, seed: int, data: Path, say: Say, asked: Classes) -> InstanceOutcome:
    """Raises RuntimeError where ours fails."""
    problem, file = problem_of(name, seed), data / "problem.json"
    write_problem(file, problem, [str(index) for index in range(problem.jobs)])
    ours = run_attempt(file, OURS, asked.gap, asked.limit_s)
    if ours is None:
        raise RuntimeError(f"{name} {seed}: our own solver failed")
    limit_s = min(max(asked.patience * ours.seconds, LEAST_S), asked.limit_s)
    direct = _direct(file, limit_s, asked)
    outcome = _compared(name, problem, ours, direct, limit_s)
    going_on = run_attempt(file, OURS, 0.0, outcome.direct_s)
    file.unlink()
    best = max((one.objective_at(outcome.direct_s) for one in direct.values() if one), default=0.0)
    if going_on is not None:
        held = max(going_on.objective, ours.objective if ours.seconds <= outcome.direct_s else 0.0)
        outcome = msgspec.structs.replace(outcome, worth_after=best / held)
    say(f"  {name} {seed}: {_said(outcome)}")
    return outcome


def _direct(file: Path, limit_s: float, asked: Classes) -> dict[str, Attempt | None]:
    """Attempts by back end; no back end has longer than the fastest before it."""
    found: dict[str, Attempt | None] = {}
    for backend in asked.backends:
        attempt = found[backend] = run_attempt(file, backend, asked.gap, limit_s)
        if attempt is not None and attempt.stage == Stage.OPTIMAL:
            limit_s = min(limit_s, attempt.seconds)
    return found


def _compared(
    name: str, problem: Problem, ours: Attempt, direct: dict[str, Attempt | None], limit_s: float
) -> InstanceOutcome:
    done = {
        backend: min(one.seconds, limit_s)
        for backend, one in direct.items()
        if one is not None and one.stage == Stage.OPTIMAL
    }
    fastest = min(done, key=done.__getitem__, default="none")
    return InstanceOutcome(
        name=name,
        configurations=len(problem),
        certified=ours.stage == Stage.OPTIMAL,
        ours_s=ours.seconds,
        fastest=fastest,
        direct_s=done.get(fastest, limit_s),
        cut=not done,
        worth_until=max((_ahead(one, ours) for one in direct.values() if one), default=0.0),
        worth_after=0.0,
    )


def _ahead(direct: Attempt, ours: Attempt) -> float:
    """The largest ratio of the direct plan's objective to ours at a moment, until ours was certified."""
    return max(
        (
            step.objective / ours.objective_at(step.seconds)
            for step in direct.steps
            if ours.steps[0].seconds <= step.seconds <= ours.seconds
        ),
        default=0.0,
    )


def _said(outcome: InstanceOutcome) -> str:
    least = "≥ " if outcome.cut else ""
    return (
        f"ours {duration(outcome.ours_s)}, {outcome.fastest} {least}{duration(outcome.direct_s)},"
        f" {least}{outcome.ratio:.1f} times"
    )


def _line(name: str, outcomes: Sequence[InstanceOutcome]) -> tuple[str | float | None, ...]:
    """One class; see COLUMNS."""
    ratios = sorted(outcomes, key=lambda one: one.ratio)
    fastest = [one.fastest for one in outcomes]
    return (
        name,
        max(fastest, key=fastest.count),
        median(one.configurations for one in outcomes),
        f"{sum(one.certified for one in outcomes)}/{len(outcomes)}",
        median(one.ours_s for one in outcomes),
        max(one.ours_s for one in outcomes),
        median(one.direct_s for one in outcomes),
        _least(median(one.ratio for one in outcomes), any(one.cut for one in ratios[len(ratios) // 2 :])),
        _least(ratios[0].ratio, ratios[0].cut),
        max(one.worth_until for one in outcomes),
        max(one.worth_after for one in outcomes),
    )


def _least(ratio: float, cut: bool) -> str:  # noqa: FBT001 - whether it is a lower bound
    return f"{'≥ ' if cut else ''}{ratio:.1f}"
