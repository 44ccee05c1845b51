"""Hare's experiment: which runs it makes, scenarios that differ in one thing, and what the report says."""

import math
from collections import Counter
from collections.abc import Sequence

import msgspec
import pytest

from hopyard.lab.experiments.hare import cases
from hopyard.lab.experiments.hare.report import MEASURES, PARTS, figures_of, report
from hopyard.lab.report.document import Picture, Table
from hopyard.lab.runs.cases import Case, Finished
from hopyard.lab.runs.trials import GpuTime, Simulation
from loadgen.scenarios import arrivals, cluster_of, load_scenario
from loadgen.simulation import simulate
from loadgen.workloads.mixes import mix_named
from schemas.events import JobProfiled
from schemas.ids import GpuType
from schemas.scenarios import ScenarioFile
from services.planner.policies.registry import Registry
from shared.domain.cluster import nodes_of
from tests.hopyard.lab.experiment_builders import finished, job, options, outcome

SWEEPS = {cases.GPUS_OFFLINE, cases.JOBS_OFFLINE, cases.GPUS_ONLINE, cases.JOBS_ONLINE}


def made(
    *, full: bool = False, seeds: Sequence[int] = (1, 2), policies: Sequence[str] = cases.POLICIES
) -> list[Case]:
    asked = options(scenario=load_scenario(cases.SCENARIO), policies=policies, seeds=tuple(seeds))
    return list(cases.cases(msgspec.structs.replace(asked, full=full)))


def scenario_of(case: Case) -> ScenarioFile:
    assert isinstance(case.trial, Simulation)
    return case.trial.scenario


def policy_of(case: Case) -> str:
    assert isinstance(case.trial, Simulation)
    return case.trial.policy


def test_every_group_has_its_part_and_only_a_full_run_has_sweeps() -> None:
    usual, full = ({case.group for case in made(full=each)} for each in (False, True))
    assert usual == PARTS.keys() - SWEEPS
    assert full == PARTS.keys()


def test_policies_of_one_half_are_not_in_the_other_and_one_s_own_are_in_both() -> None:
    here = made(policies=("srtf", "hlas", "las"))
    offline = {case.arm for case in here if case.group == cases.LEVELS["high"]}
    online = {case.arm for case in here if case.group == cases.OVER_TIME}
    assert (offline, online) == ({"srtf", "las"}, {"hlas", "las"})
    grouped = {policy_of(case) for case in here if case.group == cases.GROUPS}
    assert grouped == {f"hlas+groups={groups}" for groups in cases.GROUPS_OF}
    queued = {case.at: policy_of(case) for case in here if case.group == cases.QUEUES}
    assert queued[60] == f"hlas+hlas_thresholds={cases.THRESHOLDS}"
    assert queued.keys() == set(cases.FIRST_QUEUE_S)


def test_policies_that_plan_by_size_run_without_sizes_where_jobs_arrive() -> None:
    online = {case.arm for case in made() if case.group == cases.OVER_TIME}
    assert {arm for arm in online if arm.startswith(("allox", "sched-homo"))} == set(cases.WITHOUT_SIZES)
    assert all(Registry().find(name) for name in cases.WITHOUT_SIZES)


def test_a_quick_run_is_one_group_on_any_scenario() -> None:
    asked = options(policies=("srtf", "hlas"), quick=True)
    assert [case.group for case in cases.cases(asked)] == [cases.TESTBED] * 4


def test_jobs_of_a_trace_are_one_group_beside_which_are_no_numbers_of_the_paper() -> None:
    here = load_scenario(cases.SCENARIO)
    traced = msgspec.structs.replace(here, workload=load_scenario("philly-64").workload)
    runs = list(cases.cases(options(scenario=traced, policies=("hare", "srtf"))))
    assert [case.group for case in runs] == [cases.TESTBED] * 4
    parts = report([Finished(case, outcome(case.arm, case.seed)) for case in runs])
    assert "The paper has nothing about this scenario." in list(parts)


