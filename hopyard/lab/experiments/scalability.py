"""How long the integer programs take (Hops figures 14 and 15), by gap, jobs and GPUs.

The programs are those that the planner makes in the first rounds of a cluster on which all jobs wait at
once; the paper's come from runs at a rate of arrival, whose queue is shorter. So ours are the harder ones
at the same number of jobs. No job waits for a profile. Seconds are of the CPU.
"""

from collections.abc import Callable, Iterator, Sequence
from math import ceil
from statistics import fmean

import msgspec

from hopyard.lab.experiments import paper
from hopyard.lab.experiments.baselines import KNOWN_TRUSTED, PAPER, setup_of
from hopyard.lab.experiments.options import Options
from hopyard.lab.report import pictures
from hopyard.lab.report.document import Figure, Part, Picture, Table
from hopyard.lab.report.figures import named
from hopyard.lab.report.measures import figure
from hopyard.lab.report.statistics import Summary, summary
from hopyard.lab.runs.cases import Case
from hopyard.lab.runs.trials import Solved, SolveRow, Solving
from loadgen.scenarios import arrivals, cluster_of
from loadgen.simulation import virtual_settings
from schemas.cluster import ClusterFile
from schemas.scenarios import ArrivingJob, ListedWorkload, PoissonWorkload, ScenarioFile, TraceWorkload
from shared.domain.policy_names import parted

BY_JOBS = "number of jobs"
BY_GPUS = "number of GPUs"
GAPS = (0.05, 0.01, 0.0)
JOBS = (100, 250, 500, 1000, 2000)
GPUS = (64, 128, 256, 512, 1000, 1500, 2048)
ROUNDS = 3
WARM_ROUNDS, WARM_S = 2, 720.0
"""rounds and seconds, at least, before the first program: until then jobs are profiled"""
BUDGET_S = 30.0
PROVEN = 1e-6
"""a gap below it counts as 0"""
QUICK_JOBS, QUICK_GPUS = (8, 16), (12, 24)


def cases(options: Options) -> Iterator[Case]:
    scenario = options.scenario
    base = sum(group.count * group.gpus for group in cluster_of(scenario).nodes)
    usual = len(arrivals(scenario, seed=1))
    for jobs in QUICK_JOBS if options.quick else JOBS:
        yield from _case(options, BY_JOBS, float(jobs), jobs, base)
    for gpus in QUICK_GPUS if options.quick else GPUS:
        yield from _case(options, BY_GPUS, float(gpus), max(round(usual * gpus / base), 1), gpus)


def _case(options: Options, group: str, at: float, jobs: int, gpus: int) -> Iterator[Case]:
    setup = setup_of(PAPER, options.policies[0])
    overrides = {**options.given, **setup.overrides, **KNOWN_TRUSTED}  # all may be placed at once
    round_s = virtual_settings(options.scenario, overrides).round_s
    for seed in options.seeds:
        trial = Solving(
            scenario=crowded(options.scenario, jobs, gpus, seed),
            seed=seed,
            gaps=GAPS,
            rounds=2 if options.quick else ROUNDS,
            warm_rounds=max(ceil(WARM_S / round_s), WARM_ROUNDS),
            budget_s=BUDGET_S,
            options=parted(setup.policy).options,
            overrides=overrides,
        )
        yield Case(group=group, arm="solver", trial=trial, at=at)


def crowded(scenario: ScenarioFile, jobs: int, gpus: int, seed: int) -> ScenarioFile:
    """`jobs` of the scenario's jobs, all there from the start, on its cluster scaled to about `gpus`."""
    cluster = scaled(cluster_of(scenario), gpus)
    workload = scenario.workload
    if isinstance(workload, PoissonWorkload):
        workload = msgspec.structs.replace(workload, count=jobs)
    elif isinstance(workload, TraceWorkload):
        workload = msgspec.structs.replace(workload, limit=jobs)
    drawn = arrivals(msgspec.structs.replace(scenario, cluster=cluster, workload=workload), seed=seed)
    listed = [ArrivingJob(at_s=0.0, job=arrival.job) for arrival in drawn[:jobs]]
    return msgspec.structs.replace(
        scenario,
        name=f"{scenario.name}-{jobs}-jobs-{gpus}-gpus",
        cluster=cluster,
        workload=ListedWorkload(jobs=listed),
        policies=[],
    )


def scaled(cluster: ClusterFile, gpus: int) -> ClusterFile:
    """The same proportions, every group of nodes kept."""
    factor = gpus / sum(group.count * group.gpus for group in cluster.nodes)
    groups = [
        msgspec.structs.replace(group, count=max(round(group.count * factor), 1)) for group in cluster.nodes
    ]
    return msgspec.structs.replace(cluster, nodes=groups)


# ---- the report

Solves = Sequence[tuple[Case, Solved]]


