"""The policy `hopyard` beside Hops, on scenarios and seeds that it was not tuned on. Pure.

A group is a scenario. Each has three arms: `hopyard`; `hops` in a stack, where new workloads are measured at
once and moving a job costs what it was measured to; and Hops as its paper runs it. The scenario that is
asked for has an arm for each term left out besides.
"""

from collections.abc import Iterator, Mapping, Sequence

from hopyard.lab.experiments.baselines import AS_PUBLISHED, Setup
from hopyard.lab.experiments.options import Options
from hopyard.lab.report.document import Figure
from hopyard.lab.report.figures import named, scaled, seed_by_seed
from hopyard.lab.report.measures import FURTHER
from hopyard.lab.runs.cases import Case, Finished, arms_of, groups_of
from hopyard.lab.runs.trials import Simulation
from schemas.scenarios import ScenarioFile

TUNED_ON: Mapping[str, tuple[int, ...]] = {
    "hops-64": (1, 2, 3, 11, 12, 13, 14, 15, 16),
    "hadar-60": (1,),
    "hops-512": (11, 12, 13, 14),
    "philly-64": (7, 8, 9, 10),
    "helios-64": (7, 8, 9, 10),
}
"""seeds by scenario, on which defaults were chosen"""

HELD_OUT: Mapping[str, tuple[int, ...]] = {
    "hops-64": (4, 5, 6, 7, 8),
    "hadar-60": (2, 3, 4, 5, 6),
    "philly-64": (1, 2, 3, 4, 5),
    "helios-64": (1, 2, 3, 4, 5),
    "hops-512": (1, 2, 3, 4, 5),
}
"""seeds by scenario, on which the report compares"""

ARMS: Mapping[str, Setup] = {
    "hopyard": Setup("hopyard"),
    "hops": Setup("hops"),
    "hops as published": Setup("hops+moving_cost_s=0", AS_PUBLISHED),
}

ABLATED: Mapping[str, Setup] = {
    f"without {term}": Setup(f"hopyard+{off}")
    for term, off in (
        ("head start", "head_start_s=0"),
        ("slow running", "slow=0"),
        ("what is left", "left_least=1"),
        ("critical jobs", "critical=0"),
        ("GPUs in use", "fill=0"),
        ("plans between rounds", "moves_for_waiting=false"),
        ("wider window", "window_factor=1"),
    )
}


def cases(options: Options) -> Iterator[Case]:
    """`quick`: only the scenario and the seeds that were asked for."""
    asked = options.scenario
    for name, seeds in ({asked.name: options.seeds} if options.quick else HELD_OUT).items():
        if name == asked.name:
            yield from _runs(asked, seeds, {**ARMS, **ABLATED})
        else:
            yield from _runs(options.also(name), seeds, ARMS)


def _runs(scenario: ScenarioFile, seeds: tuple[int, ...], arms: Mapping[str, Setup]) -> Iterator[Case]:
    for arm, setup in arms.items():
        for seed in seeds:
            trial = Simulation(scenario=scenario, policy=setup.policy, seed=seed, overrides=setup.overrides)
            yield Case(group=scenario.name, arm=arm, trial=trial)


def restarts_apart(finished: Sequence[Finished]) -> Iterator[Figure]:
    """Restarts of every arm less the first's, by group, which are no headline of comparisons."""
    (restarts,) = (measure for measure in FURTHER if measure.metric == "restarts")
    for group, members in groups_of(finished).items():
        first, *others = (arms := arms_of(members))
        for arm in others:
            found = seed_by_seed(arms[arm], arms[first], scaled(restarts))
            if found is not None:
                yield named(f"{group}, less {first}", arm, restarts.heading, found)
