"""The runs of the experiment: policies, GPUs and speeds. Pure."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from hopyard.lab.experiments.baselines import AS_PUBLISHED
from hopyard.lab.experiments.options import Options
from hopyard.lab.runs.cases import Case
from hopyard.lab.runs.trials import Simulation
from loadgen.scenarios import cluster_of
from schemas.scenarios import ListedWorkload, ScenarioFile
from shared.domain.policy_names import parted, written

SCENARIO = "jps-15"
POLICIES = ("exhaustive", "has", "jps", "optimus-lb", "optimus", "gavel")
ONCE, ONCE_MORE = "15 GPUs, decided once", "30 GPUs, decided once"
MIX = "15 GPUs, more V100 and fewer T4"
ERRORS = "15 GPUs, speeds known with an error"
SIZES = "50 to 300 GPUs, decided once"
RESETS = "15 GPUs, decided again whenever a job ends"

FAITHFUL: Mapping[str, object] = {"law": "epoch", "share_max": 64.0}
"""as in the paper: one exchange per epoch, and no limit of memory"""
DRAWN = frozenset({"jps", "optimus", "optimus-lb"})
"""policies that draw, and so differ from seed to seed"""
FIXED_SEED = 1

V100_OF_15 = (3, 5, 7, 9)
ERRORS_OF = (0.0, 0.1, 0.2, 0.3)
SIZES_OF = (50, 100, 200, 300)
GAVEL_GPUS = 5
SAMPLES = (20, 40, 60)


class Arm(msgspec.Struct, frozen=True):
    label: str
    policy: str
    options: Mapping[str, object] = {}

    def seeded(self, seed: int, **more: object) -> str:
        """The policy with its options, and with the seed if it draws."""
        own: dict[str, object] = {**FAITHFUL, **self.options, **more}
        if self.policy in DRAWN:
            own["seed"] = seed
        return written(self.policy, {name: _text(value) for name, value in own.items()})

    def seeds(self, seeds: Sequence[int]) -> Sequence[int]:
        return seeds if self.policy in DRAWN else (FIXED_SEED,)


WHOLE: Mapping[str, object] = {"idle": False}
"""all GPUs are used (equation 8c)"""
EXHAUSTIVE = Arm("exhaustive", "exhaustive", WHOLE)
HAS = Arm("has", "has", WHOLE)
JPS = {count: Arm(f"jps, N = {count}", "jps", {**WHOLE, "samples": count}) for count in SAMPLES}
FAIR = Arm("jps, N = 60, β = 0", "jps", {**WHOLE, "samples": 60, "beta": 0.0})
LB, OPTIMUS = Arm("optimus-lb", "optimus-lb"), Arm("optimus", "optimus")
GAVEL = "gavel, 5 GPUs a job"


def cases(options: Options) -> Iterator[Case]:
    """The cases of the named policies; another one, or one with settings of its own, runs in group ONCE.

    A quick run has only group ONCE.
    """
    named = {policy.policy for policy in options.policies if not policy.overrides}
    yield from (case for case in _all(options) if _policy(case) in named)
    for other in options.policies:
        if other.policy not in POLICIES or other.overrides:
            for seed in options.seeds:
                trial = Simulation(
                    scenario=options.scenario, policy=other.policy, seed=seed, overrides=other.overrides
                )
                yield Case(group=ONCE, arm=other.label, trial=trial)


def _policy(case: Case) -> str:
    assert isinstance(case.trial, Simulation), "there are no others"
    return parted(case.trial.policy)[0]


def _all(options: Options) -> Iterator[Case]:
    here, seeds = options.scenario, options.seeds
    arms = (EXHAUSTIVE, HAS, *JPS.values(), FAIR, LB, OPTIMUS)
    yield from _runs(ONCE, here, arms, seeds, static=True)
    if options.quick:
        return
    yield from _runs(ONCE_MORE, options.also("jps-30"), arms, seeds, static=True)
    for count in V100_OF_15:
        unlike = _with_v100(here, count)
        yield from _runs(MIX, unlike, (EXHAUSTIVE, HAS, JPS[60]), seeds, static=True, at=count)
    for error in ERRORS_OF:
        unsure = _unsure(here, error)
        yield from _runs(ERRORS, unsure, (HAS, JPS[60]), seeds, static=True, at=100 * error, drawn=True)
    for gpus in SIZES_OF:
        large = options.also(f"jps-{gpus}")
        yield from _runs(SIZES, large, (JPS[40], LB), seeds[:1], static=True, at=gpus)
    yield from _runs(RESETS, here, (EXHAUSTIVE, HAS, JPS[60], LB), seeds, static=False)
    rigid = Simulation(scenario=_rigid(here), policy="gavel", seed=FIXED_SEED, overrides=AS_PUBLISHED)
    yield Case(group=RESETS, arm=GAVEL, trial=rigid)


def _runs(
    group: str,
    scenario: ScenarioFile,
    arms: Sequence[Arm],
    seeds: Sequence[int],
    *,
    static: bool,
    at: float | None = None,
    drawn: bool = False,
) -> Iterator[Case]:
    """`drawn`: the world differs from seed to seed, so every policy runs with every seed."""
    for arm in arms:
        for seed in seeds if drawn else arm.seeds(seeds):
            policy = arm.seeded(seed, static=static)
            trial = Simulation(scenario=scenario, policy=policy, seed=seed if drawn else FIXED_SEED)
            yield Case(group=group, arm=arm.label, trial=trial, at=at)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _with_v100(scenario: ScenarioFile, count: int) -> ScenarioFile:
    """The scenario with `count` V100, 5 P100 and the rest of 15 T4; each type is one node."""
    cluster = cluster_of(scenario)
    gpus = {"v100": count, "p100": 5, "t4": 10 - count}
    nodes = [msgspec.structs.replace(group, gpus=gpus[group.gpu_type]) for group in cluster.nodes]
    named = msgspec.structs.replace(cluster, name=f"{cluster.name}-v100-{count}", nodes=nodes)
    return msgspec.structs.replace(scenario, cluster=named)


def _unsure(scenario: ScenarioFile, error: float) -> ScenarioFile:
    """Profiles show speeds that are off by up to `error`, a share."""
    speeds = [msgspec.structs.replace(one, profile_error=error) for one in scenario.catalogue.speeds]
    catalogue = msgspec.structs.replace(scenario.catalogue, speeds=speeds)
    return msgspec.structs.replace(scenario, catalogue=catalogue)


def _rigid(scenario: ScenarioFile) -> ScenarioFile:
    """Every job asks for five GPUs."""
    assert isinstance(scenario.workload, ListedWorkload), "the jobs of table III are listed"
    jobs = [
        msgspec.structs.replace(one, job=msgspec.structs.replace(one.job, gpus=[GAVEL_GPUS]))
        for one in scenario.workload.jobs
    ]
    return msgspec.structs.replace(scenario, workload=ListedWorkload(jobs=jobs))
