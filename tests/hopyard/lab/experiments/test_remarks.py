"""What a comparison says of policies that a workload is out of the range of."""

import msgspec
import pytest

from hopyard.lab.experiments.remarks import NOTES_SHOWN, remarks_of, workload_of
from hopyard.lab.runs.cases import Case, Finished
from hopyard.lab.runs.trials import Simulation
from loadgen.scenarios import load_scenario
from schemas.results import PlanNote, RefusedJob
from schemas.scenarios import ListedWorkload, ScenarioFile
from tests.hopyard.lab.experiment_builders import job, outcome, plan, small
from tests.simulation.storms import SMALL, arriving


def ran(scenario: ScenarioFile, policy: str, *notes: tuple[str, int]) -> Finished:
    rows = tuple(PlanNote(text=text, plans=plans) for text, plans in notes)
    trial = Simulation(scenario=scenario, policy=policy, seed=1)
    made = outcome(policy)
    result = msgspec.structs.replace(made.result, notes=rows)
    made = msgspec.structs.replace(made, result=result, plans=(plan(),) * 10)
    return Finished(Case(group="g", arm=policy, trial=trial), made)


def test_a_policy_that_chooses_counts_is_idle_where_each_job_lists_one() -> None:
    found = remarks_of([ran(small(), "hops"), ran(small(), "gavel"), ran(small(), "fifo")])
    assert found == {"hops": ["chooses GPU counts, and each of the 2 jobs lists one"]}


@pytest.mark.parametrize(("policy", "rule"), [("gavel", "median"), ("gavel+rigid_demand=max", "max")])
def test_a_rigid_policy_leaves_counts_unused(policy: str, rule: str) -> None:
    [said] = remarks_of([ran(load_scenario("tiny"), policy)])[policy]
    assert said.startswith(f"gives a job one GPU count (the {rule}); ")
    assert said.endswith(" of 8 jobs list several")


def test_jobs_of_all_seeds_are_counted() -> None:
    one = ran(load_scenario("tiny"), "gavel")
    other = msgspec.structs.replace(one.case, trial=msgspec.structs.replace(one.case.trial, seed=2))
    [said] = remarks_of([one, msgspec.structs.replace(one, case=other)])["gavel"]
    several = sum(workload_of(load_scenario("tiny"), seed).several for seed in (1, 2))
    assert said == f"gives a job one GPU count (the median); {several} of 16 jobs list several"


def test_jobs_that_only_a_mix_of_types_can_hold_are_counted() -> None:
    wide = msgspec.structs.replace(
        SMALL,
        workload=ListedWorkload(jobs=[arriving(0.0, "wide", 7, 900.0), arriving(0.0, "slim", [1, 8], 9.0)]),
    )
    assert "1 of 2 jobs fit on several GPU types together only" in remarks_of([ran(wide, "sia")])["sia"]


def test_notes_of_plans_are_shown_with_their_counts() -> None:
    notes = [(f"note {index}", 9 - index) for index in range(NOTES_SHOWN + 2)]
    found = remarks_of([ran(small(), "fifo", *notes), ran(small(), "fifo", ("note 1", 4))])
    assert found["fifo"] == [
        "12 of 20 plans: note 1",
        "9 of 20 plans: note 0",
        "7 of 20 plans: note 2",
        "2 other notes of its plans, in the event logs",
    ]


def test_refused_jobs_are_counted_and_take_no_part_in_what_else_is_said() -> None:
    one = ran(load_scenario("hops-64"), "fifo")
    first = RefusedJob(number=1, name="first", at_s=0.0, reason="$.gpus: too many")
    refusing = [refused(one, first), refused(one, first)]
    (said,) = remarks_of(refusing).values()
    assert said[0] == "2 of 6 jobs were refused; figures are about the others"
    whole, without = (workload_of(load_scenario("hops-64"), 1, but) for but in ((), {1}))
    assert without.jobs == whole.jobs - 1
    assert f" of {2 * without.jobs} jobs list several" in said[1]
    every = [msgspec.structs.replace(first, number=number) for number in range(1, whole.jobs + 1)]
    assert len(remarks_of([refused(one, *every)])["fifo"]) == 1


def refused(one: Finished, *jobs: RefusedJob) -> Finished:
    result = msgspec.structs.replace(one.outcome.result, refused=jobs)
    return msgspec.structs.replace(one, outcome=msgspec.structs.replace(one.outcome, result=result))


def test_jobs_that_never_run_are_counted() -> None:
    one = ran(small(), "fifo")
    left = msgspec.structs.replace(
        one.outcome.result, job_results=(job("a"), job("b", state="queued", jct_s=None, ended_at=None))
    )
    waits = Finished(one.case, msgspec.structs.replace(one.outcome, result=left))
    assert remarks_of([waits, one])["fifo"] == ["never places 1 of 4 jobs; figures are about the others"]


def test_jobs_that_end_without_being_complete_are_counted() -> None:
    one = ran(small(), "fifo")
    ends = (job("a"), job("b", state="rejected", jct_s=None), job("c", state="failed", jct_s=None))
    result = msgspec.structs.replace(one.outcome.result, job_results=ends)
    cut = Finished(one.case, msgspec.structs.replace(one.outcome, result=result))
    assert remarks_of([cut])["fifo"] == [
        "1 of 3 jobs were rejected; figures are about the others",
        "1 of 3 jobs failed; figures are about the others",
    ]
