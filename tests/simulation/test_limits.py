"""What a job file may ask for beyond its training, in whole runs: to keep its place, and to end in time."""

from typing import Any

import msgspec
import pytest

from loadgen.simulation import Engine, Simulated, simulate
from schemas.events import JobFailed, JobPreempted, JobStarted, JobSubmitted, PreemptReason
from schemas.scenarios import ListedWorkload, ScenarioFile
from services.planner.policies.registry import names
from shared.domain.audit import audit
from shared.domain.ledger import ledger_of
from tests.simulation.storms import JOBS, NARROW, SMALL, Storm

RESTLESS = "tests.simulation.restless:Restless"
"""a policy that moves whatever it may"""
COPIES = "tests.simulation.mode_policies:Copies"
"""one that merges copies, and deals them again, at every plan"""


def asking(scenario: ScenarioFile, *jobs: str, **fields: Any) -> ScenarioFile:  # noqa: ANN401 - any field of a job file
    """The scenario, where these jobs ask for more."""
    assert isinstance(scenario.workload, ListedWorkload)
    changed = [
        msgspec.structs.replace(one, job=msgspec.structs.replace(one.job, **fields))
        if one.job.name in jobs
        else one
        for one in scenario.workload.jobs
    ]
    return msgspec.structs.replace(scenario, workload=ListedWorkload(jobs=changed))


def moved(ran: Simulated) -> list[str]:
    """Jobs whose place a plan took, each as often as one did."""
    by_plans = [
        fact.job_id
        for fact in ran.events
        if isinstance(fact, JobPreempted) and fact.reason in BY_PLANS and fact.cause is not None
    ]
    names_of = {fact.job_id: fact.spec.name for fact in ran.events if isinstance(fact, JobSubmitted)}
    return [names_of[job_id] for job_id in by_plans]


BY_PLANS = {PreemptReason.PLAN, PreemptReason.MERGE}
LIMITLESS = {"minimum_run_restarts": 0.0, "restart_share_max": 1.0}
FIXED = ("distributed", "elastic")
NARROW_FIXED = ("wide", "elastic")
"""of the scenario all of whose jobs every policy can place"""


PLACES_ALL = sorted({*names()} - {"hops-literal"})
"""as printed, Hops never gives a job the last GPU of a node, and some of `NARROW` ask for whole ones"""


@pytest.mark.parametrize("policy", [*PLACES_ALL, RESTLESS, COPIES])
def test_jobs_that_are_not_preemptible_run_through_under_every_policy(policy: str) -> None:
    ran = simulate(asking(NARROW, *NARROW_FIXED, preemptible=False), policy=policy, overrides=LIMITLESS)
    assert audit(ran.events, drained=True, seqs=ran.seqs) == []
    assert set(moved(ran)).isdisjoint(NARROW_FIXED)
    assert ran.result.jobs == {"submitted": JOBS, "completed": JOBS}


@pytest.mark.parametrize("policy", [RESTLESS, COPIES])
def test_without_that_some_policies_move_them(policy: str) -> None:
    assert set(moved(simulate(NARROW, policy=policy, overrides=LIMITLESS))) >= set(NARROW_FIXED)


@pytest.mark.parametrize("seed", range(6))
def test_in_a_storm_no_plan_takes_their_place_either(seed: int) -> None:
    scenario = asking(SMALL, *FIXED, preemptible=False)
    ran = simulate(scenario, policy=RESTLESS, seed=seed, overrides=LIMITLESS, disturb=[Storm(seed)] * 3)
    assert audit(ran.events, drained=True, seqs=ran.seqs) == []
    assert ran.result.jobs == {"submitted": JOBS, "completed": JOBS}


@pytest.mark.parametrize("engine", ["conductor", "loop"])
def test_a_job_ends_at_its_time_limit_over_all_moves(engine: Engine) -> None:
    scenario = asking(SMALL, "distributed", time_limit=200.0)
    ran = simulate(scenario, policy=RESTLESS, overrides=LIMITLESS, engine=engine)
    assert audit(ran.events, drained=True, seqs=ran.seqs) == []
    [end] = (fact for fact in ran.events if isinstance(fact, JobFailed))
    assert end.reason == "its time limit of 200 s of running is over"
    starts = [fact for fact in ran.events if isinstance(fact, JobStarted) and fact.job_id == end.job_id]
    assert len(starts) > 1
    assert ledger_of(ran.events).jobs[end.job_id].run_s == pytest.approx(200.0)
    assert ran.result.jobs == {"submitted": JOBS, "completed": JOBS - 1, "failed": 1}
