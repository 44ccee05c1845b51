"""The experiment of JPS: its runs, its tables, and that its figures are those of the paper."""

import msgspec
import pytest

from hopyard.lab.experiments.jps import cases, printed, report
from hopyard.lab.report.document import Part, Table
from hopyard.lab.report.screen import on_screen
from hopyard.lab.runs.cases import Case, Finished
from hopyard.lab.runs.outcomes import simulated
from hopyard.lab.runs.trials import Simulation
from loadgen.scenarios import cluster_of, load_scenario
from loadgen.simulation import simulate
from schemas.results import JobResult
from services.planner.policies.registry import Registry
from shared.domain.cluster import gpus_by_type, nodes_of
from tests.hopyard.lab.experiment_builders import job, options, outcome, trial

CHOSEN = options(scenario=load_scenario(cases.SCENARIO), policies=cases.POLICIES, seeds=(1, 2, 3))
ALL = list(cases.cases(CHOSEN))


def ran(case: Case) -> Finished:
    assert isinstance(case.trial, Simulation)
    trial = case.trial
    found = simulate(trial.scenario, policy=trial.policy, seed=trial.seed, overrides=trial.overrides)
    return Finished(case, simulated(found.result, found.events, ()))


def of(group: str, *arms: str, at: float | None = None) -> list[Finished]:
    """The first seed's."""
    found = {case.arm: case for case in reversed(ALL) if case.group == group and case.at == at}
    return [ran(found[arm]) for arm in arms]


def completion_s(done: Finished) -> float:
    found = report.completion_s(done.outcome)
    assert found is not None
    return found


def tables(parts: list[Part]) -> list[Table]:
    return [part for part in parts if isinstance(part, Table)]


def test_every_policy_of_the_experiment_exists_with_its_options() -> None:
    for case in ALL:
        assert isinstance(case.trial, Simulation)
        assert Registry().find(case.trial.policy)


def test_random_policies_run_once_a_seed_and_others_once() -> None:
    once = [case.arm for case in ALL if case.group == cases.ONCE]
    assert once.count("has") == once.count("exhaustive") == 1
    assert once.count("jps, N = 60") == once.count("optimus-lb") == 3
    drawn = [case.trial for case in ALL if case.group == cases.ONCE and case.arm == "jps, N = 60"]
    assert len({trial.policy for trial in drawn if isinstance(trial, Simulation)}) == 3


def test_a_policy_draws_by_the_seed_of_its_run_unless_it_has_one() -> None:
    def jobs(policy: str, seed: int) -> tuple[JobResult, ...]:
        return simulate(load_scenario(cases.SCENARIO), policy=policy, seed=seed).result.job_results

    assert jobs("jps", 2) == jobs("jps+seed=2", 1) != jobs("jps", 1) == jobs("jps+seed=1", 2)


def test_only_policies_that_are_named_run() -> None:
    few = options(scenario=load_scenario(cases.SCENARIO), policies=("has", "fifo"), seeds=(1, 2))
    runs = list(cases.cases(few))
    assert {case.arm for case in runs} == {"has", "fifo"}
    assert [case.seed for case in runs if case.arm == "fifo"] == [1, 2]


def test_equal_seeds_of_a_policy_are_no_sample() -> None:
    [first, second] = [
        Finished(Case(group=cases.ONCE, arm="fifo", trial=trial(seed=seed)), outcome(seed=1))
        for seed in (1, 2)
    ]
    again = msgspec.structs.replace(second.outcome.result, seed=2)
    second = msgspec.structs.replace(second, outcome=msgspec.structs.replace(second.outcome, result=again))
    assert {one.values for one in report.figures_of([first, second])} == {(3600.0,)}


def test_a_policy_with_settings_of_its_own_runs_as_it_was_named() -> None:
    mine = options(scenario=load_scenario(cases.SCENARIO), policies=("has+round_s=90",), seeds=(1,))
    [run] = cases.cases(mine)
    assert (run.arm, run.trial.overrides) == ("has+round_s=90", {"round_s": 90.0})


def test_larger_clusters_have_the_settings_of_the_shell() -> None:
    mine = msgspec.structs.replace(CHOSEN, given={"round_s": 90.0})
    large = [case for case in cases.cases(mine) if case.group in {cases.ONCE_MORE, cases.SIZES}]
    assert {case.trial.scenario.settings["round_s"] for case in large} == {90.0}


def test_a_mix_of_more_v100_has_as_many_gpus() -> None:
    found = {
        int(case.at or 0): gpus_by_type(nodes_of(cluster_of(case.trial.scenario)))
        for case in ALL
        if case.group == cases.MIX
    }
    assert found == {count: {"v100": count, "p100": 5, "t4": 10 - count} for count in cases.V100_OF_15}


def test_the_lowest_completion_time_is_the_paper_s_and_has_finds_it() -> None:
    """But for whole samples: shares of an iteration are rounded, and its slowest GPU decides."""
    best, has, fair = map(completion_s, of(cases.ONCE, "exhaustive", "has", "jps, N = 60, β = 0"))
    assert best == pytest.approx(printed.BEST_15, rel=0.005)
    assert has == pytest.approx(best)
    assert fair == pytest.approx(4301.35, rel=0.05)


def test_300_gpus_take_as_long_as_the_paper_says() -> None:
    jps, optimus = map(completion_s, of(cases.SIZES, "jps, N = 40", "optimus-lb", at=300.0))
    assert jps == pytest.approx(68.86 + 201.30, rel=0.02)
    assert optimus == pytest.approx(69.13 + 217.96, rel=0.03)


def test_deciding_again_at_resets_shortens_every_measure() -> None:
    [once], [again] = of(cases.ONCE, "has"), of(cases.RESETS, "has")
    for measure in report.MEASURES.values():
        shorter, longer = measure(again.outcome), measure(once.outcome)
        assert shorter is not None
        assert longer is not None
        assert shorter < 0.9 * longer


def test_the_report_sets_the_paper_s_figures_beside_ours() -> None:
    done = [*of(cases.ONCE, "exhaustive", "has"), *of(cases.RESETS, "has", cases.GAVEL)]
    parts = list(report.report(done))
    once, again, gain = tables(parts)
    assert once.rows[0][0] == "**exhaustive**"
    assert once.rows[0][2] == "*3,948.9*"
    assert once.rows[1][4] == "+0.00 %"
    assert [row[0] for row in again.rows] == ["**has**", f"**{cases.GAVEL}**"]
    assert gain.rows[-1][1] == "-41.67 % to -17.01 %"
    assert any(isinstance(part, str) and "HAS / Gavel" in part for part in parts)
    assert len(list(on_screen(parts))) > len(parts)
    figures = report.figures_of(done)
    assert {one.paper for one in figures if one.measure == report.JCT} == {printed.BEST_15, None}


@pytest.mark.parametrize("group", [*report.PARTS])
def test_a_policy_that_never_places_a_job_has_no_figures(group: str) -> None:
    at = 5.0 if group in (cases.MIX, cases.SIZES) else 10.0 if group == cases.ERRORS else None
    waits = job(state="queued", started_at=None, ended_at=None, jct_s=None)
    stuck = outcome()
    stuck = msgspec.structs.replace(
        stuck, result=msgspec.structs.replace(stuck.result, job_results=(waits,)), holds=()
    )
    done = [Finished(Case(group=group, arm="has", trial=trial(), at=at), stuck)]
    [table] = tables(list(report.report(done)))
    assert any("–" in cell for cell in table.rows[0])
    assert report.figures_of(done) == []
