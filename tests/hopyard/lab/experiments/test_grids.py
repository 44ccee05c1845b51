import re

import msgspec
import pytest

from hopyard.failures import Invalid
from hopyard.lab.experiments import accuracy, grids, paper, scalability
from hopyard.lab.experiments.baselines import (
    AS_PUBLISHED,
    AUTHORS,
    EVERY_JOB,
    PAPER,
    READ_OTHERWISE,
    SETUPS,
    Setup,
    contender,
    readings,
)
from hopyard.lab.experiments.grids import HOUR_S, at_rate
from hopyard.lab.report.measures import HEADLINE
from hopyard.lab.runs.solving import solved
from hopyard.lab.runs.trials import Simulation, Solved, SolveRow, Solving
from loadgen.scenarios import arrivals, catalogue_of, cluster_of, load_scenario
from schemas.catalogue import CatalogueFile
from schemas.scenarios import ListedWorkload, PolicyChange
from schemas.settings import Settings
from services.planner.policies.hops.policy import DEPARTURES as RULES
from services.planner.policies.registry import Registry, names
from shared.domain.iteration import DEPARTURES as EQUATIONS
from shared.domain.policy_names import parted
from tests.hopyard.lab.experiment_builders import options


def test_a_comparison_runs_every_policy_in_both_settings_with_every_seed() -> None:
    cases = [
        (case.group, case.arm, case.seed) for case in grids.comparison(options(policies=("fifo", "sia")))
    ]
    assert cases == [
        (group, arm, seed) for group in (PAPER, AUTHORS) for arm in ("fifo", "sia") for seed in (1, 2)
    ]


def test_only_the_named_policies_run() -> None:
    cases = list(grids.asked(options(policies=("hops", "sia", "gavel", "gavel+queue=window+gap=0.5"))))
    trials = {
        (case.trial.policy, *case.trial.overrides) for case in cases if isinstance(case.trial, Simulation)
    }
    assert trials == {("hops",), ("sia",), ("gavel",), ("gavel+queue=window", "gap")}
    assert len(cases) == 8  # two seeds


def test_among_the_papers_policies_hops_runs_by_finish_time_fairness_too() -> None:
    arms = [case.arm for case in grids.table(options(policies=grids.POLICIES, seeds=(1,)))]
    assert arms == [*grids.POLICIES, *grids.POLICIES, "hops, priority ftf", *readings()]


def test_rivals_take_part_by_the_same_cut_of_the_queue() -> None:
    """Whatever one of them is given, the other is given too."""
    for group in (PAPER, READ_OTHERWISE):
        cuts: dict[str, set[object]] = {}
        for case in grids.table(options(policies=grids.POLICIES, seeds=(1,))):
            if case.group == group and isinstance(case.trial, Simulation):
                name, chosen = parted(case.trial.policy)
                cuts.setdefault(name, set()).add(chosen.get("queue", "all"))
        assert (
            cuts["sia"] == cuts["gavel"] == ({"window"} if group == PAPER else {"window", "all", "weights"})
        )


@pytest.mark.parametrize(("arm", "setup"), readings().items())
def test_a_reading_changes_one_thing(arm: str, setup: Setup) -> None:
    own = parted(setup.policy)
    assert Registry().find(setup.policy)
    [paper_] = (
        case.trial
        for case in grids.table(options(policies=grids.POLICIES, seeds=(1,)))
        if case.group == PAPER and case.arm == arm.partition(",")[0]
    )
    assert isinstance(paper_, Simulation)
    usual = parted(paper_.policy)
    changed = [own.name != usual.name, own.options != usual.options, setup.overrides != paper_.overrides]
    assert sum(changed) == ("," in arm)


def test_no_further_policy_runs() -> None:
    assert {case.arm for case in grids.table(options())} == {"hops", "fifo"}


@pytest.mark.parametrize("setups", SETUPS.values(), ids=SETUPS.keys())
def test_the_settings_and_variants_of_baselines_exist(setups: dict[str, Setup]) -> None:
    for setup in setups.values():
        assert parted(setup.policy).name in names()
        assert Registry().find(setup.policy)
        assert msgspec.convert(setup.overrides, Settings)


