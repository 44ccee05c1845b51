"""The planner's outside work: a policy or an estimator that fails costs a note, never the plan."""

from collections.abc import AsyncIterator, Iterator

import msgspec
import pytest

from schemas.base import Message, Question
from schemas.placement import Gang, Lockstep, Relaxed
from schemas.plans import Layer, Stage, Waiting
from schemas.questions import ESTIMATOR, Refused
from schemas.settings import Settings
from services.planner.core.tasks import Resolve
from services.planner.policies.classical.fifo import Fifo
from services.planner.policies.contract.configurations import Configurations
from services.planner.policies.contract.decision import Decision
from services.planner.policies.contract.estimates import Estimated
from services.planner.policies.contract.view import Present, View
from services.planner.solver.effort import Effort
from services.planner.solver.problem import Solve
from services.planner.work.metrics import metrics
from services.planner.work.policy_process import policy_process
from services.planner.work.workers import Workers
from shared.runtime.bus.memory import MemoryBus
from shared.runtime.clock import LoopClock
from shared.runtime.offload import INLINE, HelperProcess, LiveOffload
from shared.runtime.service import Ports
from tests.services.planner.planner_builders import chosen, job, nodes, place_on, present, view
from tests.services.planner.work.workers_builders import SEEN, answer, planned

SETTINGS = Settings(estimate_timeout_real_s=60.0, policy_wants_real_s=60.0, policies_allowed="*")
LIVE = Effort(budget_s=0.5)


async def refuse(_: Question) -> Message:
    return Refused(reason="no store")


@pytest.fixture
async def bus() -> AsyncIterator[MemoryBus]:
    bus = MemoryBus(LoopClock())
    yield bus
    await bus.close()


@pytest.fixture(scope="module")
def process() -> Iterator[HelperProcess]:
    process = policy_process(SETTINGS, LiveOffload())
    yield process
    process.end()


def workers(bus: MemoryBus, policies: HelperProcess | None = None) -> Workers:
    ports = Ports(bus=bus, clock=LoopClock())
    return Workers(SETTINGS, ports, policies or policy_process(SETTINGS, INLINE), grace_real_s=5.0)


async def test_the_estimator_is_asked_and_the_policy_decides(bus: MemoryBus) -> None:
    await bus.serve("estimator", ESTIMATOR, answer)
    ready, decision = await planned(workers(bus))
    assert ready.notes == decision.notes == ()
    assert chosen(decision) == {"x": place_on(a0=4), "y": place_on(a0=4)}
    assert {choice.layer for choice in decision.choices} == {Layer.THEORY}


async def test_an_estimator_that_is_away_leaves_the_last_estimates(bus: MemoryBus) -> None:
    one = workers(bus)
    await bus.serve("estimator", ESTIMATOR, answer)
    await planned(one)
    other = MemoryBus(LoopClock())
    away = workers(other)
    away._remembered = one._remembered
    ready, decision = await planned(away)
    await other.close()
    assert "estimates of earlier plans" in ready.notes[0]
    assert {choice.layer for choice in decision.choices} == {Layer.CACHED}
    assert len(decision.choices) == 2


async def test_a_refusal_by_the_estimator_at_the_first_plan_leaves_no_estimates(bus: MemoryBus) -> None:
    await bus.serve("estimator", ESTIMATOR, refuse)
    ready, _ = await planned(workers(bus))
    assert not ready.estimates.known()
    assert "no store" in ready.notes[0]


async def test_a_policy_that_raises_is_stood_in_for(bus: MemoryBus) -> None:
    await bus.serve("estimator", ESTIMATOR, answer)
    one = workers(bus)
    ready, decision = await planned(one, "tests.services.planner.planner_policies:Raises")
    assert ready.policy == "fifo"
    assert "out of ideas" in ready.notes[0]
    assert chosen(decision) == {"x": place_on(a0=2), "y": place_on(a0=2)}
    assert metrics(one.fallbacks)[0].value == 1.0


