"""The runs of Hare's experiment: policies, GPUs and jobs. Pure.

The paper's figures 14 to 21 are about jobs that are all known at time 0 (*offline*), 22 to 27 about jobs that
arrive over time (*online*). The costliest runs, sweeps over GPUs and jobs, are made only with `full`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from hopyard.lab.experiments.baselines import Contender
from hopyard.lab.experiments.options import Options
from hopyard.lab.runs.cases import Case
from hopyard.lab.runs.trials import Overrides, Simulation
from loadgen.scenarios import arrivals, cluster_of, load_scenario
from loadgen.workloads.mixes import mix_named
from schemas.cluster import ClusterFile
from schemas.jobs import Workload
from schemas.scenarios import Arrival, ArrivingJob, ListedWorkload, PoissonWorkload, ScenarioFile

SCENARIO = "hare-15"
THRESHOLDS = "60 240 960 3840 15360"
"""ends of the queues of hlas, in GPU-seconds; 2D-LAS runs with them too"""
TWO_D = "tiresias"
TWO_D_ALIKE = f"tiresias+thresholds={THRESHOLDS}"
OFFLINE = ("hare", "allox", "allox-gang", "gavel-fifo", "fifo", "srtf", "sched-homo")
WITHOUT_SIZES = ("allox+sizes=unit", "sched-homo+sizes=unit")
"""count every job as one round long, since the lengths of arriving jobs are not known"""
ONLINE = ("hlas", "hlas-p", "hlas-l", TWO_D, TWO_D_ALIKE, *WITHOUT_SIZES, "fifo")
POLICIES = (*OFFLINE, *(name for name in ONLINE if name not in OFFLINE))
LEADING = ("hare", "allox", "srtf")
"""policies that are run under all conditions"""
OURS_OFFLINE, OURS_ONLINE = "hare", "hlas"
WHOLE_ROUNDS: Overrides = {"minimum_run_restarts": 0.0, "restart_share_max": 1.0}
"""every running job may be moved at every decision, as in the papers"""

TESTBED = "the scenario itself"
LEVELS = {
    "low": "160 GPUs of one type, 200 jobs at once",
    "middle": "160 GPUs of two types, 200 jobs at once",
    "high": "160 GPUs of four types, 200 jobs at once",
}
NETWORK = "15 GPUs, by bandwidth between nodes"
BATCHES = "15 GPUs, by batch size"
MIXES = {
    "more language": "15 GPUs, half of the jobs language models",
    "more recommendation": "15 GPUs, half of the jobs recommendation models",
}
IN_ADVANCE = "15 GPUs, all workloads profiled in advance"
OVER_TIME = "160 GPUs, 200 jobs over time"
GROUPS = "160 GPUs, 200 jobs over time, by number of groups"
QUEUES = "160 GPUs, 200 jobs over time, by length of the first queue"
DECISIONS = "160 GPUs in 40 groups, all jobs at once, by number of jobs"
GPUS_OFFLINE, GPUS_ONLINE = "200 jobs at once, by number of GPUs", "200 jobs over time, by number of GPUs"
JOBS_OFFLINE, JOBS_ONLINE = (
    "160 GPUs, jobs at once, by number of jobs",
    "160 GPUs, jobs over time, by number of jobs",
)

GBIT = (10.0, 25.0)
BATCHES_OF = (0.5, 1.0, 2.0)
GROUPS_OF = (5, 20, 40, 80)
FIRST_QUEUE_S = (15, 60, 240, 960)
"""ends of the first queue of hlas; each other queue ends at four times the one before"""
QUEUES_BUT_LAST = 5
JOBS_OF = (100, 150, 200, 250, 300)
NODES_OF: Mapping[int, Sequence[int]] = {
    100: (7, 6, 6, 7),
    120: (8, 8, 8, 8),
    140: (9, 9, 10, 11),
    160: (11, 10, 10, 11),
    180: (12, 12, 12, 12),
}
"""nodes of 8 V100, 4 T4, 1 K80 and 2 M60, by the number of their GPUs"""
DOMAINS: Mapping[str, Sequence[str]] = {
    "more language": ("bert-base", "transformer"),
    "more recommendation": ("fastgcn", "graphsage"),
}
PROFILED_IN_S = 300.0
"""five rounds, after which all workloads are profiled and the jobs for that have ended"""
PROFILING_PREFIX = "beforehand-"
"""prefix of the names of jobs that run only for their profiles, and count in no figure"""
TO_HALF = 3.0
"""factor on the weight of a domain's jobs by which a quarter of all jobs becomes a half"""


