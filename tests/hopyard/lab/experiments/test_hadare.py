"""HadarE's experiments: which runs they are, and what the report makes of them."""

from collections.abc import Sequence

import msgspec
import pytest

from hopyard.lab.experiments.hadare.cases import AWS, LAB, MIXES, cases, mixes_of
from hopyard.lab.experiments.hadare.report import figures_of, report
from hopyard.lab.report.document import Picture, Table
from hopyard.lab.runs.cases import Finished
from hopyard.lab.runs.trials import Simulation
from loadgen.scenarios import arrivals, load_scenario
from tests.hopyard.lab.experiment_builders import finished, options

POLICIES = ("gavel", "hadar", "hadare", "hadare+lone=forked", "hadare-literal")


def run(policy: str, seed: int = 1, *, mix: str = "M-5", slot: float = 360.0, **metrics: float) -> Finished:
    figures = {"ttd_s": 1000.0, "jct_s_mean": 500.0, "cru": 0.5, "cru_slots": 0.4, "restarts": 0.0}
    return finished(policy, seed, group=f"{AWS}, {mix}", at=slot, **{**figures, **metrics})


def tables(done: Sequence[Finished]) -> list[Table]:
    return [part for part in report(done) if isinstance(part, Table)]


def test_a_mix_of_n_has_n_jobs_of_the_largest() -> None:
    whole = {arrival.job.name for arrival in arrivals(load_scenario(AWS))}
    for name, scenario in mixes_of(load_scenario(AWS)).items():
        jobs = [arrival.job.name for arrival in arrivals(scenario)]
        assert len(set(jobs)) == len(jobs) == int(name.removeprefix("M-"))
        assert whole >= set(jobs)
    assert mixes_of(load_scenario(AWS)).keys() == MIXES.keys()


def test_both_clusters_all_mixes_and_four_slots_for_hadar_and_its_copies() -> None:
    made = list(cases(options(scenario=load_scenario(AWS), policies=POLICIES, seeds=(1,))))
    assert len(made) == 2 * 7 * (2 + 3 * 4)
    assert {case.group.partition(", ")[0] for case in made} == {AWS, LAB}
    assert {case.at for case in made if case.arm == "gavel"} == {360.0}
    assert {case.at for case in made if case.arm == "hadare"} == {90.0, 180.0, 360.0, 720.0}
    for case in made:
        assert isinstance(case.trial, Simulation)
        assert case.trial.overrides["round_s"] == case.at


def test_settings_of_the_shell_hold_on_both_clusters() -> None:
    asked = options(scenario=load_scenario(AWS), policies=("hadare",), seeds=(1,), given={"startup_s": 3.0})
    lab = [case.trial.scenario for case in cases(asked) if case.group.startswith(LAB)]
    assert {one.settings["startup_s"] for one in lab} == {3.0}
    assert {one.settings["profile_iterations"] for one in lab} == {10}


def test_another_scenario_is_one_mix() -> None:
    made = list(cases(options(policies=("hadare",), seeds=(1,), quick=True)))
    assert [(case.group, case.at) for case in made] == [("tiny, all", 360.0)]


def test_gains_are_quotients_of_the_same_mix_and_seed() -> None:
    """Twice as fast on one mix, four times on the other; nodes half as busy again on both."""
    done = [
        *(run("gavel", seed, mix=mix) for mix in ("M-1", "M-5") for seed in (1, 2)),
        *(run("hadare", seed, mix="M-1", ttd_s=500.0, cru_slots=0.6) for seed in (1, 2)),
        *(run("hadare", seed, mix="M-5", ttd_s=250.0, cru_slots=0.6) for seed in (1, 2)),
    ]
    gains = {row[1]: row[2] for row in tables(done)[0].rows}
    assert gains["TTD"] == "3 ± 0 *(1.79)*"
    assert gains["nodes busy by rounds"].startswith("1.5 ± 0 *(1.56)*")


def test_the_paper_s_figures_stand_below_ours() -> None:
    rows = tables([run("gavel"), run("hadar")])[1].rows
    theirs = [row for row in rows if row[1] == "*the paper*"]
    assert [row[2] for row in theirs] == ["*4,200*", "*3,900*"]
    assert [row[4:6] for row in theirs] == [["*1,283*", "*3,159*"], ["*1,210*", "*2,918*"]]


def test_the_best_slot_is_marked_beside_the_paper_s() -> None:
    done = [run("hadare", slot=slot, cru_slots=busy) for slot, busy in ((90.0, 0.8), (360.0, 0.7))]
    (row,) = tables([*done, run("gavel")])[2].rows
    assert row == ["M-5", "hadare", "**80**", "70", "*90*"]


def test_pictures_are_drawn_and_figures_kept() -> None:
    done = [
        run(policy, seed, mix=mix, slot=slot)
        for policy in ("hadar", "hadare")
        for seed in (1, 2)
        for mix in ("M-1", "M-5")
        for slot in (90.0, 360.0)
    ]
    pictures = [part.name for part in report(done) if isinstance(part, Picture)]
    assert pictures == [f"{AWS}-mixes", f"{AWS}-slots"]
    ttd = [one for one in figures_of(done) if one.measure == "TTD"]
    assert all(one.values == (1000.0, 1000.0) for one in ttd if one.group == AWS)
    assert [one.mean for one in ttd if one.group == f"{AWS}, times better than hadar"] == [1.0]


def test_figures_of_a_sweep_are_by_mix_of_their_mean_and_beside_the_usual_length() -> None:
    done = [
        run("hadare", seed, mix=mix, slot=slot, cru_slots=busy + 0.1 * (mix == "M-5") + shift * (seed == 2))
        for mix in ("M-1", "M-5")
        for slot, busy, shift in ((90.0, 0.6, 0.02), (360.0, 0.4, 0.0))
        for seed in (1, 2)
    ]
    found = {
        (one.group.removeprefix(f"{AWS}, "), one.arm, one.at): one.mean
        for one in figures_of(done)
        if one.measure == "nodes busy by rounds"
    }
    assert found == {
        ("by length of a round", "hadare, M-1", 90.0): pytest.approx(61.0),
        ("by length of a round", "hadare, M-5", 90.0): pytest.approx(71.0),
        ("by length of a round", "hadare", 90.0): pytest.approx(66.0),
        ("by length of a round", "hadare, M-1", 360.0): pytest.approx(40.0),
        ("by length of a round", "hadare, M-5", 360.0): pytest.approx(50.0),
        ("by length of a round", "hadare", 360.0): pytest.approx(45.0),
        ("by length of a round, less at 360", "hadare", 90.0): pytest.approx(21.0),
    }


def test_a_workload_that_is_no_batch_has_no_ttd_and_a_report_all_the_same() -> None:
    outcome = run("gavel").outcome
    result = msgspec.structs.replace(outcome.result, metrics=outcome.result.metrics | {"ttd_s": None})
    done = [Finished(run(name).case, msgspec.structs.replace(outcome, result=result)) for name in ("a", "b")]
    assert [row[2] for row in tables(done)[1].rows] == ["–", "–"]
    assert any(isinstance(part, Picture) for part in report(done))
