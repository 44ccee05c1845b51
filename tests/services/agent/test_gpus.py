"""Whatever is ordered, reported and restarted, no GPU has two owners."""

from hypothesis import given
from hypothesis import strategies as st

from schemas.ids import PlacementId
from services.agent.core import Agent
from services.agent.tasks import Completed, Started, StartWorker, Stopped
from tests.services.agent.agent_bench import MODES, Bench, formed, joined, start, stop

NAMES = st.sampled_from(["p1", "p2", "p3", "p4", "p5"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("start"), NAMES, st.integers(1, 5)),
        st.tuples(st.sampled_from(["stop", "form", "up", "stopped", "complete"]), NAMES, st.just(0)),
    ),
    max_size=40,
)


def step(bench: Bench, what: str, name: str, gpus: int) -> None:
    placement_id = PlacementId(name)
    match what:
        case "start":
            bench.tell(start(name, gpus=gpus))
        case "stop":
            bench.tell(stop(name))
        case "form":
            bench.tell(formed(name))
        case "up":
            bench.tell(Started(placement_id))
        case "stopped":
            bench.tell(Stopped(placement_id, 1.0))
        case _:
            bench.tell(Completed(placement_id, 2.0))


@given(STEPS)
def test_no_gpu_has_two_owners(steps: list[tuple[str, str, int]]) -> None:
    bench = Bench(gpus=4)
    for each in steps:
        step(bench, *each)
        assert bench.owners().keys() <= set(range(4))


@given(STEPS)
def test_no_placement_starts_twice(steps: list[tuple[str, str, int]]) -> None:
    bench = Bench(gpus=4)
    for each in steps:
        step(bench, *each)
    started = [task.order.placement_id for task in bench.work if isinstance(task, StartWorker)]
    assert len(started) == len(set(started))


@given(STEPS)
def test_a_new_life_begins_with_a_free_node(
    steps: list[tuple[str, str, int]],
) -> None:
    bench = Bench(gpus=4)
    for each in steps:
        step(bench, *each)
    again = Agent(bench.core._node, "life-2", MODES)
    for fact in bench.log:
        assert again.handle(fact, fact.at) == []
    assert again.state == bench.core.state
    again.handle(joined("life-2"), 0.0)
    assert again.state.free() == [0, 1, 2, 3]