def cases(options: Options) -> Iterator[Case]:
    """The cases of the named policies. A quick run has one group, on any scenario; so has one on a trace."""
    yield from _runs(TESTBED, options.scenario, options.policies, options)
    if options.quick or options.traced or options.scenario.name != SCENARIO:
        return
    offline, online = _named(options, OFFLINE), _named(options, ONLINE)
    for name, group in LEVELS.items():
        yield from _runs(group, load_scenario(f"hare-160-{name}"), offline, options, seeds=1)
    yield from _conditions(options)
    here = load_scenario("hare-160")
    yield from _runs(OVER_TIME, here, online, options)
    hlas = [one for one in online if one.policy == OURS_ONLINE]
    for groups in GROUPS_OF:
        yield from _runs(GROUPS, here, _grouped(hlas, groups), options, at=groups, seeds=1)
    for seconds in FIRST_QUEUE_S:
        yield from _runs(QUEUES, here, _queued(hlas, seconds), options, at=seconds, seeds=1)
    for jobs in JOBS_OF[::2]:
        at_once = _with_jobs(load_scenario("hare-160-high"), jobs)
        yield from _runs(DECISIONS, at_once, _grouped(hlas, 40), options, at=jobs, seeds=1)
    if options.full:
        yield from _sweeps(options, offline, online)


def _conditions(options: Options) -> Iterator[Case]:
    """The testbed with one change each (figures 19 to 21)."""
    few = _named(options, LEADING)
    for gbit in GBIT:
        yield from _runs(NETWORK, _with_network(options.scenario, gbit), few, options, at=gbit)
    for name, group in MIXES.items():
        yield from _runs(group, _with_more(options.scenario, DOMAINS[name]), few, options)
    for seed in options.seeds:
        yield from _runs(IN_ADVANCE, _profiled(options.scenario, seed), few, options, only=seed)
    for factor in BATCHES_OF:
        for seed in options.seeds:
            larger = _with_batches(options.scenario, factor, seed)
            yield from _runs(BATCHES, larger, few, options, at=factor, only=seed)


def _sweeps(options: Options, offline: Sequence[Contender], online: Sequence[Contender]) -> Iterator[Case]:
    at_once, come = load_scenario("hare-160-high"), load_scenario("hare-160")
    sweeps: Sequence[tuple[str, ScenarioFile, Sequence[Contender], Change, Sequence[int]]] = (
        (GPUS_OFFLINE, at_once, offline, _with_gpus, tuple(NODES_OF)),
        (JOBS_OFFLINE, at_once, offline, _with_jobs, JOBS_OF),
        (GPUS_ONLINE, come, online, _with_gpus, tuple(NODES_OF)),
        (JOBS_ONLINE, come, online, _with_jobs, JOBS_OF),
    )
    for group, scenario, policies, change, places in sweeps:
        for place in places:
            yield from _runs(group, change(scenario, place), policies, options, at=place)


def _named(options: Options, names: Sequence[str]) -> list[Contender]:
    """The chosen policies that are in `names`, and those that are neither in OFFLINE nor in ONLINE."""
    known = {*OFFLINE, *ONLINE}
    return [one for one in options.policies if one.policy in names or one.policy not in known]


def _grouped(policies: Sequence[Contender], groups: int) -> list[Contender]:
    return [msgspec.structs.replace(one, policy=f"{one.policy}+groups={groups}") for one in policies]


def _queued(policies: Sequence[Contender], first_s: int) -> list[Contender]:
    ends = " ".join(str(first_s * 4**number) for number in range(QUEUES_BUT_LAST))
    return [msgspec.structs.replace(one, policy=f"{one.policy}+hlas_thresholds={ends}") for one in policies]


