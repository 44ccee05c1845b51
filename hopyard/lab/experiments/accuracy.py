"""How accurate the estimator's predictions are (Hops figures 6 and 7), on the emulated world.

Jobs of one GPU type and one GPU count each, first come first served, so that every execution is long and
undisturbed. Two workloads: every model of the paper's table 2 on aggregated and distributed
configurations, with the store's evidence left out, so that the theory layer answers; and models with
unstable data loading again and again, with the store as it is. The first of them in worlds of another
structure too, which no formula of the estimator knows, by the equations alone and times what other shapes
showed of them; and the scenario itself, as a policy schedules it, and one of unlike servers.
"""

from collections.abc import Iterator, Sequence

from hopyard.lab.experiments.baselines import KNOWN_TRUSTED, PAPER, setup_of
from hopyard.lab.experiments.options import Options
from hopyard.lab.runs.cases import Case
from hopyard.lab.runs.trials import Overrides, Simulation
from loadgen.catalogue.reference import FitsNowhere, reference_throughput
from loadgen.catalogue.specs import Catalogue
from loadgen.scenarios import catalogue_of, cluster_of
from loadgen.workloads.mixes import mix_named
from loadgen.world.structure import structures
from schemas.catalogue import Model
from schemas.cluster import ClusterFile
from schemas.jobs import JobFile, Workload
from schemas.scenarios import ArrivingJob, ListedWorkload, ScenarioFile

THEORY = "theory layer"
STRUCTURES = "theory layer in other worlds"
RESIDUALS = "theory layer in other worlds, times residuals"
SCHEDULED = "scheduled runs"
SCHEDULED_IN = ("plain", "buckets-by-job", "inputs", "everyday", "harsh")
UNLIKE = "hops-512-three"
"""a scenario with a GPU type in servers of unlike models"""
UNLIKE_IN, UNLIKE_SEEDS = "everyday", 2
LEARNING = "as executions accumulate"
TRACE = "on a trace"
MIX = "hops-table-2"
LASTS_S = 600.0
"""about as long as each job runs"""
COUNTS = (1, 2, 4, 8, 16)
QUICK_COUNTS = (1, 4)
"""GPU counts that fit one node of `tiny`, and two"""
REPEATED = (1, 4, 8)
REPEATS = 12
REPEATED_MODELS = ("resnet18", "resnet50", "mobilenet-v2", "wav2vec2-base")
"""models with unstable loading"""
NO_EVIDENCE: Overrides = {"evidence_observations": 1_000_000, "evidence_s": 1e8}
"""with these settings the store's evidence never answers; residuals are learnt from it all the same"""
ALONE: Overrides = {**NO_EVIDENCE, "equations_as_printed": "residuals"}


def cases(options: Options) -> Iterator[Case]:
    if options.traced:
        first = setup_of(PAPER, options.policies[0])
        yield from _seeded(options, TRACE, options.scenario, first.overrides, first.policy)
        return
    counts, repeated, repeats = (
        (QUICK_COUNTS, QUICK_COUNTS, 3) if options.quick else (COUNTS, REPEATED, REPEATS)
    )
    chosen = {**setup_of(PAPER, options.policies[0]).overrides, **KNOWN_TRUSTED}
    known = catalogue_of(options.scenario)
    models = [known.models[entry.model, entry.dataset] for entry in mix_named(MIX).jobs]
    models = models[-5:] if options.quick else models
    theory = _listed(options.scenario, "theory", models, counts, 1)
    yield from _seeded(options, THEORY, theory, {**chosen, **ALONE}, "fifo")
    yield from _structured(options, STRUCTURES, theory, {**chosen, **ALONE})
    yield from _structured(options, RESIDUALS, theory, {**chosen, **NO_EVIDENCE})
    yield from _scheduled(options)
    learning_models = [model for model in models if model.model in REPEATED_MODELS and unstable(model, known)]
    learning = _listed(options.scenario, "repeated", learning_models, repeated, repeats)
    yield from _seeded(options, LEARNING, learning, chosen, "fifo")


def _structured(options: Options, group: str, theory: ScenarioFile, overrides: Overrides) -> Iterator[Case]:
    """One seed: worlds differ by more than seeds do."""
    for name in ("everyday",) if options.quick else structures():
        in_it = {**overrides, "world_structure": name}
        trial = Simulation(scenario=theory, policy="fifo", seed=options.seeds[0], overrides=in_it)
        yield Case(group=group, arm=name, trial=trial)


def _scheduled(options: Options) -> Iterator[Case]:
    first = setup_of(PAPER, options.policies[0])
    arms = [(name, name, options.scenario, options.seeds) for name in SCHEDULED_IN]
    if not options.quick:
        unlike, seeds = options.also(UNLIKE), options.seeds[:UNLIKE_SEEDS]
        arms.append((f"{UNLIKE_IN}, {UNLIKE}", UNLIKE_IN, unlike, seeds))
    for arm, world, scenario, seeds in arms:
        for seed in seeds:
            overrides = {**first.overrides, "world_structure": world}
            trial = Simulation(scenario=scenario, policy=first.policy, seed=seed, overrides=overrides)
            yield Case(group=SCHEDULED, arm=arm, trial=trial)


def unstable(model: Model, known: Catalogue) -> bool:
    return known.dataset_of(model).loading == "unstable"


def _seeded(
    options: Options, group: str, scenario: ScenarioFile, overrides: Overrides, policy: str
) -> Iterator[Case]:
    for seed in options.seeds:
        trial = Simulation(scenario=scenario, policy=policy, seed=seed, overrides=overrides)
        yield Case(group=group, arm=policy, trial=trial)


def _listed(
    scenario: ScenarioFile, name: str, models: Sequence[Model], counts: Sequence[int], repeats: int
) -> ScenarioFile:
    """A job for every repeat, model, count and GPU type that it fits, all there from the start."""
    cluster, known = cluster_of(scenario), catalogue_of(scenario)
    jobs = [
        ArrivingJob(at_s=0.0, job=job)
        for repeat in range(repeats)
        for model in models
        for gpus in counts
        for job in _jobs(model, gpus, cluster, known, repeat)
    ]
    return ScenarioFile(
        name=f"{scenario.name}-{name}",
        cluster=cluster,
        workload=ListedWorkload(jobs=jobs),
        settings=scenario.settings,
        catalogue=scenario.catalogue,
    )


def _jobs(model: Model, gpus: int, cluster: ClusterFile, known: Catalogue, repeat: int) -> Iterator[JobFile]:
    for gpu_type in cluster.gpu_types:
        groups = [group for group in cluster.nodes if group.gpu_type == gpu_type]
        alone = ClusterFile(name=cluster.name, gpu_types=cluster.gpu_types, nodes=groups)
        try:
            rate = reference_throughput(model, alone, known)
        except FitsNowhere:
            continue
        if gpus <= sum(group.count * group.gpus for group in groups):
            yield JobFile(
                name=f"{model.model}-{model.dataset}-{gpu_type}-{gpus}-{repeat}"[:63].strip("-"),
                workload=Workload(
                    model=model.model,
                    dataset=model.dataset,
                    batch_size=model.batch,
                    optimizer=model.optimizer,
                ),
                gpus=gpus,
                gpu_types=[gpu_type],
                samples=rate * gpus * LASTS_S,
            )