async def test_a_decision_that_breaks_a_rule_is_stood_in_for(bus: MemoryBus) -> None:
    await bus.serve("estimator", ESTIMATOR, answer)
    _, decision = await planned(workers(bus), "tests.services.planner.planner_policies:Greedy")
    assert decision.notes == (
        (
            "tests.services.planner.planner_policies:Greedy made an invalid decision: "
            "2 configurations for job x; planned by fifo"
        ),
    )
    assert decision.stage == Stage.QUEUE


async def test_a_job_that_a_decision_does_not_mention_is_left_out(bus: MemoryBus) -> None:
    await bus.serve("estimator", ESTIMATOR, answer)
    _, decision = await planned(workers(bus), "tests.services.planner.planner_policies:Forgets")
    assert (list(chosen(decision)), decision.notes) == (["x"], ())
    [left] = decision.left
    assert (left.job_id, left.reason, left.detail) == ("y", Waiting.OUTWEIGHED, "the policy gives no reason")


async def test_a_decision_that_cannot_be_published_is_stood_in_for(bus: MemoryBus) -> None:
    await bus.serve("estimator", ESTIMATOR, answer)
    _, decision = await planned(workers(bus), "tests.services.planner.planner_policies:Numbers")
    assert "numpy.float32" in decision.notes[0]
    assert decision.stage == Stage.QUEUE


async def test_a_stand_in_keeps_the_memory_of_the_policy_that_failed(bus: MemoryBus) -> None:
    await bus.serve("estimator", ESTIMATOR, answer)
    seen = msgspec.structs.replace(SEEN, memory=b"mine")
    for policy in ("Raises", "Greedy"):
        _, decision = await planned(workers(bus), f"tests.services.planner.planner_policies:{policy}", seen)
        assert decision.memory == b"mine"


class Twice(Fifo):
    """Places each job two times."""

    def decide(
        self, view: View, wanted: Configurations, estimates: Estimated, solve: Solve | None = None
    ) -> Decision:
        decision = super().decide(view, wanted, estimates, solve)
        return msgspec.structs.replace(decision, choices=decision.choices * 2)


async def test_a_stand_in_that_breaks_a_rule_leaves_running_jobs_alone(bus: MemoryBus) -> None:
    await bus.serve("estimator", ESTIMATOR, answer)
    one = workers(bus)
    one._stand_in = Twice()
    seen = view([job("x", (2,), present=present(a0=2)), job("y", (2,))], nodes(8))
    _, decision = await planned(one, "tests.services.planner.planner_policies:Greedy", seen)
    assert chosen(decision) == {"x": place_on(a0=2)}
    assert [left.job_id for left in decision.left] == ["y"]
    assert "planned by fifo" in decision.notes[0]
    assert decision.notes[1] == (
        "fifo made an invalid decision: 2 configurations for job x; running jobs were kept, none started"
    )


@pytest.mark.parametrize("policy", ["Raises", "Greedy"])
async def test_a_stand_in_is_shown_no_jobs_that_lack_its_modes(bus: MemoryBus, policy: str) -> None:
    await bus.serve("estimator", ESTIMATOR, answer)
    seen = view([job("x", (2,), modes=("relaxed",)), job("y", (2,))], nodes(8))
    ready, decision = await planned(workers(bus), f"tests.services.planner.planner_policies:{policy}", seen)
    assert "fifo" in (*ready.notes, *decision.notes)[0]
    assert chosen(decision) == {"y": place_on(a0=2)}
    assert [(left.job_id, left.detail) for left in decision.left] == [("x", "it runs no lockstep gangs")]