@pytest.mark.parametrize("group", [cases.GPUS_OFFLINE, cases.GPUS_ONLINE])
def test_a_cluster_of_so_many_gpus_has_so_many(group: str) -> None:
    sweep = [case for case in made(full=True, seeds=(1,), policies=("fifo",)) if case.group == group]
    gpus = [sum(node.gpus for node in nodes_of(cluster_of(scenario_of(case)))) for case in sweep]
    assert gpus == [case.at for case in sweep] == list(cases.NODES_OF)


@pytest.mark.parametrize("name", ["hare-15", "hare-160", "hare-160-low", "hare-160-middle", "hare-160-high"])
def test_scenarios_have_the_gpus_and_jobs_that_they_name(name: str) -> None:
    scenario = load_scenario(name)
    assert sum(node.gpus for node in nodes_of(cluster_of(scenario))) == int(name.split("-")[1])
    jobs = arrivals(scenario, seed=1)
    assert len(jobs) == (40 if name == "hare-15" else 200)
    assert (max(one.at_s for one in jobs) == 0.0) is (name != "hare-160")
    domains = Counter(one.job.workload.model for one in jobs)
    assert domains["deepspeech2"] == len(jobs) / 4, "a quarter of the jobs is of speech"


@pytest.mark.parametrize(
    ("name", "gpus", "nodes"),
    [
        ("hare-15", {"v100": 8, "t4": 4, "k80": 1, "m60": 2}, 4),
        ("hare-160", {"v100": 88, "t4": 40, "k80": 10, "m60": 22}, 42),
        ("hare-160-high", {"v100": 88, "t4": 40, "k80": 10, "m60": 22}, 42),
        ("hare-160-middle", {"v100": 80, "k80": 80}, 20),
        ("hare-160-low", {"v100": 160}, 20),
    ],
)
def test_types_are_those_of_the_paper_and_rounds_are_short(
    name: str, gpus: dict[str, int], nodes: int
) -> None:
    """Where the paper has no counts they are in the testbed's proportions, machines as they are there."""
    scenario = load_scenario(name)
    found = Counter[str]()
    for node in nodes_of(cluster_of(scenario)):
        found[node.gpu_type] += node.gpus
    assert (found, len(nodes_of(cluster_of(scenario)))) == (gpus, nodes)
    assert scenario.settings["round_s"] == 60


def test_a_quarter_of_the_jobs_is_of_each_domain() -> None:
    domains = {
        "vision": ("vgg19", "resnet50", "inception-v3"),
        "language": ("bert-base", "transformer"),
        "speech": ("deepspeech2",),
        "recommendation": ("fastgcn", "graphsage"),
    }
    for mix in ("hare-table-2", "hare-table-2-short"):
        weights = {one.model: one.weight for one in mix_named(mix).jobs}
        assert {sum(weights[model] for model in models) for models in domains.values()} == {3.0}
        assert len(weights) == sum(map(len, domains.values()))


def test_batches_are_those_of_the_paper_s_table_but_berts() -> None:
    """BERT's 32 of 384 tokens would fit neither a K80 nor an M60."""
    jobs = arrivals(load_scenario("hare-160"), seed=1)
    assert {one.job.workload.model: one.job.workload.batch_size for one in jobs} == {
        "vgg19": 128, "resnet50": 64, "inception-v3": 32, "bert-base": 12,
        "transformer": 128, "deepspeech2": 8, "fastgcn": 128, "graphsage": 16,
    }  # fmt: skip


def test_batches_are_larger_and_the_samples_the_same() -> None:
    by_factor = {
        case.at: arrivals(scenario_of(case), seed=2)
        for case in made(seeds=(2,), policies=("srtf",))
        if case.group == cases.BATCHES
    }
    for one, other in zip(by_factor[1.0], by_factor[2.0], strict=True):
        assert other.job.workload.batch_size == 2 * one.job.workload.batch_size
        assert (other.job.samples, other.job.epochs) == (one.job.samples, one.job.epochs)
    assert by_factor[1.0] == arrivals(load_scenario(cases.SCENARIO), seed=2)


