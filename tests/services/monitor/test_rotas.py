"""What the ledger counts of jobs that take turns on the same GPUs."""

import msgspec
import pytest

from schemas.base import Event
from schemas.events import PreemptReason, TurnsOrdered
from schemas.ids import JobId, NodeId, PlacementId, PlanId, RotaId
from schemas.placement import Gang, Relaxed
from schemas.plans import Placement
from tests.fact_builders import (
    checkpointed,
    in_queue,
    joined,
    placement,
    plan,
    preempted,
    start_ordered,
    started,
    worker_started,
    worker_stopped,
)
from tests.services.monitor.monitor_world import World

ONE = NodeId("node-1")


def gang(place: int, turns: int = 1) -> Gang:
    return Gang.of({ONE: 4}, Relaxed(tasks=((1,) * 4,), rota=RotaId("r"), turns=turns, place=place))


def placed(job_id: str, place: int, share: float) -> Placement:
    alone = placement(job_id, place=f"pl-{job_id}")
    return msgspec.structs.replace(alone, gang=gang(place), share=share)


def turns_taken() -> World:
    """Two jobs on the same four GPUs of eight, from 10 s on."""
    facts: list[Event] = [joined(gpus=8), *in_queue("first"), *in_queue("second")]
    facts.append(plan(placed("first", 0, 0.75), placed("second", 1, 0.25)))
    for place, name in enumerate(("first", "second")):
        own = f"pl-{name}"
        facts.append(msgspec.structs.replace(start_ordered(name, at=2.0, place=own), gang=gang(place)))
        facts.append(worker_started(name, at=10.0, place=own, gpu_indices=range(4)))
        facts.append(started(name, at=10.0, place=own, on=gang(place)))
    return World(*facts)


def test_gpus_of_a_rota_are_in_use_once_until_its_last_worker_is_gone() -> None:
    world = turns_taken()
    node = world.monitor.state.ledger.nodes[ONE]
    assert (node.gpus_in_use, len(node.workers)) == (4, 2)
    world.tell(worker_stopped("first", at=60.0, place="pl-first"))
    assert node.gpus_in_use == 4
    world.tell(worker_stopped("second", at=110.0, place="pl-second"))
    assert node.gpus_in_use == 0
    assert node.gpu_busy_s == pytest.approx(4 * 100.0)


def test_lost_work_is_counted_by_share() -> None:
    """Both lose the 50 s since their last checkpoints."""
    world = turns_taken()
    for name in ("first", "second"):
        world.tell(checkpointed(name, at=50.0, place=f"pl-{name}", samples_done=10.0))
        world.tell(preempted(name, at=100.0, place=f"pl-{name}", reason=PreemptReason.NODE_LOST))
    jobs = world.monitor.state.ledger.jobs
    lost = {name: jobs[JobId(name)].lost_gpu_s for name in ("first", "second")}
    assert lost == {"first": pytest.approx(0.75 * 4 * 50.0), "second": pytest.approx(0.25 * 4 * 50.0)}


def test_a_run_says_the_turns_that_it_takes_now() -> None:
    world = turns_taken()
    changed = TurnsOrdered(
        at=50.0,
        node_id=ONE,
        placement_id=PlacementId("pl-first"),
        job_id=JobId("first"),
        gang=gang(0, turns=3),
        plan_id=PlanId("plan-2"),
    )
    world.tell(changed)
    run = world.monitor.state.ledger.jobs[JobId("first")].present
    assert run is not None
    assert run.gang == gang(0, turns=3)
