"""What the agent makes of orders for jobs that take turns on the same GPUs."""

import msgspec
import pytest

from schemas.events import Outcome, StartOrdered, TurnsOrdered, WorkerStopped
from schemas.ids import PlacementId, PlanId, RotaId
from schemas.placement import Gang, Relaxed
from services.agent.tasks import NotStarted, Started, StartWorker, Stopped, TrainWorker, TurnWorker
from tests.services.agent.agent_bench import HERE, Bench, formed, joined, start, stop


def in_turns(name: str, *, gpus: int = 2, turns: int = 1, place: int = 0, rota: str = "r") -> StartOrdered:
    sync = Relaxed(tasks=((1,) * gpus,), rota=RotaId(rota), turns=turns, place=place)
    return start(name, gpus=gpus, sync=sync)


def ordered(order: StartOrdered, gang: Gang) -> TurnsOrdered:
    return TurnsOrdered(
        at=5.0,
        node_id=HERE,
        placement_id=order.placement_id,
        job_id=order.job_id,
        gang=gang,
        plan_id=PlanId("plan-2"),
    )


def indices(bench: Bench) -> dict[str, tuple[int, ...]]:
    return {task.order.placement_id: task.gpu_indices for task in bench.work if isinstance(task, StartWorker)}


def refusals(bench: Bench, order: StartOrdered) -> list[str]:
    found = bench.tell(order)
    return [one.reason for one in found if isinstance(one, WorkerStopped) and one.outcome is Outcome.REFUSED]


def test_workers_of_a_rota_have_the_same_gpus_and_others_have_others() -> None:
    bench = Bench()
    for order in (in_turns("p1"), start("p2"), in_turns("p3", place=1), start("p4")):
        bench.tell(order)
    assert indices(bench) == {"p1": (0, 1), "p2": (2,), "p3": (0, 1), "p4": (3,)}
    assert refusals(bench, start("p5")) == ["1 GPUs wanted, 0 free"]
    assert refusals(bench, in_turns("p6", place=2)) == []


def test_none_joins_a_rota_while_the_node_pauses() -> None:
    """Its GPUs are held by the others of the rota, so they are not withheld."""
    bench = Bench()
    bench.tell(in_turns("p1"))
    bench.tell(start("p2"))
    bench.tell(NotStarted(PlacementId("p2"), "no space"))
    assert refusals(bench, in_turns("p3", place=1)) == [
        "starts pause for 30 s after one that failed: no space"
    ]
    bench.perform(bench.core.wake(100.0))
    assert refusals(bench, in_turns("p4", place=1)) == []


@pytest.mark.parametrize("other", [in_turns("p2", rota="s"), in_turns("p2", gpus=3)])
def test_another_rota_and_one_on_other_gpus_have_gpus_of_their_own(other: StartOrdered) -> None:
    bench = Bench(gpus=5)
    for order in (in_turns("p1"), other):
        bench.tell(order)
    assert set(indices(bench)["p1"]).isdisjoint(indices(bench)["p2"])


def test_a_rota_holds_its_gpus_until_its_last_worker_is_gone() -> None:
    bench = Bench(gpus=2)
    for order in (in_turns("p1"), in_turns("p2", place=1)):
        bench.tell(order)
    for name, free in (("p1", []), ("p2", [0, 1])):
        bench.tell(stop(name))
        bench.tell(Stopped(PlacementId(name), 0.0), at=9.0)
        assert bench.core.state.free() == free


def test_nothing_starts_on_a_gpu_of_a_rota_that_the_node_has_no_more() -> None:
    """The agent started again without GPU 3; a worker of the rota goes on."""
    before = [joined("life-0"), start("p0", gpus=2), in_turns("p1")]
    bench = Bench(gpus=3, adopted=["p0", "p1"], before=before)
    assert bench.core.state.workers[PlacementId("p1")].gpu_indices == (2, 3)
    assert refusals(bench, in_turns("p2", place=1)) == ["2 GPUs wanted, 0 free"]


def test_other_turns_are_handed_to_the_runner_once() -> None:
    bench = Bench()
    order, later = in_turns("p1"), in_turns("p1", turns=3).gang
    bench.tell(order)
    for _ in range(2):
        bench.tell(ordered(order, later))
    assert [task for task in bench.work if isinstance(task, TurnWorker)] == [
        TurnWorker(order.placement_id, later)
    ]
    assert bench.core.state.workers[order.placement_id].order.gang == later


@pytest.mark.parametrize(
    "gang", [in_turns("p1", gpus=1).gang, in_turns("p1", rota="s").gang, start("p1").gang]
)
def test_an_order_that_changes_more_than_turns_is_ignored(gang: Gang) -> None:
    bench, order = Bench(), in_turns("p1")
    bench.tell(order)
    bench.tell(ordered(order, gang))
    assert bench.core.state.workers[order.placement_id].order == order
    assert not any(isinstance(task, TurnWorker) for task in bench.work)


def test_a_stopping_worker_ignores_new_turns() -> None:
    bench, order = Bench(), in_turns("p1")
    bench.tell(order)
    bench.tell(stop("p1"))
    bench.tell(ordered(order, in_turns("p1", turns=3).gang))
    assert not any(isinstance(task, TurnWorker) for task in bench.work)


def test_an_adopted_worker_gets_its_turns_before_it_goes_on() -> None:
    """They may have changed while there was no agent."""
    before = Bench()
    order, later = in_turns("p1"), in_turns("p1", turns=3).gang
    before.tell(order)
    before.tell(Started(order.placement_id), at=2.0)
    before.tell(formed("p1"))
    log = [*before.log, ordered(order, later)]
    bench = Bench(life="2", adopted=["p1"], before=[joined(life="1"), *log])
    assert bench.work == [TurnWorker(order.placement_id, later), TrainWorker(order.placement_id, "")]
    assert msgspec.structs.replace(order, gang=later) == bench.core.state.workers[order.placement_id].order