@pytest.mark.parametrize("policy", ["Raises", "Greedy"])
async def test_a_stand_in_leaves_running_jobs_of_other_modes_alone(bus: MemoryBus, policy: str) -> None:
    """It decides nothing about `apart`, so that the job goes on; `gone` has no GPUs to go on with."""
    await bus.serve("estimator", ESTIMATOR, answer)
    relaxed = Relaxed(tasks=((1, 1),))
    jobs = [
        job("apart", (2,), present=moded(relaxed, a0=2)),
        job("gone", (2,), present=moded(relaxed, a1=2)),
        job("like", (2,), present=present(a0=2)),
        job("waits", (2,)),
    ]
    name = f"tests.services.planner.planner_policies:{policy}"
    _, decision = await planned(workers(bus), name, view(jobs, nodes(6, 1)))
    assert chosen(decision) == {"gone": place_on(a0=2), "like": place_on(a0=2)}
    assert [left.job_id for left in decision.left] == ["waits"]


async def test_fifo_restarts_jobs_of_other_modes_where_it_was_chosen(bus: MemoryBus) -> None:
    await bus.serve("estimator", ESTIMATOR, answer)
    seen = view([job("x", (2,), present=moded(Relaxed(tasks=((1, 1),)), a0=2))], nodes(8))
    _, decision = await planned(workers(bus), "fifo", seen)
    assert [choice.gang.sync for choice in decision.choices] == [Lockstep()]


def moded(mode: Relaxed, **place: int) -> Present:
    """As `present`, in another mode."""
    held = present(**place)
    return msgspec.structs.replace(held, gang=Gang(held.gang.members, mode))


async def test_a_policys_memory_comes_back_in_its_next_decision(bus: MemoryBus) -> None:
    await bus.serve("estimator", ESTIMATOR, answer)
    _, first = await planned(workers(bus), "tests.services.planner.planner_policies:Counts")
    again = msgspec.structs.replace(SEEN, memory=first.memory)
    _, second = await planned(
        workers(bus), "tests.services.planner.planner_policies:Counts", again
    )  # a planner begun again
    assert (first.memory, second.memory) == (b"1", b"2")


async def test_another_process_decides_the_same(bus: MemoryBus, process: HelperProcess) -> None:
    await bus.serve("estimator", ESTIMATOR, answer)
    _, there = await planned(workers(bus, process))
    _, here = await planned(workers(bus))
    assert there == here


@pytest.mark.parametrize(
    ("policy", "complaint"), [("Crashes", "the process ended"), ("Hangs", "no answer within")]
)
async def test_a_process_that_ends_or_hangs_costs_only_quality(
    bus: MemoryBus, process: HelperProcess, policy: str, complaint: str
) -> None:
    await bus.serve("estimator", ESTIMATOR, answer)
    seen = msgspec.structs.replace(SEEN, effort=LIVE)
    one = workers(bus, process)
    _, decision = await planned(one, f"tests.services.planner.planner_policies:{policy}", seen)
    assert (one.fallbacks.stood_in, one.fallbacks.unsolved) == (0, 1)
    assert complaint in decision.notes[0]
    assert "without solving" in decision.notes[0]
    assert (decision.stage, len(decision.choices)) == (Stage.GREEDY, 2)


async def test_the_process_is_replaced_after_a_crash(bus: MemoryBus, process: HelperProcess) -> None:
    await bus.serve("estimator", ESTIMATOR, answer)
    seen = msgspec.structs.replace(SEEN, effort=LIVE)
    await planned(workers(bus, process), "tests.services.planner.planner_policies:Crashes", seen)
    _, decision = await planned(workers(bus, process))
    assert decision.stage == Stage.OPTIMAL


async def test_a_decision_is_made_from_the_very_view_of_the_first_step(
    bus: MemoryBus, process: HelperProcess
) -> None:
    """Also in another process, so that what a policy made of the view holds; a changed view is another."""
    await bus.serve("estimator", ESTIMATOR, answer)
    policy, one = "tests.services.planner.planner_policies:Continues", workers(bus, process)
    ready, decision = await planned(one, policy)
    assert decision.notes == ("True",)
    later = msgspec.structs.replace(SEEN, at=SEEN.at + 1.0)
    task = Resolve(number=1, policy=policy, view=later, wanted=ready.wanted, estimates=ready.estimates)
    assert (await one.resolve(task)).decision.notes == ("False",)
