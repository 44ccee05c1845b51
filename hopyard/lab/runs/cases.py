"""A run's place in an experiment: its group, its arm, its point in a sweep. Pure.

An arm is a curve or a row of the report: a policy with its settings. The arms of one group are compared
with each other. Reports group finished runs by these.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

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


def comparable(finished: Sequence[Finished]) -> list[Finished]:
    """The runs at seeds that every arm beside them has, since runs may have failed; all if no seed is so."""
    seeds: dict[tuple[str, float | None], dict[str, set[int]]] = {}
    for one in finished:
        case = one.case
        seeds.setdefault((case.group, case.at), {}).setdefault(case.arm, set()).add(case.seed)
    shared = {place: set.intersection(*by_arm.values()) for place, by_arm in seeds.items()}
    places = ((one, shared[one.case.group, one.case.at]) for one in finished)
    return [one for one, here in places if one.case.seed in here or not here]


def by_seed(outcomes: Sequence[Simulated], metric: str) -> dict[int, float]:
    """Runs without a value are left out."""
    found = ((outcome.result.seed, outcome.result.metrics.get(metric)) for outcome in outcomes)
    return {seed: value for seed, value in found if value is not None}


def values_of(outcomes: Mapping[str, Sequence[Simulated]], metric: str) -> dict[str, list[float]]:
    """Values by arm, of shared seeds; one where all seeds gave the same run."""
    return without_copies(
        outcomes, at_shared_seeds({arm: by_seed(found, metric) for arm, found in outcomes.items()})
    )


def without_copies(
    outcomes: Mapping[str, Sequence[Simulated]], values: Mapping[str, list[float]]
) -> dict[str, list[float]]:
    """The values by arm; only one of a run that every seed repeats, since copies are no sample."""
    return {arm: found[:1] if repeated(outcomes[arm]) else found for arm, found in values.items()}


def at_shared_seeds(values: Mapping[str, Mapping[int, float]]) -> dict[str, list[float]]:
    """Values by arm, of the seeds at which all arms have one that have any: means over others mislead."""
    seeds = shared_seeds(values)
    return {arm: [found[seed] for seed in seeds if seed in found] for arm, found in values.items()}


def shared_seeds(values: Mapping[str, Mapping[int, float]]) -> list[int]:
    having = [set(found) for found in values.values() if found]
    return sorted(set.intersection(*having)) if having else []
