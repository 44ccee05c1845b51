"""An agent whose node goes away takes its leave before: what runs there saves, nothing starts any more."""

import time

import pytest

from schemas.base import Event
from schemas.events import NodeDrained, Outcome, WorkerStopped
from schemas.ids import PlacementId
from schemas.settings import Settings
from services.agent.core import Superseded
from services.agent.tasks import Stopped, StopWorker
from services.agent.work.nodes import with_end_time
from shared.runtime.clock import ScaledClock
from tests.services.agent.agent_bench import HERE, LEAVE_S, LIFE, Bench, formed, joined, node, start, stop

UNTIL = 1_000.0
LEAVES = UNTIL - LEAVE_S


def left(bench: Bench) -> list[Event]:
    return bench.perform(bench.core.wake(LEAVES))


def test_an_agent_without_a_leaving_time_has_no_timer() -> None:
    assert Bench().core.next_wakeup() is None


def test_a_leaving_agent_drains_its_node_once_and_stops_its_workers() -> None:
    bench = Bench(until=UNTIL)
    bench.tell(start("p1"))
    bench.tell(start("p2"))
    bench.tell(stop("p2"))
    assert bench.core.next_wakeup() == LEAVES
    assert bench.core.wake(LEAVES - 1.0) == []
    bench.work.clear()
    [drained] = left(bench)
    assert drained == NodeDrained(at=LEAVES, node_id=HERE, life=LIFE, reason="its time is over")
    assert StopWorker(PlacementId("p1")) in bench.work
    assert bench.core.next_wakeup() is None
    assert left(bench) == []


def test_workers_stopped_by_leaving_have_saved_a_checkpoint() -> None:
    bench = Bench(until=UNTIL)
    bench.tell(start("p1"))
    bench.tell(formed("p1"))
    left(bench)
    [stopped] = bench.tell(Stopped(PlacementId("p1"), 500.0), at=LEAVES + 5.0)
    assert isinstance(stopped, WorkerStopped)
    assert (stopped.outcome, stopped.samples_done, stopped.leads) == (Outcome.CHECKPOINTED, 500.0, True)


def test_a_later_order_is_refused_with_the_reason() -> None:
    bench = Bench(until=UNTIL)
    left(bench)
    [refused] = bench.tell(start("p1"), at=LEAVES + 1.0)
    assert isinstance(refused, WorkerStopped)
    assert (refused.outcome, refused.reason) == (Outcome.REFUSED, "the time of here is over")
    assert bench.work == []


def test_an_operators_drain_does_not_stop_workers() -> None:
    bench = Bench()
    bench.tell(start("p1"))
    bench.work.clear()
    assert bench.tell(NodeDrained(at=1.0, node_id=HERE)) == []
    bench.tell(start("p2"))
    assert StopWorker(PlacementId("p1")) not in bench.work
    assert set(bench.core.state.workers) == {"p1", "p2"}


def test_the_leave_of_an_earlier_life_is_over() -> None:
    earlier = [joined("earlier"), NodeDrained(at=0.0, node_id=HERE, life="earlier")]
    bench = Bench(before=earlier)
    bench.tell(start("p1"))
    assert set(bench.core.state.workers) == {"p1"}


def test_workers_that_it_adopts_too_late_are_stopped_at_once() -> None:
    earlier = [joined("earlier"), start("p1")]
    bench = Bench(before=earlier, adopted=["p1"], until=10.0)
    bench.perform(bench.core.wake(5.0))
    assert bench.work == [StopWorker(PlacementId("p1"))]


def test_another_agents_life_ends_this_one_all_the_same() -> None:
    bench = Bench(until=UNTIL)
    left(bench)
    with pytest.raises(Superseded):
        bench.tell(joined("another"))


def test_the_time_of_a_node_is_known_by_the_clock_of_the_cluster() -> None:
    clock = ScaledClock(origin=time.time() - 50.0, speed=2.0)
    settings = Settings(node_until=time.time() + 100.0)
    assert with_end_time(node(), Settings(), clock).until is None
    assert with_end_time(node(), settings, clock).until == pytest.approx(2.0 * 150.0, abs=30.0)