def test_a_contender_may_have_options_and_settings_of_its_own() -> None:
    (case, _, _, _) = grids.comparison(options(policies=("gavel+queue=weights+gap=0.5+reset_s=60",)))
    assert isinstance(case.trial, Simulation)
    assert case.arm == "gavel+queue=weights+gap=0.5+reset_s=60"
    assert (case.trial.policy, case.trial.overrides) == (
        "gavel+queue=weights+reset_s=60",
        {**AS_PUBLISHED, **EVERY_JOB, "gap": 0.5},
    )


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("hops+nothing=1", "policy hops has no option nothing; it has priority_power, "),
        ("hops+moving_cost=1", "did you mean moving_cost_s?"),
        ("hops+window_factor=much", "policy hops, option window_factor: it must be a number"),
        ("hops+gap=much", "hops+gap=much: gap: it must be a number, but is text (it is 'much')"),
        ("hops+gap", "a policy is written NAME"),
        ("", "an empty name: a policy is written NAME"),
        ("hops+seed=7", "hops+seed=7: --seeds decides the setting seed"),
        ("hops+policy=fifo", "--policies decides the setting policy"),
        ("hops+dump_problems=there", "`simulate --dump-problems` decides the setting dump_problems"),
        ("hops+round_s=0.1", "hops+round_s=0.1: round_s: it must be a number >= 1.0 (it is '0.1')"),
        ("hops+speed=10", "hops+speed=10: the setting speed has no effect in a simulation"),
    ],
)
def test_an_option_or_a_setting_that_cannot_be_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=re.escape(complaint)):
        contender(text)


def test_an_option_of_a_policy_may_have_the_name_of_a_setting() -> None:
    assert contender("jps+seed=7").policy == "jps+seed=7"


def test_every_departure_is_a_row_and_so_are_all_of_them() -> None:
    cases = list(grids.departures(options(seeds=(1,))))
    trials = {case.arm: case.trial for case in cases if isinstance(case.trial, Simulation)}
    assert list(trials) == ["hops", *(f"{word}, as printed" for word in (*RULES, *EQUATIONS)), "hops-literal"]
    assert len({msgspec.json.encode(trial) for trial in trials.values()}) == len(trials)
    assert trials["hops-literal"].overrides["equations_as_printed"] == "all"
    for trial in trials.values():
        assert Registry().find(trial.policy)
        assert msgspec.convert(trial.overrides, Settings)


def test_priorities_change_only_the_rule() -> None:
    rules = [
        case.trial.policy
        for case in grids.priorities(options(seeds=(1,)))
        if isinstance(case.trial, Simulation)
    ]
    assert rules == [f"hops+moving_cost_s=0+priority_rule={rule}" for rule in grids.PRIORITIES]


def test_at_another_rate_the_same_jobs_come_faster() -> None:
    scenario = load_scenario("tiny")
    usual, faster = (arrivals(at_rate(scenario, rate, 1), seed=1) for rate in (40.0, 80.0))
    assert [one.job for one in faster] == [one.job for one in usual]
    assert [one.at_s for one in faster] == pytest.approx([one.at_s / 2 for one in usual])


def test_predictions_are_tried_with_the_settings_of_the_scenario() -> None:
    scenario = load_scenario("hops-64")
    assert scenario.settings == {"calibrate": True}
    cases = list(accuracy.cases(options(scenario=scenario)))
    assert {case.group for case in cases} == {
        accuracy.THEORY,
        accuracy.STRUCTURES,
        accuracy.RESIDUALS,
        accuracy.SCHEDULED,
        accuracy.LEARNING,
    }
    for case in cases:
        assert isinstance(case.trial, Simulation)
        assert case.trial.scenario.settings == scenario.settings


