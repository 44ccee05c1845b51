"""Which policy plans: the chosen one, the configured one, or the stand-in."""

import pytest

from schemas.events import PlanPublished, PolicyChosen
from schemas.plans import Stage as Made
from schemas.settings import Settings
from services.planner.core.tasks import Look
from shared.domain.core import Work, WorkFailed
from tests.fact_builders import (
    config,
    in_queue,
    joined,
    opened,
    plan,
)
from tests.services.planner.planner_builders import Stage
from tests.services.planner.planner_stages import cluster, places

POLICIES = "tests.services.planner.planner_policies:"


def test_a_policy_chosen_at_run_time_makes_the_next_plan() -> None:
    stage = cluster(*in_queue(demand=(4, 8)), PolicyChosen(at=0.0, policy="fifo"), opened())
    assert (stage.plan.policy, stage.plan.stage, places(stage.plan)) == (
        "fifo", Made.QUEUE, {"job-1": config(node_1=4)},
    )  # fmt: skip


UNFIT = {
    "nonsense": "policy nonsense is unknown; there are allox, allox-gang, exhaustive, ",
    "json:loads": "policy json:loads cannot be built: TypeError: ",
    "no.such.module:Policy": "policy no.such.module:Policy: ModuleNotFoundError: ",
    "json:no_such_name": "policy json:no_such_name: json has no no_such_name",
    POLICIES
    + "RaisesWhenBuilt": f"policy {POLICIES}RaisesWhenBuilt cannot be built: RuntimeError: no licence",
    POLICIES + "no_policy": f"{POLICIES}no_policy is not a policy: its `calls` is None, not a mapping",
    POLICIES
    + "OddCalls": f"{POLICIES}OddCalls is not a policy: its `calls` must map a trigger to a kind of ",
    POLICIES + "WithoutDecide": f"{POLICIES}WithoutDecide is not a policy: it has no decide",
    POLICIES + "Exits": "SystemExit: 3",
}


@pytest.mark.parametrize("policy", UNFIT)
def test_an_unfit_policy_costs_a_note(policy: str) -> None:
    stage = cluster(*in_queue(), PolicyChosen(at=0.0, policy=policy), opened())
    assert stage.plan.policy == "hops"
    stage.until(400.0)
    [note] = [note for made in stage.plans for note in made.notes]
    assert note.startswith(f"hops plans in place of {policy}: {UNFIT[policy]}")
    assert stage.core.troubles() == (note,)
    stage.tell(PolicyChosen(at=401.0, policy="sjf"))
    stage.until(800.0)
    assert (stage.plan.policy, stage.plan.notes, stage.core.troubles()) == ("sjf", (), ())


@pytest.mark.parametrize("policy", UNFIT)
def test_an_unfit_policy_in_the_stream_costs_a_note_after_every_replay(policy: str) -> None:
    facts = [joined(), *in_queue(demand=(8,)), PolicyChosen(at=0.0, policy=policy), opened()]
    for _ in range(2):
        stage = Stage(leads=False)
        stage.replay(*facts)
        assert (
            stage.core.state.policy == policy
        )  # what was folded is what was published, whatever is installed
        stage.lead(4)
        stage.until(stage.now + 400.0)
        made = [fact for fact in stage.facts[len(facts) :] if isinstance(fact, PlanPublished)]
        assert {plan.policy for plan in made} == {"hops"}
        [note] = [note for plan in made for note in plan.notes]
        assert UNFIT[policy] in note
        facts = stage.facts


def test_where_even_the_configured_policy_is_unfit_the_stand_in_plans() -> None:
    stage = cluster(
        *in_queue(),
        PolicyChosen(at=0.0, policy="json:loads"),
        opened(),
        settings=Settings(policy="json:dumps"),
    )
    assert stage.plan.policy == "fifo"
    assert [note.split(":")[0] for note in stage.plan.notes] == [
        "fifo plans in place of json", "fifo plans in place of json",
    ]  # fmt: skip


def test_no_plan_is_made_before_the_policy_is_checked() -> None:
    stage = Stage(leads=False)
    stage.looks = False
    stage.tell(PolicyChosen(at=0.0, policy="fifo"), joined(), *in_queue(demand=(4,)), opened())
    stage.lead(1)
    assert stage.plans == []
    stage.hear_of("fifo")
    assert [made.policy for made in stage.plans] == ["fifo"]


def test_a_look_that_fails_makes_the_policy_unfit() -> None:
    stage = Stage(leads=False)
    stage.looks = False
    stage.tell(PolicyChosen(at=0.0, policy="fifo"), joined(), *in_queue(demand=(4,)), opened())
    stage.lead(1)
    stage.hear_of("hops")
    stage._do(stage.hear(WorkFailed(Look(policy="fifo"), "TimeoutError: too long")))
    assert (stage.plan.policy, stage.plan.notes) == (
        "hops", ("hops plans in place of fifo: TimeoutError: too long",),
    )  # fmt: skip


def test_a_trigger_during_the_policy_check_is_not_lost() -> None:
    """`srtf` plans at every arrival; this one came while nobody knew."""
    stage = Stage(Settings(policy="srtf"), leads=False)
    stage.looks = False
    stage.tell(joined(), opened(), plan(token=0), *in_queue(at=10.0))
    stage.lead(1)
    stage.hear_of("srtf")
    stage.until(12.0)
    assert [list(places(made)) for made in stage.plans[1:]] == [["job-1"]]


def test_a_policy_chosen_again_is_looked_at_again() -> None:
    stage = cluster(*in_queue(), PolicyChosen(at=0.0, policy="json:loads"))
    asked = [
        effect.task
        for effect in stage.hear(PolicyChosen(at=1.0, policy="json:loads"))
        if isinstance(effect, Work)
    ]
    assert asked == [Look(policy="json:loads")]


def test_a_look_that_fails_is_repeated_later_each_time_until_it_succeeds() -> None:
    stage = Stage(Settings(policy="hops"), leads=False)
    stage.looks = False
    asked: list[float] = []
    for _ in range(4):
        stage._do(stage.hear(WorkFailed(Look(policy="hops"), "TimeoutError: too long")))
        due = stage.core.next_wakeup()
        assert due is not None
        asked.append(due - stage.now)
        stage.now = due
        assert stage.core.wake(due) == [Work(Look(policy="hops"))]
        assert stage.core.next_wakeup() is None
    assert asked == [60.0, 120.0, 240.0, 480.0]
    assert stage.core.troubles() == ("fifo plans in place of hops: TimeoutError: too long",)
    stage.hear_of("hops")
    assert stage.core.troubles() == ()
    assert stage.core.next_wakeup() is None


def test_a_policy_that_is_unfit_by_itself_is_not_looked_at_again() -> None:
    stage = Stage(Settings(policy="json:loads"), leads=False)
    assert stage.core.troubles()
    assert stage.core.next_wakeup() is None
