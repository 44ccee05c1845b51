"""What the placer makes of measurements: who may end one, and what it is ordered to do."""

from msgspec.structs import replace

from schemas.base import Event
from schemas.events import (
    Outcome,
    PlacementRefused,
    ProfileFailed,
    ProfileRun,
    ProfilingPlanned,
    StartOrdered,
    StopOrdered,
)
from schemas.ids import GpuType, JobId, NodeId, PlacementId
from tests.services.placer.placer_bench import (
    JOB,
    OTHER,
    A,
    B,
    Bench,
    joined,
    node,
    place,
    worker_started,
)
from tests.services.placer.test_core import kinds, only

MEASURES = place("profile", OTHER, a=1)


def measure(bench: Bench, job_id: JobId = OTHER, node_id: NodeId = A) -> list[Event]:
    run = ProfileRun(
        placement_id=MEASURES.placement_id, job_id=job_id, gpu_type=GpuType("t4"), node_id=node_id
    )
    return bench.tell(ProfilingPlanned(at=30.0, round=1, runs=(run,)))


def failed(placement_id: PlacementId, job_id: JobId, node_id: NodeId) -> ProfileFailed:
    return ProfileFailed(
        at=40.0,
        node_id=node_id,
        placement_id=placement_id,
        job_id=job_id,
        gpu_type=GpuType("t4"),
        reason="it took too long",
        final=False,
    )


def test_a_measurement_that_failed_is_stopped() -> None:
    bench = Bench()
    measure(bench)
    bench.tell(worker_started(MEASURES, A, 1))
    stop = only(StopOrdered, bench.tell(failed(MEASURES.placement_id, OTHER, A)))
    assert (stop.placement_id, stop.node_id) == (MEASURES.placement_id, A)


def test_a_node_cannot_end_a_measurement_on_another() -> None:
    bench = Bench()
    measure(bench)
    bench.tell(worker_started(MEASURES, A, 1))
    assert bench.tell(failed(MEASURES.placement_id, OTHER, B)) == []


def test_a_failed_measurement_does_not_end_a_placement_that_trains() -> None:
    bench = Bench()
    training = place("p1", a=4)
    bench.start(training)
    assert bench.tell(failed(training.placement_id, JOB, A)) == []


def test_a_measurement_begins_without_samples_while_its_job_trains() -> None:
    bench = Bench()
    first, second = place("p1", b=2), place("p2", b=4)
    bench.start(first)
    bench.plan(second)
    bench.stop(first, B, Outcome.CHECKPOINTED, samples=500.0)
    bench.come_up(second)
    order = only(StartOrdered, measure(bench, JOB))
    assert (order.samples_done, order.profile_iterations) == (0.0, 20)


def test_a_measurement_that_names_a_meeting_place_is_up_as_any_other() -> None:
    bench = Bench()
    measure(bench)
    assert bench.tell(worker_started(MEASURES, A, 1, meeting="a:1")) == []
    assert kinds(bench.tell(failed(MEASURES.placement_id, OTHER, A))) == [StopOrdered]


def test_a_measurement_whose_placement_is_refused_is_stopped() -> None:
    bench = Bench()
    measure(bench)
    refused = PlacementRefused(
        at=40.0,
        placement_id=MEASURES.placement_id,
        plan_id=bench.core.state.placements[MEASURES.placement_id].plan_id,
        job_id=OTHER,
        reason="it was not up in time",
    )
    assert kinds(bench.tell(refused)) == [StopOrdered]


def test_a_measurement_that_waits_is_refused_once_its_node_has_other_gpus() -> None:
    bench = Bench(nodes=(A,))
    bench.start(place("p1", a=4))
    assert measure(bench) == []
    h100 = replace(node(A), gpu_type=GpuType("h100"))
    facts = bench.tell(joined(A, h100, life="2"))
    assert only(PlacementRefused, facts).placement_id == MEASURES.placement_id
    assert StartOrdered not in kinds(facts)


def test_a_measurement_is_refused_where_the_node_has_other_gpus_by_then() -> None:
    bench = Bench(nodes=(A,))
    bench.tell(joined(A, replace(node(A), gpu_type=GpuType("h100")), life="2"))
    refused = only(PlacementRefused, measure(bench))
    assert refused.reason == "node a came back with other GPUs"
