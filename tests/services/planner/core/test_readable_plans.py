"""Every plan can be read: what no reader can decode is in no stream, and the planner would wait for it."""

from collections.abc import Sequence

import msgspec
import pytest

from schemas.base import Event
from schemas.codec import decode_fact, encode
from schemas.events import JobQueued
from schemas.numbers import MOST
from schemas.settings import Settings
from services.planner.policies.registry import names
from tests.fact_builders import in_queue, joined, opened
from tests.services.planner.planner_builders import Stage

POWERFUL = ["hops+priority_rule=fifo+priority_power=10", "hopyard+priority_power=10"]
MODES = ("forked", "lockstep", "relaxed")


def endless(name: str, *, demand: Sequence[int]) -> list[Event]:
    """A job as long as a message can say."""
    *before, last = in_queue(name, demand=demand, samples=MOST)
    assert isinstance(last, JobQueued)
    slowly = dict.fromkeys(last.single_gpu, 1e-3)
    return [*before, msgspec.structs.replace(last, age_s=MOST, single_gpu=slowly)]


def read(stage: Stage) -> None:
    assert stage.plans
    for plan in stage.plans:
        assert decode_fact(encode(plan)) == plan
        assert not plan.notes


@pytest.mark.parametrize("policy", [*names(), *POWERFUL])
def test_jobs_of_any_length_are_planned(policy: str) -> None:
    stage = Stage(Settings(policy=policy))
    stage.tell(joined(modes=MODES), *endless("first", demand=(2, 4)), *endless("second", demand=(2, 4)))
    stage.tell(*in_queue("short"), opened())
    stage.until(4_000.0)
    stage.tell(joined("node-2", at=4_000.0, modes=MODES), *in_queue("late", at=4_000.0))
    stage.until(5_000.0)
    read(stage)
    placed = {one.job_id for plan in stage.plans for one in plan.placements}
    assert "late" in placed | {one.job_id for plan in stage.plans for one in plan.left_out}


def test_a_standing_too_large_for_a_message_is_capped() -> None:
    stage = Stage(Settings(policy="srsf"))
    stage.tell(joined(), *endless("job-1", demand=(8,)), opened())
    assert stage.plan.measures.priority == "expected GPU-seconds left, least first"
    assert [each.priority for each in stage.plan.standings.values()] == [MOST]


def test_a_clock_that_is_set_right_while_a_plan_is_made_costs_no_plan() -> None:
    stage = Stage(Settings(policy="fifo"))
    stage.work_s = 5.0
    stage.tell(joined(at=100.0), *in_queue(at=100.0), opened(at=100.0))
    [(_, answer)] = stage.at_work
    stage.now = 90.0
    stage._do(stage.hear(answer))
    read(stage)
    assert stage.plan.decision_s == 0.0
