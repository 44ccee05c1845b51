"""What the agent makes of the GPUs it sees: which it withholds, when the node drains."""

from schemas.base import Event
from schemas.events import GpusWithheld, NodeDrained, NodeJoined, NodeRestored, Outcome, WorkerStopped
from schemas.ids import PlacementId
from services.agent.gpu_health import FIRST_PAUSE_S, LONGEST_PAUSE_S
from services.agent.tasks import ALL_WELL, Failed, GpusSeen, NotStarted, Started, Stopped
from shared.domain.core import Publish
from tests.services.agent.agent_bench import HERE, Bench, joined, start

P1 = PlacementId("p1")


def busy(*gpus: int) -> GpusSeen:
    return GpusSeen(busy=dict.fromkeys(gpus, "in use by process 7"), broken={})


def broken(*gpus: int) -> GpusSeen:
    return GpusSeen(busy={}, broken=dict.fromkeys(gpus, "has fallen off the bus (Xid 79)"))


def withheld(facts: list[Event]) -> list[list[int]]:
    return [list(fact.gpus) for fact in facts if isinstance(fact, GpusWithheld)]


def test_gpus_in_use_before_the_life_begins_join_withheld() -> None:
    bench = Bench(seen=busy(1))
    first = bench.log[0]
    assert isinstance(first, NodeJoined)
    assert first.withheld == {1: "in use by process 7"}
    bench.tell(start(gpus=3))
    assert list(bench.owners()) == [0, 2, 3]


def test_a_gpu_that_two_looks_find_in_use_is_withheld_until_it_is_free() -> None:
    bench = Bench()
    assert withheld(bench.tell(busy(2), at=2.0)) == []
    assert withheld(bench.tell(busy(2), at=4.0)) == [[2]]
    assert withheld(bench.tell(busy(2), at=6.0)) == []
    assert bench.core.state.free() == [0, 1, 3]
    assert withheld(bench.tell(ALL_WELL, at=8.0)) == [[]]
    assert bench.core.state.free() == [0, 1, 2, 3]


def test_a_gpu_that_only_our_work_uses_is_not_withheld() -> None:
    bench = Bench()
    bench.tell(start(gpus=2))
    bench.tell(Started(P1))
    looks = [bench.tell(busy(0, 1), at=float(at)) for at in (2, 4, 6)]
    assert [withheld(facts) for facts in looks] == [[], [], []]


def test_memory_freed_shortly_after_a_worker_s_end_withholds_no_gpu() -> None:
    bench = Bench()
    bench.tell(start(gpus=1))
    bench.tell(busy(0), at=2.0)
    bench.tell(Stopped(P1, 1.0), at=3.0)
    assert withheld(bench.tell(busy(0), at=4.0)) == []
    assert withheld(bench.tell(ALL_WELL, at=6.0)) == []


def test_a_gpu_that_stays_in_use_after_our_work_has_ended_is_withheld() -> None:
    bench = Bench()
    bench.tell(start(gpus=1))
    bench.tell(busy(0), at=2.0)
    bench.tell(Stopped(P1, 1.0), at=3.0)
    bench.tell(busy(0), at=4.0)
    assert withheld(bench.tell(busy(0), at=6.0)) == [[0]]


def test_gpus_of_adopted_workers_are_not_withheld() -> None:
    earlier = (joined("life-0"), start(gpus=2))
    bench = Bench(adopted=["p1"], before=earlier, seen=busy(0, 1, 2))
    assert list(bench.core.state.withheld) == [2]
    assert bench.core.state.free() == [3]


def test_an_order_for_more_than_is_left_is_refused_and_says_so() -> None:
    bench = Bench(seen=busy(0, 1))
    refusal = bench.tell(start(gpus=3))[0]
    assert isinstance(refusal, WorkerStopped)
    assert refusal.reason == "3 GPUs wanted, 2 free, 2 withheld"


def test_a_broken_gpu_is_withheld_at_once_and_drains_the_node_once() -> None:
    bench = Bench()
    facts = bench.tell(broken(3), at=2.0)
    assert withheld(facts) == [[3]]
    assert [fact.reason for fact in facts if isinstance(fact, NodeDrained)] == [
        "GPU 3: has fallen off the bus (Xid 79)"
    ]
    assert bench.tell(broken(3), at=4.0) == []
    second = bench.tell(broken(1, 3), at=6.0)
    assert withheld(second) == [[1, 3]]
    assert [fact.reason for fact in second if isinstance(fact, NodeDrained)] == [
        "GPU 1: has fallen off the bus (Xid 79)"
    ]


def test_a_node_that_joins_with_a_broken_gpu_drains_at_the_first_look() -> None:
    bench = Bench(seen=broken(0))
    assert list(bench.core.state.withheld) == [0]
    assert [type(fact) for fact in bench.tell(broken(0), at=2.0)] == [NodeDrained]


def drains(bench: Bench, seen: GpusSeen) -> list[NodeDrained]:
    return [fact for fact in bench.tell(seen, at=100.0) if isinstance(fact, NodeDrained)]


def test_a_broken_gpu_drains_no_node_again_that_was_restored_before_the_agent_s_restart() -> None:
    earlier = Bench(life="life-0")
    earlier.tell(broken(3), at=2.0)
    earlier.tell(NodeRestored(at=50.0, node_id=HERE, by="operator"))
    again = Bench(before=earlier.log, seen=broken(3))
    assert drains(again, broken(3)) == []
    assert [fact.broken for fact in drains(again, broken(1, 3))] == [(1,)]


