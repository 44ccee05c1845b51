"""A run's place in an experiment: its group, its arm, its point in a sweep. Pure.

An arm is a curve or a row of the report: a policy with its settings. The arms of one group are compared
with each other. Reports group finished runs by these.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from hopyard.lab.runs.trials import Bounded, Bounding, Simulated, Simulation, Trial


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One run of an experiment and where it belongs in the report."""

    group: str
    arm: str
    trial: Trial
    at: float | None = None
    """value on the axis of a sweep"""

    @property
    def seed(self) -> int:
        return self.trial.seed


class Finished(msgspec.Struct, frozen=True):
    """A simulation that is over, and its place in the experiment."""

    case: Case
    outcome: Simulated
    bound: Bounded | None = None
    """bounds for any scheduler on its jobs; None: not asked for, or unknown"""


OF_WORLD = ("world", "world_structure", "learnt_from", "catalogue")
"""settings that change how fast jobs truly are"""
BOUND = "(bound)"
"""the arm of runs that compute bounds"""


def with_bounds(cases: Iterable[Case]) -> Iterator[Case]:
    """The cases, and the bound of each world and seed among them."""
    known: dict[bytes, Case] = {}
    for case in cases:
        yield case
        if isinstance(case.trial, Simulation):
            bounding = bounding_of(case.trial)
            bound = Case(group=case.group, arm=BOUND, trial=bounding, at=case.at)
            known.setdefault(as_key(bounding), bound)
    yield from known.values()


def bounding_of(trial: Simulation) -> Bounding:
    """The bounds to hold a run against: of its jobs and its world, whatever its policy and other settings."""
    of_world = {name: value for name, value in trial.overrides.items() if name in OF_WORLD}
    return Bounding(scenario=trial.scenario, seed=trial.seed, overrides=of_world)


def as_key(trial: Trial) -> bytes:
    """Equal for equal trials."""
    return msgspec.json.encode(trial, order="deterministic")


def groups_of(finished: Iterable[Finished]) -> dict[str, list[Finished]]:
    """Groups in the order of their first appearance, like all that follow."""
    found: dict[str, list[Finished]] = {}
    for one in finished:
        found.setdefault(one.case.group, []).append(one)
    return found


def arms_of(finished: Iterable[Finished]) -> dict[str, list[Simulated]]:
    found: dict[str, list[Simulated]] = {}
    for one in finished:
        found.setdefault(one.case.arm, []).append(one.outcome)
    return found


def places_of(finished: Iterable[Finished]) -> dict[float, list[Finished]]:
    found: dict[float, list[Finished]] = {}
    for one in finished:
        if one.case.at is not None:
            found.setdefault(one.case.at, []).append(one)
    return dict(sorted(found.items()))


def repeated(outcomes: Sequence[Simulated]) -> bool:
    """Whether several seeds gave one and the same run, as where no seed draws anything."""
    return len(outcomes) > 1 and all(one.jobs == outcomes[0].jobs for one in outcomes)


def each_once(*arms: Sequence[Simulated]) -> tuple[Sequence[Simulated], ...]:
    """The runs of one seed if each arm repeats a run at every seed: copies are no sample. Else all runs."""
    if not all(repeated(found) for found in arms):
        return arms
    seeds = set.intersection(*({one.result.seed for one in found} for found in arms))
    return tuple([one for one in found if one.result.seed == min(seeds)] for found in arms) if seeds else arms


def values_of(outcomes: Sequence[Simulated], metric: str) -> list[float]:
    """Values, one for each seed; runs without one are left out, and so are repetitions (`each_once`)."""
    [runs] = each_once(outcomes)
    found = (outcome.result.metrics.get(metric) for outcome in runs)
    return [value for value in found if value is not None]