def _runs(
    group: str,
    scenario: ScenarioFile,
    policies: Sequence[Contender],
    options: Options,
    *,
    at: float | None = None,
    seeds: int | None = None,
    only: int | None = None,
) -> Iterator[Case]:
    """One case per policy and seed. `seeds`: number of seeds, at most; `only`: the only seed."""
    for one in policies:
        for seed in options.seeds[:seeds] if only is None else (only,):
            overrides = {**WHOLE_ROUNDS, **options.given, **one.overrides}
            trial = Simulation(scenario=scenario, policy=one.policy, seed=seed, overrides=overrides)
            yield Case(group=group, arm=one.label, trial=trial, at=at)


# ---- scenarios with one change

Change = Callable[[ScenarioFile, int], ScenarioFile]


def _with_network(scenario: ScenarioFile, gbit: float) -> ScenarioFile:
    """All nodes' networks slower by `gbit` / 25, since the testbed has 25 Gb/s."""
    cluster = cluster_of(scenario)
    types = {
        name: msgspec.structs.replace(one, network_bandwidth=one.network_bandwidth * gbit / max(GBIT))
        for name, one in cluster.gpu_types.items()
    }
    return _on(scenario, msgspec.structs.replace(cluster, name=f"{cluster.name}-{gbit:g}g", gpu_types=types))


def _with_gpus(scenario: ScenarioFile, gpus: int) -> ScenarioFile:
    cluster = cluster_of(scenario)
    counts = zip(cluster.nodes, NODES_OF[gpus], strict=True)
    nodes = [msgspec.structs.replace(group, count=count) for group, count in counts]
    return _on(scenario, msgspec.structs.replace(cluster, name=f"hare-{gpus}", nodes=nodes))


def _with_jobs(scenario: ScenarioFile, jobs: int) -> ScenarioFile:
    workload = scenario.workload
    assert isinstance(workload, PoissonWorkload), "the jobs of hare-160 are drawn"
    return msgspec.structs.replace(scenario, workload=msgspec.structs.replace(workload, count=jobs))


def _with_more(scenario: ScenarioFile, models: Sequence[str]) -> ScenarioFile:
    """Half of the jobs are of these models."""
    workload = scenario.workload
    assert isinstance(workload, PoissonWorkload), "the jobs of hare-15 are drawn"
    mix = mix_named(workload.mix)
    jobs = [
        msgspec.structs.replace(one, weight=one.weight * (TO_HALF if one.model in models else 1.0))
        for one in mix.jobs
    ]
    mixes = {**scenario.catalogue.mixes, workload.mix: msgspec.structs.replace(mix, jobs=jobs)}
    return msgspec.structs.replace(
        scenario, catalogue=msgspec.structs.replace(scenario.catalogue, mixes=mixes)
    )


def _with_batches(scenario: ScenarioFile, factor: float, seed: int) -> ScenarioFile:
    """The same samples of the same jobs in batches of another size."""
    listed = [
        ArrivingJob(at_s=one.at_s, job=msgspec.structs.replace(one.job, workload=_scaled(one, factor)))
        for one in arrivals(scenario, seed=seed)
    ]
    return msgspec.structs.replace(scenario, workload=ListedWorkload(jobs=listed))


def _profiled(scenario: ScenarioFile, seed: int) -> ScenarioFile:
    """The same jobs on a cluster with profiles of their workloads: one batch of each is trained before."""
    own = arrivals(scenario, seed=seed)
    each = {one.job.workload.fingerprint: one.job for one in own}.values()
    first = [
        msgspec.structs.replace(
            job, name=f"{PROFILING_PREFIX}{number}", samples=float(job.workload.batch_size), epochs=None
        )
        for number, job in enumerate(each)
    ]
    listed = [
        *[ArrivingJob(at_s=0.0, job=job) for job in first],
        *[ArrivingJob(at_s=one.at_s + PROFILED_IN_S, job=one.job) for one in own],
    ]
    return msgspec.structs.replace(scenario, workload=ListedWorkload(jobs=listed))


def _on(scenario: ScenarioFile, cluster: ClusterFile) -> ScenarioFile:
    return msgspec.structs.replace(scenario, cluster=cluster)


def _scaled(one: Arrival, factor: float) -> Workload:
    workload = one.job.workload
    return msgspec.structs.replace(workload, batch_size=max(round(workload.batch_size * factor), 1))
