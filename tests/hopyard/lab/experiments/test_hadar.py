"""Hadar's experiment: arms as its paper sets them, ratios seed by seed, and what the paper contradicts."""

import msgspec
import pytest

from hopyard.lab.experiments import hadar
from hopyard.lab.experiments.baselines import AS_PUBLISHED
from hopyard.lab.experiments.options import Options
from hopyard.lab.report.document import Table
from hopyard.lab.runs.cases import Case, Finished
from hopyard.lab.runs.trials import Simulated, Simulation
from loadgen.scenarios import load_scenario
from schemas.accuracy import Execution
from schemas.ids import Fingerprint, JobId, PlacementId
from schemas.plans import Layer
from services.planner.policies.registry import Registry
from tests.hopyard.lab.experiment_builders import finished, job, options, outcome, plan

HOUR_S = 3600.0


def ran(job_id: str, at: float, seconds: float = 100.0, gpus: int = 1, gpu_type: str = "v100") -> Execution:
    return Execution(
        placement_id=PlacementId(f"{job_id}-{at:g}"),
        job_id=JobId(job_id),
        fingerprint=Fingerprint("f"),
        model="lstm",
        gpu_type=gpu_type,
        gpus=gpus,
        nodes=1 + gpu_type.count("+"),
        layer=Layer.TYPE,
        estimated=1.0,
        measured=1.0,
        at=at,
        seconds=seconds,
        number=1,
        unstable=False,
    )


def caused(label: str, **fields: object) -> float | None:
    one: Simulated = msgspec.structs.replace(outcome(), **fields)
    return hadar.CAUSES[label](one)


def test_the_arms_exist_and_tiresias_has_two_queues() -> None:
    chosen = options(scenario=load_scenario("hadar-60"), policies=hadar.POLICIES, seeds=(1,))
    trials = [case.trial for case in hadar.cases(chosen)]
    for trial in trials:
        assert isinstance(trial, Simulation)
        assert Registry().find(trial.policy)
        assert trial.overrides == AS_PUBLISHED
    assert "tiresias+thresholds=3250" in [trial.policy for trial in trials if isinstance(trial, Simulation)]


def test_a_requested_policy_wins_over_the_paper_s_choice() -> None:
    chosen = options(policies=("tiresias+thresholds=10 20",), seeds=(1,))
    [case] = hadar.cases(chosen)
    assert isinstance(case.trial, Simulation)
    assert case.trial.policy == "tiresias+thresholds=10 20"


def test_the_paper_has_nothing_about_other_jobs() -> None:
    assert hadar.reported(options(scenario=load_scenario("hadar-60"))) == hadar.REPORTED
    assert hadar.reported(options(scenario=load_scenario("hadar-60-uniform"))) == {}
    assert hadar.reported(options()) == {}


def test_ratios_are_taken_seed_by_seed() -> None:
    done = [
        finished(arm, seed, makespan_s=hours * HOUR_S * seed)
        for arm, hours in (("hadar", 10.0), ("gavel", 15.0), ("sjf", 20.0))
        for seed in (1, 2)
    ]
    [table] = [part for part in hadar.report(at_hadar_60(), done) if is_ratios(part)]
    assert isinstance(table, Table)
    assert [row[:2] for row in table.rows] == [
        ["**gavel**", "1.5 ± 0"],
        ["", "*1.21*"],
        ["**sjf**", "2 ± 0"],
    ]


def test_figures_hold_the_ratios_and_the_causes() -> None:
    done = [finished(arm, 1, makespan_s=hours * HOUR_S) for arm, hours in (("hadar", 10.0), ("gavel", 15.0))]
    found = {
        (one.group, one.arm, one.measure, one.unit): one.mean for one in hadar.figures_of(options(), done)
    }
    assert found["as in section IV, over hadar", "gavel", "TTD", ""] == 1.5
    assert found[hadar.GROUP, "gavel", "nobody waits after", "h"] == 0.0
    assert found["all, less hadar", "gavel", "makespan", "h"] == 5.0


