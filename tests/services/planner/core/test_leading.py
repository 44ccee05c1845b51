"""Only the leader plans, and what it does when it begins to lead."""

from schemas.events import PolicyChosen
from schemas.ids import PlanId
from schemas.plans import PlanKind
from schemas.settings import Settings
from tests.fact_builders import (
    in_queue,
    joined,
    opened,
    plan,
)
from tests.services.planner.planner_builders import Stage
from tests.services.planner.planner_stages import cluster


def test_a_planner_that_does_not_lead_folds_facts_and_makes_no_plan() -> None:
    stage = Stage(leads=False)
    stage.tell(joined(), *in_queue(), opened())
    stage.until(1000.0)
    assert stage.plans == []
    assert list(stage.core.state.jobs) == ["job-1"]


def test_losing_the_lease_stops_a_plan_in_the_making() -> None:
    stage = cluster(*in_queue())
    stage.work_s = 5.0
    stage.tell(opened(at=1.0))
    stage.lead(None)
    stage.until(400.0)
    assert stage.plans == []


def test_a_planner_that_takes_over_does_not_plan_the_round_again() -> None:
    stage = Stage(leads=False)
    stage.tell(joined(), *in_queue(demand=(8,)), opened(), plan(token=4))
    stage.lead(7)
    stage.until(50.0)
    assert [made.kind for made in stage.plans[1:]] == [PlanKind.FRAGMENT]
    assert stage.plan.token == 7


def test_seeing_a_newer_leaders_plan_ends_leading() -> None:
    stage = cluster(*in_queue(demand=(8,)))
    stage.tell(plan(token=9, plan_id=PlanId("theirs")))
    stage.until(1000.0)
    assert [made.plan_id for made in stage.plans] == ["theirs"]


def test_plan_ids_differ_between_leaders_and_plans() -> None:
    stage = cluster(*in_queue(demand=(8,)))
    stage.until(400.0)
    stage.lead(None)
    stage.lead(12)
    stage.until(1000.0)
    ids = [made.plan_id for made in stage.plans]
    assert len(set(ids)) == len(ids) >= 3


def test_a_leader_set_to_another_policy_than_the_one_before_announces_it() -> None:
    stage = Stage(Settings(policy="fifo"), leads=False)
    stage.tell(joined(), *in_queue(), PolicyChosen(at=0.0, policy="hops"))
    stage.lead(3, announce=True)
    stage.tell(opened(at=1.0))
    assert [fact.policy for fact in stage.facts if isinstance(fact, PolicyChosen)] == ["hops", "fifo"]
    assert stage.plan.policy == "fifo"


def test_a_leader_with_the_same_setting_keeps_the_policy_chosen_since() -> None:
    stage = Stage(Settings(policy="fifo"), leads=False)
    stage.tell(joined(), *in_queue(), PolicyChosen(at=0.0, policy="hops"))
    stage.lead(3)
    stage.tell(opened(at=1.0))
    assert stage.plan.policy == "hops"