def test_workloads_are_all_profiled_before_the_jobs_come() -> None:
    """No job that counts is profiled, and the jobs that run for their profiles have ended by then."""
    own = arrivals(load_scenario(cases.SCENARIO), seed=1)
    [case] = [case for case in made(seeds=(1,), policies=("allox",)) if case.group == cases.IN_ADVANCE]
    scenario = scenario_of(case)
    listed = arrivals(scenario, seed=1)
    first, late = listed[: -len(own)], listed[-len(own) :]
    assert [one.job for one in late] == [one.job for one in own]
    assert {one.at_s for one in late} == {cases.PROFILED_IN_S}
    ran = simulate(scenario, policy="allox", seed=1, overrides=cases.WHOLE_ROUNDS)
    names = {one.job_id: one.name for one in ran.result.job_results}
    ends = [
        one.ended_at or math.inf
        for one in ran.result.job_results
        if one.name.startswith(cases.PROFILING_PREFIX)
    ]
    assert (len(ends), max(ends) < cases.PROFILED_IN_S) == (len(first), True)
    known = {names[one.job_id]: one.known for one in ran.events if isinstance(one, JobProfiled)}
    assert all(known[one.job.name] for one in late)
    waits = [one.wait_s for one in ran.result.job_results if not one.name.startswith(cases.PROFILING_PREFIX)]
    assert min(waits) == pytest.approx(10.0, abs=0.1), "somebody starts at once, which takes 10 s"


@pytest.mark.parametrize("domain", cases.MIXES)
def test_half_of_the_jobs_are_of_the_domain(domain: str) -> None:
    [case] = [case for case in made(seeds=(1,), policies=("srtf",)) if case.group == cases.MIXES[domain]]
    models = Counter(one.job.workload.model for one in arrivals(scenario_of(case), seed=1))
    assert sum(models[model] for model in cases.DOMAINS[domain]) == pytest.approx(20, abs=1)


def test_ten_gigabits_are_two_fifths_of_the_testbed_s() -> None:
    by_gbit = {case.at: cluster_of(scenario_of(case)) for case in made() if case.group == cases.NETWORK}
    v100 = GpuType("v100")
    own = cluster_of(load_scenario(cases.SCENARIO)).gpu_types[v100].network_bandwidth
    found = [by_gbit[at].gpu_types[v100].network_bandwidth / own for at in (10.0, 25.0)]
    assert found == [0.4, 1.0]


# ---- the report

TIME = GpuTime(
    useful=40.0, slower_types=20.0, gangs=15.0, restarts=3.0, profiling=2.0, beside_waiting=10.0, idle=10.0
)


def test_measures_of_one_run() -> None:
    jobs = tuple(job(name, jct_s=seconds) for name, seconds in (("a", 100.0), ("b", 1500.0), ("c", 1501.0)))
    one = outcome("fifo", 1, weighted_jct_s=7200.0, switch_s_mean=2.0)
    result = msgspec.structs.replace(one.result, job_results=jobs)
    one = msgspec.structs.replace(one, result=result, gpu_time=TIME)
    assert MEASURES["Σ w · JCT, h"](one) == 2.0
    assert MEASURES["within 25 min, %"](one) == pytest.approx(200 / 3)
    assert MEASURES["mean time to resume, s"](one) == 2.0
    assert MEASURES["computing of GPU time held, %"](one) == 75.0