def at_hadar_60() -> Options:
    return options(scenario=load_scenario("hadar-60"))


def is_ratios(part: object) -> bool:
    return isinstance(part, Table) and ">until half are done" in part.columns


def test_without_the_paper_s_jobs_its_figures_are_not_shown() -> None:
    done = [Finished(Case(group="g", arm="hadar", trial=finished().case.trial), outcome("hadar"))]
    parts = list(hadar.report(options(), done))
    assert not any(map(is_ratios, parts))
    assert not any("paper prints of itself" in part for part in parts if isinstance(part, str))


def test_statements_that_contradict_themselves_are_shown() -> None:
    quotients = {one.what: one.above / one.below for one in hadar.STATEMENTS}
    assert all(abs(quotients[one.what] - one.printed) > 0.02 for one in hadar.STATEMENTS)
    done = [finished("hadar", 1), finished("gavel", 1)]
    [table] = [
        part for part in hadar.report(at_hadar_60(), done)
        if isinstance(part, Table) and ">their quotient" in part.columns
    ]  # fmt: skip
    assert [row[1:] for row in table.rows][1] == ["4200 / 3900", "1.08", "1.18"]
    assert hadar.PAPER_GPU_HOURS == 5.0


def test_the_time_of_a_plan_is_shown_by_the_number_of_jobs() -> None:
    """Fragment plans are left out; an arm that never had so many jobs has no figure."""
    plans = (
        plan(placements=20, left_out=12, solve_s=0.25),
        plan(placements=1, left_out=0, solve_s=0.75),
        plan(placements=30, left_out=0, solve_s=9.0, kind="fragment"),
        plan(placements=40, left_out=480, solve_s=2.0),
    )
    one, other = finished("hadar", 1), finished("gavel", 1)
    done = [Finished(one.case, msgspec.structs.replace(one.outcome, plans=plans)), other]
    [table] = [
        part for part in hadar.report(at_hadar_60(), done)
        if isinstance(part, Table) and part.columns[0] == "jobs"
    ]  # fmt: skip
    assert table.columns == ["jobs", ">hadar, s", ">gavel, s"]
    assert [row[:2] for row in table.rows] == [["1 to 32", "0.5"], ["513 to 1024", "2"]]
    assert table.rows[1][2] == "–"


def test_the_two_bounds_of_a_total_time() -> None:
    jobs = (job("a", gpu_s=6 * HOUR_S, jct_s=5 * HOUR_S, wait_s=HOUR_S), job("b", gpu_s=0.0, jct_s=None))
    result = msgspec.structs.replace(outcome().result, job_results=jobs)
    assert caused("if all GPUs were busy, h", result=result) == 2.0  # three GPUs
    assert caused("the longest run, h", result=result) == 4.0


def test_no_job_waits_after_the_last_plan_that_left_one_out() -> None:
    plans = (plan(at=HOUR_S, left_out=3), plan(at=2 * HOUR_S, left_out=1), plan(at=3 * HOUR_S, left_out=0))
    assert caused("nobody waits after, h", plans=plans) == 2.0
    assert caused("busy until then, %", plans=plans) == pytest.approx(100 * 1.0 / 3)  # 0 and 2 of 3 GPUs


def test_runs_on_several_types_are_weighed_by_gpu_time() -> None:
    runs = (ran("a", 0.0, 300.0), ran("b", 0.0, 100.0, gpus=3, gpu_type="k80+v100"))
    assert caused("several types, %", executions=runs) == 50.0
    assert caused("jobs of one GPU, %", executions=runs) == 50.0
    assert caused("several types, %", executions=()) is None


def test_rounds_in_which_something_moved() -> None:
    """Rounds of 120 s, 480 s in all: a restarts in the second and the fourth, b only once."""
    runs = (ran("a", 10.0), ran("a", 130.0), ran("a", 370.0), ran("b", 130.0))
    result = msgspec.structs.replace(outcome().result, metrics={"makespan_s": 480.0})
    assert caused("rounds with a move, %", result=result, executions=runs) == 50.0
