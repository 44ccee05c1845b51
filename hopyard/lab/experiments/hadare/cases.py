"""The runs of HadarE's experiments: every policy on every mix, and some at other lengths of a round. Pure."""

from collections.abc import Iterator, Mapping

import msgspec

from hopyard.lab.experiments.baselines import Contender
from hopyard.lab.experiments.options import Options
from hopyard.lab.runs.cases import Case
from hopyard.lab.runs.trials import Overrides, Simulation
from schemas.scenarios import ListedWorkload, ScenarioFile
from shared.domain.policy_names import parted

AWS, LAB = "hadare-aws", "hadare-lab"
MIXES: Mapping[str, tuple[str, ...]] = {
    "M-1": ("mm-1",),
    "M-3": ("lt", "mm-1", "mm-2"),
    "M-4": ("ic", "lm", "lt", "mm-1"),
    "M-5": ("ic", "lm", "lt", "rs", "mm-1"),
    "M-8": ("ic", "lm", "lt", "rs", *(f"mm-{number}" for number in range(1, 5))),
    "M-10": ("ic", "lm", "lt", "rs", *(f"mm-{number}" for number in range(1, 7))),
    "M-12": ("ic", "lm", "lt", "rs", *(f"mm-{number}" for number in range(1, 9))),
}
"""names of the jobs of each mix; a mix is named by how many they are"""
USUAL_S = 360.0
SLOTS_S = (90.0, 180.0, 720.0)
"""lengths of a round that are tried beside USUAL_S"""
SWEPT = ("hadar", "hadare")
"""policies that are run at all lengths of a round"""
POLICIES = ("gavel", "hadar", "hadare", "hadare+lone=forked", "hadare-literal")
AS_PUBLISHED: Overrides = {"minimum_run_restarts": 0.0, "restart_share_max": 1.0}
"""every running job may be moved in every round"""


def cases(options: Options) -> Iterator[Case]:
    for scenario in _clusters(options):
        for mix, part in mixes_of(scenario).items():
            for policy in options.policies:
                for slot_s in _slots(policy, quick=options.quick):
                    yield from _seeded(options, part, group_of(scenario.name, mix), policy, slot_s)


def group_of(cluster: str, mix: str) -> str:
    return f"{cluster}, {mix}"


def cluster_and_mix(group: str) -> tuple[str, str]:
    cluster, _, mix = group.partition(", ")
    return cluster, mix


def mixes_of(scenario: ScenarioFile) -> dict[str, ScenarioFile]:
    """The scenario with only a mix's jobs, by mix; a scenario with other jobs is one mix, `all`."""
    workload = scenario.workload
    if not isinstance(workload, ListedWorkload):
        return {"all": scenario}
    by_name = {arriving.job.name: arriving for arriving in workload.jobs}
    return {
        mix: msgspec.structs.replace(
            scenario, workload=ListedWorkload(jobs=[by_name[name] for name in names])
        )
        for mix, names in MIXES.items()
        if by_name.keys() >= set(names)
    } or {"all": scenario}


def _clusters(options: Options) -> Iterator[ScenarioFile]:
    """The chosen scenario; with Amazon's cluster, also the laboratory's."""
    yield options.scenario
    if options.scenario.name == AWS:
        yield options.also(LAB)


def _slots(policy: Contender, *, quick: bool) -> tuple[float, ...]:
    swept = parted(policy.policy).name in SWEPT and not quick
    return tuple(sorted((USUAL_S, *SLOTS_S))) if swept else (USUAL_S,)


def _seeded(
    options: Options, part: ScenarioFile, group: str, policy: Contender, slot_s: float
) -> Iterator[Case]:
    overrides: Overrides = {**AS_PUBLISHED, "round_s": slot_s, **policy.overrides}
    for seed in options.seeds:
        trial = Simulation(scenario=part, policy=policy.policy, seed=seed, overrides=overrides)
        yield Case(group=group, arm=policy.label, trial=trial, at=slot_s)
