"""An agent's new life with workers of an earlier one: what it lists, orders again, and passes on."""

import pytest
from msgspec import structs

from schemas.base import Event
from schemas.events import GpusWithheld, NodeDrained, NodeJoined, Outcome, WorkerStarted, WorkerStopped
from schemas.ids import JobId, PlacementId
from services.agent.core import Agent
from services.agent.state import WorkerState
from services.agent.tasks import Completed, Failed, GpusSeen, Started, StopWorker, TrainWorker
from shared.domain.core import Publish
from tests.services.agent.agent_bench import HERE, LIFE, MODES, Bench, formed, joined, node, start, stop

P1 = PlacementId("p1")
MEETING = "10.0.0.1:29500"


def up(name: str = "p1") -> WorkerStarted:
    return WorkerStarted(
        at=1.0,
        node_id=HERE,
        placement_id=PlacementId(name),
        job_id=JobId(f"job-of-{name}"),
        gpu_indices=(0,),
    )


def earlier(*facts: Event) -> list[Event]:
    return [joined("life-0"), *facts]


def test_the_node_joins_with_its_adopted_workers() -> None:
    bench = Bench(adopted=["p1"], before=earlier(start(), up(), start("p2")))
    [fact] = bench.log
    assert isinstance(fact, NodeJoined)
    assert fact.workers == (P1,)
    assert bench.owners() == {0: P1}  # of p2 there is nothing left


def test_a_worker_keeps_the_gpus_that_it_got_when_the_node_had_others() -> None:
    """One of four GPUs fell off the bus; of the three that are left the worker has one."""
    first, second = start(gpus=2), start("p2", gpus=2)
    gone = WorkerStopped(
        at=1.0,
        node_id=HERE,
        placement_id=P1,
        job_id=JobId("job-of-p1"),
        outcome=Outcome.CHECKPOINTED,
        samples_done=0.0,
        leads=True,
    )
    bench = Bench(gpus=3, adopted=["p2"], before=earlier(first, second, gone))
    assert bench.core.state.workers[PlacementId("p2")].gpu_indices == (2, 3)
    assert bench.core.state.free() == [0, 1]
    assert bench.work == [], "p2 goes on"


@pytest.mark.parametrize(
    ("facts", "orders"),
    [
        ([start()], []),
        ([start(), up()], []),
        ([start(), up(), formed(meeting=MEETING)], [TrainWorker(P1, MEETING)]),
        ([start(), up(), formed(meeting=MEETING), stop()], [StopWorker(P1)]),
        ([start(), stop()], [StopWorker(P1)]),
        ([], [StopWorker(P1)]),
    ],
    ids=["starting", "up", "training", "to be stopped", "stopped before it was up", "nobody's"],
)
def test_orders_that_came_while_the_agent_was_away_are_given_at_the_beginning(
    facts: list[Event], orders: list[object]
) -> None:
    assert Bench(adopted=["p1"], before=earlier(*facts)).work == orders


def test_a_worker_that_came_up_while_the_agent_was_away_has_started_now() -> None:
    bench = Bench(adopted=["p1"], before=earlier(start()))
    [fact] = bench.tell(Started(P1, meeting=MEETING), at=9.0)
    assert isinstance(fact, WorkerStarted)
    assert (fact.meeting, fact.at) == (MEETING, 9.0)


def test_a_start_that_was_reported_before_is_not_published_again() -> None:
    bench = Bench(adopted=["p1"], before=earlier(start(), up(), formed()))
    assert bench.tell(Started(P1)) == []
    assert bench.core.state.workers[P1].state is WorkerState.TRAINING


def test_a_report_waits_until_its_worker_is_known() -> None:
    """The runner begins to report before the facts beyond the cursor are read."""
    agent = Agent(node(), LIFE, MODES, adopted=(P1,))
    agent.resume(1.5)
    assert agent.handle(Completed(P1, 1_000.0), 2.0) == []
    for fact in earlier(start(), up(), formed()):
        assert agent.handle(fact, 3.0) == []
    effects = agent.handle(structs.replace(joined(LIFE), workers=(P1,)), 3.0)
    [end] = [effect.event for effect in effects if isinstance(effect, Publish)]
    assert isinstance(end, WorkerStopped)
    assert (end.outcome, end.samples_done) == (Outcome.COMPLETED, 1_000.0)


def test_a_job_that_fails_on_a_gpu_that_broke_before_the_life_began_is_interrupted() -> None:
    agent = Agent(node(), LIFE, MODES, adopted=(P1,))
    for fact in earlier(start(), up(), formed()):
        agent.handle(fact, 1.0)
    agent.resume(1.5)
    broken = GpusSeen(busy={}, broken={0: "has fallen off the bus (Xid 79)"})
    assert agent.handle(broken, 2.0) == agent.handle(Failed(P1, "exit code 1", exit_code=1), 2.0) == []
    effects = agent.handle(structs.replace(joined(LIFE), workers=(P1,)), 3.0)
    facts = [effect.event for effect in effects if isinstance(effect, Publish)]
    assert [type(fact) for fact in facts] == [GpusWithheld, NodeDrained, WorkerStopped]
    assert isinstance(facts[-1], WorkerStopped)
    assert facts[-1].outcome is Outcome.INTERRUPTED


@pytest.mark.parametrize("earlier_life", ["life-0", "life-9"])
def test_before_its_life_begins_an_agent_keeps_reports_and_does_not_leave(earlier_life: str) -> None:
    """Whatever the names of the lives before it: GPUs that broke meanwhile are withheld once it has begun."""
    here = structs.replace(node(), until=1_000.0)
    core = Agent(here, LIFE, MODES, adopted=(P1,))
    assert (core.next_wakeup(), core.wake(2_000.0)) == (None, [])
    for fact in (joined(earlier_life), start(), up()):
        core.handle(fact, fact.at)
    assert (core.next_wakeup(), core.wake(2_000.0)) == (None, [])
    assert core.handle(Completed(P1, 1_000.0), 1.0) == []
    assert core.handle(GpusSeen(busy={}, broken={3: "it fell off the bus"}), 1.0) == []
    [begin] = core.resume(2.0)
    assert isinstance(begin, Publish)
    facts = [effect.event for effect in core.handle(begin.event, 2.0) if isinstance(effect, Publish)]
    assert {type(fact) for fact in facts} == {WorkerStopped, NodeDrained, GpusWithheld}
    assert core.next_wakeup() is not None