def test_jobs_that_came_beforehand_are_in_no_measure_of_time() -> None:
    jobs = (
        job("a", name=f"{cases.PROFILING_PREFIX}0", jct_s=9e9, ended_at=9e9),
        *(job(name, jct_s=end_s, ended_at=end_s) for name, end_s in (("b", 3600.0), ("c", 7200.0))),
    )
    one = outcome("fifo", 1, weighted_jct_s=9e9, jct_s_mean=9e9, makespan_s=9e9)
    one = msgspec.structs.replace(one, result=msgspec.structs.replace(one.result, job_results=jobs))
    found = [MEASURES[name](one) for name in ("Σ w · JCT, h", "mean JCT, min", "makespan, min")]
    assert found == [3.0, 90.0, 120.0]
    assert MEASURES["within 25 min, %"](one) == 0.0


def ran(policy: str, group: str, seed: int = 1, at: float | None = None, **metrics: float) -> Finished:
    return finished(policy, seed, group=group, at=at, **metrics)


def test_ratios_are_of_the_same_seed_over_ours() -> None:
    done = [
        *(
            ran("hlas", cases.OVER_TIME, seed, jct_s_mean=seconds)
            for seed, seconds in ((1, 100.0), (2, 400.0))
        ),
        *(
            ran("tiresias", cases.OVER_TIME, seed, jct_s_mean=seconds)
            for seed, seconds in ((1, 300.0), (2, 400.0))
        ),
    ]
    [table] = [part for part in report(done) if isinstance(part, Table)]
    assert table.columns[-1] == ">mean JCT, over hlas"
    assert [row[0] for row in table.rows] == ["**hlas**", "**tiresias**"]
    assert table.rows[1][-1].startswith("2 ±")
    assert [one.values for one in figures_of(done) if one.measure == "mean JCT over hlas"] == [(3.0, 1.0)]


def test_a_sweep_says_how_much_the_last_place_differs_and_is_drawn() -> None:
    done = [ran("hlas", cases.GROUPS, at=at, jct_s_mean=60.0 * at) for at in (5.0, 20.0, 80.0)]
    parts = list(report(done))
    [table] = [part for part in parts if isinstance(part, Table)]
    assert table.rows == [["**hlas**", "5", "20", "80", "16.00"]]
    assert len([part for part in parts if isinstance(part, Picture)]) == 1
    assert {figure.at for figure in figures_of(done)} == {5.0, 20.0, 80.0}


def test_a_sweep_over_gpus_or_jobs_says_how_many_times_ours_the_others_are() -> None:
    """Seed by seed: 3 and 5 times, and at the other place twice."""
    means = {("hlas", 1, 100.0): 60.0, ("hlas", 2, 100.0): 120.0, ("hlas", 1, 300.0): 60.0}
    theirs = {("fifo", 1, 100.0): 180.0, ("fifo", 2, 100.0): 600.0, ("fifo", 1, 300.0): 120.0}
    done = [
        ran(arm, cases.JOBS_ONLINE, seed, at, jct_s_mean=seconds)
        for (arm, seed, at), seconds in (means | theirs).items()
    ]
    _, table = [part for part in report(done) if isinstance(part, Table)]
    assert table.columns == ["mean JCT over hlas", ">100 jobs", ">300 jobs"]
    [[arm, first, last]] = table.rows
    assert (arm, first.startswith("4 ±"), last) == ("**fifo**", True, "2")
    stored = {one.at: one.values for one in figures_of(done) if one.measure == "mean JCT over hlas"}
    assert stored == {100.0: (3.0, 5.0), 300.0: (2.0,)}


def test_the_papers_numbers_stand_beside_its_own_scenario_alone() -> None:
    parts = report([ran("hare", cases.TESTBED, jct_s_mean=60.0)])
    said = [part for part in parts if isinstance(part, str) and part.startswith("The paper")]
    assert said == ["The paper has nothing about this scenario."]


def test_every_group_can_be_reported() -> None:
    done = [ran("hlas", group, at=at, jct_s_mean=60.0) for group in PARTS for at in (1.0, 2.0)]
    headings = [part for part in report(done) if isinstance(part, str) and part.startswith("## ")]
    assert len(headings) == len(PARTS)