def report(done: Solves) -> Iterator[Part]:
    yield (
        f"Every program is solved to each gap, one solve at a time, with at most {figure(BUDGET_S)} s of "
        "the wall clock. What was not done by then counts with the CPU seconds that it took, and the tables "
        "say how many."
    )
    yield "## Figure 14: time by gap"
    yield _by_gap(done)
    yield Table(["the paper, with Gurobi", ""], [[name, said] for name, said in paper.SOLVING.items()])
    yield "## Figure 15: time by size"
    yield Picture("figure-15", "CPU seconds of one solve; the lines go through the means.", _sizes(done))
    for group in (BY_JOBS, BY_GPUS):
        yield f"### By {group}"
        yield _table(_rows(done, group), group)


def figures_of(done: Solves) -> list[Figure]:
    """The size of programs and the seconds to each gap, by place in the sweep.

    Programs of a seed are of consecutive rounds and alike, so each seed counts by their mean.
    """
    found = []
    for group in (BY_JOBS, BY_GPUS):
        solves = _by_seed(done, group)
        for (at, gap), seeds in solves.items():
            found.append(named(group, _gap(gap), "solve, s", _over(seeds, lambda row: row.cpu_s), at))
        for at in dict.fromkeys(at for at, _ in solves):
            sizes = _over(solves[at, GAPS[0]], lambda row: row.configurations)
            found.append(named(group, "programs", "configurations", sizes, at))
    return found


def _by_seed(done: Solves, group: str) -> dict[tuple[float, float], list[list[SolveRow]]]:
    """The solves of each seed, seeds in order, by place in the sweep and tolerated gap."""
    found: dict[tuple[float, float], list[list[SolveRow]]] = {}
    here = [(case.at or 0.0, case.seed, solved.rows) for case, solved in done if case.group == group]
    for at, _, rows in sorted(here, key=lambda each: each[:2]):
        for gap in GAPS:
            found.setdefault((at, gap), []).append([row for row in rows if row.tolerated == gap])
    return found


def _over(seeds: Sequence[Sequence[SolveRow]], measured: Callable[[SolveRow], float]) -> Summary:
    return summary([fmean(map(measured, rows)) for rows in seeds])


Rows = Sequence[tuple[float, SolveRow]]
"""solves, each with its place in the sweep"""


def _rows(done: Solves, group: str) -> Rows:
    return [(case.at or 0.0, row) for case, solved in done if case.group == group for row in solved.rows]


def _by_gap(done: Solves) -> Picture:
    """At the size in the middle of the sweep: the scenario's own, unless a trace is shorter."""
    places = sorted({at for at, _ in _rows(done, BY_JOBS)})
    usual = places[len(places) // 2]
    here = [row for at, row in _rows(done, BY_JOBS) if at == usual]
    panels = {
        "CPU seconds": {_gap(gap): [row.cpu_s for row in here if row.tolerated == gap] for gap in GAPS},
        "proven gap, %": {_gap(gap): [100 * row.gap for row in here if row.tolerated == gap] for gap in GAPS},
    }
    caption = (
        f"Distributions over programs with {usual:g} jobs: CPU seconds of a solve, and the gap it proved."
    )
    drawn = pictures.distributions(panels, [_gap(gap) for gap in GAPS], of="programs")
    return Picture("figure-14", caption, drawn)


def _sizes(done: Solves) -> bytes:
    panels = {
        group: {
            _gap(gap): [(at, row.cpu_s) for at, row in _rows(done, group) if row.tolerated == gap]
            for gap in GAPS
        }
        for group in (BY_JOBS, BY_GPUS)
    }
    arms = [_gap(gap) for gap in GAPS]
    return pictures.points(panels, arms, ("", "CPU seconds"), log="xy", level=(10.0, "10 s"))


def _table(rows: Rows, heading: str) -> Table:
    """A row a size: how large the programs are, and seconds of a solve to each gap, median and worst."""
    columns = [f">{heading}", ">configurations", *(f">{_gap(gap)}: p50, max CPU s" for gap in GAPS)]
    lines = []
    for place in sorted({at for at, _ in rows}):
        here = [row for at, row in rows if at == place]
        widest = max(row.configurations for row in here)
        lines.append([f"{place:g}", f"{widest:,}", *(_times(here, gap) for gap in GAPS)])
    return Table(columns, lines)


def _times(rows: Sequence[SolveRow], gap: float) -> str:
    chosen = [row for row in rows if row.tolerated == gap]
    seconds = sorted(row.cpu_s for row in chosen)
    late = sum(row.gap > max(gap, PROVEN) for row in chosen)
    text = f"{figure(seconds[len(seconds) // 2])}, {figure(seconds[-1])}"
    return f"{text} ({late} of {len(chosen)} not done)" if late else text


def _gap(gap: float) -> str:
    return f"gap {gap:g}" if gap else "no gap"
