"""The planner as a core: replays, snapshots, and when it wants to be woken."""

import math

import msgspec
import pytest

from schemas.base import Event
from schemas.events import PolicyChosen
from schemas.settings import Settings
from services.planner.core.state import State
from services.planner.core.tasks import Prepare, Prepared, Resolve
from tests.fact_builders import (
    in_queue,
    joined,
    lost,
    opened,
    profile_run,
)
from tests.services.planner.planner_builders import Stage
from tests.services.planner.planner_stages import carried_out, cluster, places

POLICIES = "tests.services.planner.planner_policies"


def busy_day() -> list[Event]:
    stage = cluster(*(fact for name in "abcdef" for fact in in_queue(name, demand=(2, 4))), opened())
    carried_out(stage, stage.plan)
    stage.until(400.0)
    stage.tell(
        lost(at=410.0), joined("node-2", at=420.0), opened(profile_run(node_id="node-2"), at=725.0, number=2)
    )
    return stage.facts


def test_a_replay_gives_the_same_state() -> None:
    facts = busy_day()
    one, other = Stage(leads=False), Stage(leads=False)
    one.tell(*facts)
    other.tell(*facts)
    assert one.core.state == other.core.state


@pytest.mark.parametrize("cut", [0, 5, 12, 20])
def test_a_snapshot_and_the_rest_of_the_stream_give_the_same_state(cut: int) -> None:
    facts = busy_day()
    whole, half = Stage(leads=False), Stage(leads=False)
    whole.tell(*facts)
    half.tell(*facts[:cut])
    half.core.state = msgspec.msgpack.decode(msgspec.msgpack.encode(half.core.state), type=State)
    half.facts = list(facts[:cut])
    half.tell(*facts[cut:])
    assert half.core.state == whole.core.state


def test_the_planner_wants_to_be_woken_only_while_it_leads() -> None:
    stage = cluster()
    wakeup = stage.core.next_wakeup()
    assert wakeup is not None
    assert math.isfinite(wakeup)
    stage.lead(None)
    assert stage.core.next_wakeup() is None


class Replaced(Stage):
    """`fifo` prepares every plan; the tasks of `decided` are what decides it."""

    def __init__(self, policy: str) -> None:
        self.decided: list[Resolve] = []
        super().__init__(Settings(policy=policy))

    def _prepared(self, task: Prepare) -> Prepared:
        return super()._prepared(msgspec.structs.replace(task, policy="fifo"))

    def _resolve(self, task: Resolve) -> None:
        self.decided.append(task)
        super()._resolve(task)


@pytest.mark.parametrize(("policy", "stands_in"), [("srtf", True), ("fifo", False)])
def test_the_policy_that_decides_knows_whether_it_stands_in(policy: str, *, stands_in: bool) -> None:
    stage = Replaced(policy)
    stage.tell(joined(), *in_queue("job"), opened())
    stage.until(5.0)
    assert {task.stands_in for task in stage.decided} == {stands_in}


def test_a_fragment_plan_that_outlives_its_round_is_made_again() -> None:
    """Also under a policy that no round calls, and with what was noted."""
    stage = Stage(Settings(policy=f"{POLICIES}:WithoutRounds", round_s=360.0))
    stage.work_s = 2.0
    stage.tell(joined())
    stage.until(357.5)
    stage.tell(PolicyChosen(at=357.6, policy="json:loads"), *in_queue(at=358.5, demand=(1,)))
    stage.until(370.0)
    assert places(stage.plan)
    [note] = stage.plan.notes
    assert note.startswith(f"{POLICIES}:WithoutRounds plans in place of json:loads")


def test_a_policy_cannot_have_one_plan_follow_the_other_at_once() -> None:
    stage = Stage(Settings(policy=f"{POLICIES}:AtOnceAgain", fragment_settle_s=1.0))
    stage.tell(joined(), *in_queue(demand=(1,)), opened())
    stage.until(20.0)
    assert 2 < len(stage.plans) < 25
