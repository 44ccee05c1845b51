"""Whatever plans, workers and nodes do, no GPU is handed out twice and no gang starts in part."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from schemas.events import (
    JobStarted,
    NodeLost,
    NodeReturned,
    Outcome,
    StartOrdered,
    WorkerStopped,
)
from schemas.ids import JobId, NodeId, PlacementId
from schemas.plans import Placement, PlanKind
from services.placer.phases import ComingUp, Waiting, WorkerState
from tests.services.placer.placer_bench import (
    JOB,
    OTHER,
    A,
    B,
    Bench,
    copies,
    joined,
    node,
    place,
    worker_started,
)

CHOICES = [{"a": 4}, {"a": 2, "b": 2}, {"b": 3}, {"a": 1}, {"a": 3, "b": 4}]
BROKEN = [Outcome.INTERRUPTED, Outcome.FAILED]
JOBS = [JOB, OTHER, JobId("job-3")]
"""the last is submitted by some tests alone"""
A_STEP = st.one_of(
    st.tuples(
        st.just("plan"),
        st.sampled_from(list(PlanKind)),
        st.lists(st.tuples(st.sampled_from(JOBS), st.sampled_from(CHOICES), st.booleans()), max_size=2),
    ),
    st.tuples(st.just("answer"), st.booleans()),
    st.tuples(st.just("lose"), st.sampled_from([A, B])),
    st.tuples(st.just("return"), st.sampled_from([A, B])),
    st.tuples(st.just("rejoin"), st.sampled_from([A, B])),
    st.tuples(st.just("adopt"), st.sampled_from([A, B])),
    st.tuples(st.just("break"), st.sampled_from([A, B]), st.sampled_from(BROKEN)),
)
STEPS = st.lists(A_STEP, max_size=25)


class Cluster:
    """The bench with agents that obey whenever they are let."""

    def __init__(self) -> None:
        self.bench = Bench()
        self.lives = 1

    def step(self, step: tuple[object, ...]) -> None:
        match step:
            case ("plan", PlanKind() as kind, list() as wanted):
                number = self.bench.plans
                placements = [
                    (copies if apart else place)(f"p{number}.{index}", job_id, **gpus)
                    for index, (job_id, gpus, apart) in enumerate(wanted)
                ]
                self.bench.plan(*placements, kind=kind)
            case ("answer", bool() as up):
                self.answer(up=up)
            case ("lose", str() as name):
                self.bench.tell(NodeLost(at=50.0 + len(self.bench.log), node_id=NodeId(name)))
            case ("return", str() as name):
                self.bench.tell(NodeReturned(at=50.0 + len(self.bench.log), node_id=NodeId(name)))
            case ("rejoin", str() as name):
                self.rejoin(NodeId(name), ())
            case ("adopt", str() as name):
                self.rejoin(NodeId(name), self.there(NodeId(name)))
            case ("break", str() as name, Outcome() as outcome):
                self.interrupt(NodeId(name), outcome)

    def there(self, node_id: NodeId) -> tuple[PlacementId, ...]:
        state = self.bench.core.state
        here = [key for key, placed in state.placements.items() if node_id in placed.workers]
        return (*here, *state.stale.get(node_id, {}))

    def rejoin(self, node_id: NodeId, workers: tuple[PlacementId, ...]) -> None:
        self.lives += 1
        life = str(self.lives)
        self.bench.tell(joined(node_id, node(node_id), life=life, at=60.0, workers=workers))

    def interrupt(self, node_id: NodeId, outcome: Outcome) -> None:
        """Let the first worker on the node end by itself."""
        for placed in self.bench.core.state.placements.values():
            if node_id in placed.workers:
                placement = place(placed.placement_id, placed.job_id, **placed.gang.configuration)
                self.bench.tell(msgspec.structs.replace(stopped(placement, node_id), outcome=outcome))
                return

    def answer(self, *, up: bool) -> None:
        """Let every ordered worker come up, or every stopping one go."""
        for placed in list(self.bench.core.state.placements.values()):
            placement = place(placed.placement_id, placed.job_id, **placed.gang.configuration)
            for node_id, worker in list(placed.workers.items()):
                if up and worker is WorkerState.ORDERED:
                    self.bench.tell(worker_started(placement, node_id, placed.gang.on(node_id)))
                elif not up and worker is WorkerState.STOPPING:
                    self.bench.tell(stopped(placement, node_id))


def stopped(placement: Placement, node_id: NodeId) -> WorkerStopped:
    return WorkerStopped(
        at=55.0,
        node_id=node_id,
        placement_id=placement.placement_id,
        job_id=placement.job_id,
        outcome=Outcome.CHECKPOINTED,
        samples_done=0.0,
        leads=False,
    )


@given(STEPS)
def test_no_gpu_is_handed_out_twice_and_no_job_trains_twice(steps: list[tuple[object, ...]]) -> None:
    cluster = Cluster()
    state = cluster.bench.core.state
    for step in steps:
        cluster.step(step)
        for node_id, known in state.nodes.items():
            assert sum(state.gpus_held(node_id).values()) <= known.node.gpus
        for job_id in (JOB, OTHER):
            assert sum(bool(placed.workers) for placed in state.of_job(job_id)) <= 1


@given(STEPS)
def test_placements_are_found_by_job_and_by_node(steps: list[tuple[object, ...]]) -> None:
    cluster = Cluster()
    state = cluster.bench.core.state
    for step in steps:
        cluster.step(step)
        there = state.placements.items()
        assert state.by_job == {
            job_id: {key: None for key, one in there if one.job_id == job_id}
            for job_id in {one.job_id for _, one in there}
        }
        assert state.by_node == {
            node_id: {key: None for key, one in there if one.gang.on(node_id)}
            for node_id in {node_id for _, one in there for node_id in one.gang.nodes}
        }


@given(STEPS)
def test_placements_are_found_by_phase(steps: list[tuple[object, ...]]) -> None:
    cluster = Cluster()
    state = cluster.bench.core.state
    for step in steps:
        cluster.step(step)
        there = state.placements.items()
        assert list(state.waiting) == [key for key, one in there if isinstance(one.phase, Waiting)]
        assert set(state.coming_up) == {key for key, one in there if isinstance(one.phase, ComingUp)}


@given(STEPS)
def test_every_placement_is_up_to_date_after_each_fact(steps: list[tuple[object, ...]]) -> None:
    cluster = Cluster()
    state = cluster.bench.core.state
    for step in steps:
        cluster.step(step)
        assert not state.changed
        assert not state.candidates
        state.changed, state.candidates = dict.fromkeys(state.placements), dict.fromkeys(state.waiting)
        assert cluster.bench.core.resume(100.0) == []


@given(STEPS)
def test_a_job_starts_only_with_its_whole_gang(steps: list[tuple[object, ...]]) -> None:
    cluster = Cluster()
    for step in steps:
        cluster.step(step)
    ordered = {
        (event.placement_id, event.node_id) for event in cluster.bench.log if isinstance(event, StartOrdered)
    }
    for event in cluster.bench.log:
        if isinstance(event, JobStarted):
            assert {(event.placement_id, node_id) for node_id in event.gang.nodes} <= ordered