def test_a_gpu_that_breaks_again_after_a_repair_drains_the_node_again() -> None:
    earlier = Bench(life="life-0")
    earlier.tell(broken(3), at=2.0)
    repaired = Bench(life="life-1", before=earlier.log)
    again = Bench(life="life-2", before=[*earlier.log, *repaired.log], seen=broken(3))
    for bench in (repaired, again):
        assert [fact.broken for fact in drains(bench, broken(3))] == [(3,)]


def test_a_job_that_fails_on_a_broken_gpu_is_interrupted() -> None:
    bench = Bench()
    bench.tell(start("p1", gpus=1))
    bench.tell(start("p2", gpus=1))
    bench.tell(broken(0), at=2.0)
    outcomes: dict[PlacementId, WorkerStopped] = {}
    for name in ("p1", "p2"):
        facts = bench.tell(Failed(PlacementId(name), "CUDA error", exit_code=1), at=3.0)
        outcomes |= {fact.placement_id: fact for fact in facts if isinstance(fact, WorkerStopped)}
    assert outcomes[P1].outcome is Outcome.INTERRUPTED
    assert outcomes[P1].reason == "GPU 0: has fallen off the bus (Xid 79); CUDA error"
    assert outcomes[P1].exit_code == 1
    assert outcomes[PlacementId("p2")].outcome is Outcome.FAILED


# ---- starts that fail by the node

FULL = "/run/hopyard: No space left on device"


def pauses(bench: Bench, name: str, at: float) -> float:
    """Seconds for which the node withholds its GPUs after a start that it cannot make."""
    bench.tell(start(name, gpus=1), at=at)
    bench.tell(NotStarted(PlacementId(name), FULL), at=at)
    until = bench.core.next_wakeup()
    assert until is not None
    assert bench.perform(bench.core.wake(until - 0.1)) == []
    assert withheld(bench.perform(bench.core.wake(until))) == [[]]
    assert bench.core.next_wakeup() is None
    return until - at


def test_a_node_that_cannot_start_a_worker_pauses_and_says_why() -> None:
    bench = Bench()
    bench.tell(start("p0", gpus=1))
    bench.tell(Started(PlacementId("p0")))
    bench.tell(start(gpus=2))
    end, pause = bench.tell(NotStarted(P1, FULL), at=5.0)
    assert isinstance(end, WorkerStopped)
    assert (end.outcome, end.reason) == (Outcome.REFUSED, f"cannot be started: {FULL}")
    assert isinstance(pause, GpusWithheld)
    assert list(pause.gpus) == [1, 2, 3], "the worker on GPU 0 goes on"
    assert set(pause.gpus.values()) == {f"starts pause for 30 s after one that failed: {FULL}"}
    [refusal] = bench.tell(start("p2", gpus=1), at=6.0)
    assert isinstance(refusal, WorkerStopped)
    assert refusal.reason == "1 GPUs wanted, 0 free, 3 withheld"


def test_pauses_grow_until_a_worker_starts() -> None:
    bench = Bench()
    lengths = [pauses(bench, f"p{number}", 1e4 * number) for number in range(8)]
    assert lengths[:4] == [FIRST_PAUSE_S * factor for factor in (1, 2, 4, 8)]
    assert lengths[-1] == LONGEST_PAUSE_S
    bench.tell(start("good", gpus=1))
    bench.tell(Started(PlacementId("good")))
    assert pauses(bench, "p9", 1e6) == FIRST_PAUSE_S


def test_starts_that_fail_together_are_one_pause() -> None:
    bench = Bench()
    for name in ("p1", "p2"):
        bench.tell(start(name, gpus=2))
    for name in ("p1", "p2"):
        bench.tell(NotStarted(PlacementId(name), FULL), at=1.0)
    assert list(bench.core.state.withheld) == [0, 1, 2, 3]
    assert bench.core.next_wakeup() == 1.0 + FIRST_PAUSE_S


def test_a_gpu_that_comes_free_while_the_node_pauses_is_withheld() -> None:
    bench = Bench()
    bench.tell(start("p0", gpus=1))
    bench.tell(start(gpus=1))
    bench.tell(NotStarted(P1, FULL), at=5.0)
    assert withheld(bench.tell(Stopped(PlacementId("p0"), 1.0), at=6.0)) == [[0, 1, 2, 3]]


def test_what_changes_twice_in_one_turn_is_two_facts() -> None:
    """Facts with the same id are stored once; the time is part of the id."""
    bench = Bench()
    for name in ("p1", "p2"):
        bench.tell(start(name, gpus=2))
    reports = [NotStarted(PlacementId(name), FULL) for name in ("p1", "p2")]
    effects = [effect for report in reports for effect in bench.core.handle(report, 1.0)]
    facts = [effect.event for effect in effects if isinstance(effect, Publish)]
    pauses = [fact for fact in facts if isinstance(fact, GpusWithheld)]
    assert [list(fact.gpus) for fact in pauses] == [[0, 1], [0, 1, 2, 3]]
    assert len({fact.event_id for fact in pauses}) == 2


def test_a_gpu_that_another_program_takes_while_the_node_pauses_stays_withheld() -> None:
    bench = Bench()
    bench.tell(start(gpus=1))
    bench.tell(NotStarted(P1, FULL), at=5.0)
    for at in (6.0, 7.0):
        bench.tell(busy(2), at=at)
    bench.perform(bench.core.wake(5.0 + FIRST_PAUSE_S))
    assert bench.core.state.withheld == {2: "in use by process 7"}


def test_a_measurement_that_cannot_be_started_is_no_failed_one() -> None:
    bench = Bench()
    bench.tell(start(gpus=1, profile_iterations=12))
    facts = bench.tell(NotStarted(P1, FULL))
    assert [type(fact) for fact in facts] == [WorkerStopped, GpusWithheld]