def test_a_quick_look_at_predictions_has_jobs_on_more_than_one_node() -> None:
    made = [case for case in accuracy.cases(options(quick=True)) if case.group != accuracy.SCHEDULED]
    assert made
    for case in made:
        jobs = [arrival.job for arrival in arrivals(case.trial.scenario)]
        assert any(job.gpus == 4 and job.gpu_types == ["rtx-3090"] for job in jobs)  # two on a node


def test_listed_jobs_come_faster_too() -> None:
    found = arrivals(load_scenario("tiny"), seed=1)
    jobs = [{"at_s": one.at_s, "job": msgspec.to_builtins(one.job)} for one in found]
    listed = msgspec.structs.replace(
        load_scenario("tiny"), workload=msgspec.convert({"arrivals": "listed", "jobs": jobs}, ListedWorkload)
    )
    times = [one.at_s for one in arrivals(at_rate(listed, 100.0, 1), seed=1)]
    assert len(times) / times[-1] * HOUR_S == pytest.approx(100.0)


def test_jobs_that_come_at_once_have_no_rate() -> None:
    crowd = scalability.crowded(load_scenario("tiny"), jobs=8, gpus=12, seed=1)
    with pytest.raises(Invalid, match="at once"):
        at_rate(crowd, 100.0, 1)


def test_a_crowd_waits_from_the_start_on_a_cluster_in_proportion() -> None:
    scenario = scalability.crowded(load_scenario("hops-512"), jobs=30, gpus=128, seed=1)
    assert [one.at_s for one in arrivals(scenario)] == [0.0] * 30
    assert [group.count for group in cluster_of(scenario).nodes] == [4, 4, 4, 2, 2]


def test_a_crowd_has_the_settings_and_the_catalogue_of_its_scenario() -> None:
    scenario = msgspec.structs.replace(
        load_scenario("tiny"),
        settings={"round_s": 90.0},
        catalogue=CatalogueFile(mixes={"mine": catalogue_of(load_scenario("tiny")).mixes["short"]}),
        policies=[PolicyChange(at_s=60.0, policy="fifo")],
    )
    crowd = scalability.crowded(scenario, jobs=8, gpus=12, seed=1)
    assert (crowd.settings, crowd.catalogue, crowd.policies) == (scenario.settings, scenario.catalogue, [])


def test_programs_of_one_seed_are_averaged_first() -> None:
    """Three seeds whose programs differ less among themselves than the seeds do."""

    def solve(gap: float, seed: int, program: int) -> SolveRow:
        return SolveRow(
            configurations=1000 * seed + program, tolerated=gap, cpu_s=10.0 - seed, gap=0.0, stage="optimal"
        )

    [case, *_] = scalability.cases(options(policies=("hops",), seeds=(1,), quick=True))
    done = [
        (
            msgspec.structs.replace(case, trial=msgspec.structs.replace(case.trial, seed=seed)),
            Solved(rows=tuple(solve(gap, seed, n) for n in (1, 2, 3) for gap in scalability.GAPS)),
        )
        for seed in (2, 1, 4)
    ]
    found = {(one.arm, one.measure): one.values for one in scalability.figures_of(done)}
    assert found["programs", "configurations"] == (1002.0, 2002.0, 4002.0)
    assert {values for (arm, _), values in found.items() if arm != "programs"} == {(9.0, 8.0, 6.0)}


def test_the_paper_is_quoted_in_measures_that_are_shown() -> None:
    shown = {measure.metric for measure in HEADLINE}
    for _, table in paper.TABLES.values():
        assert all(shown >= figures.keys() for figures in table.values())


def test_no_job_of_a_crowd_waits_for_a_profile() -> None:
    crowds = [
        (case.at, solved(case.trial))
        for case in scalability.cases(options(policies=("hops",), seeds=(1,), quick=True))
        if case.group == scalability.BY_JOBS and isinstance(case.trial, Solving)
    ]
    assert [jobs for jobs, _ in crowds] == [8, 16]
    few, many = (min(row.configurations for row in found.rows) for _, found in crowds)
    assert 0 < few < many
