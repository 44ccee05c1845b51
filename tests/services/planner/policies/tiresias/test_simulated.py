"""Tiresias on virtual time, under the services that schedule real clusters."""

from functools import cache

from loadgen.scenarios import load_scenario
from loadgen.simulation import Simulated, simulate
from schemas.events import JobPreempted, PlanPublished, PreemptReason
from schemas.plans import PlanKind
from shared.domain.audit import audit

POLICY = "services.planner.policies.tiresias.policy:Tiresias"


@cache
def ran() -> Simulated:
    """8 jobs; thresholds low enough to be passed by most of them."""
    return simulate(load_scenario("tiny"), policy=POLICY + "+thresholds=300 1200")


def plans() -> list[PlanPublished]:
    return [fact for fact in ran().events if isinstance(fact, PlanPublished)]


def test_all_jobs_end_and_the_log_is_sound() -> None:
    assert audit(ran().events, drained=True, seqs=ran().seqs) == []


def test_tiresias_plans_at_events_and_preempts() -> None:
    rounds = {made.round for made in plans()}
    preempted = [fact for fact in ran().events if isinstance(fact, JobPreempted)]
    assert sum(made.kind is PlanKind.FIRST for made in plans()) > len(rounds)
    assert len(rounds) < len(plans()) < 20 * len(rounds)
    assert preempted
    assert {fact.reason for fact in preempted} == {PreemptReason.PLAN}


def test_the_same_run_twice_gives_the_same_event_log() -> None:
    first = ran().result.event_log_hash
    ran.cache_clear()
    assert ran().result.event_log_hash == first
