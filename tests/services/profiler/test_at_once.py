"""Measurements within a round: on idle GPUs, as soon as there are any."""

import msgspec

from schemas.events import JobProfiled, JobRejected, NodeReturned, ProfileRun, ProfilingAdded, StartOrdered
from schemas.ids import GpuType, JobId, NodeId, PlacementId
from schemas.placement import Gang
from services.profiler.core import Profiler
from shared.domain.core import Publish
from tests.services.profiler.profiler_builders import (
    ROUND_S,
    SETTLE_S,
    Driver,
    failed,
    joined,
    lost,
    measured,
    spec,
    started,
    stopped,
    submitted,
)

RUN = ProfileRun(
    placement_id=PlacementId("p1"), job_id=JobId("x"), gpu_type=GpuType("A"), node_id=NodeId("a0")
)
"""what holds a GPU, as far as the profiler sees"""


def driver() -> Driver:
    """In the middle of round 0."""
    return Driver(at_once=True).until(100.0)


def added(of: Driver) -> list[list[tuple[str, str]]]:
    """Job and type of the runs of every addition."""
    return [[(run.job_id, run.gpu_type) for run in fact.runs] for fact in of.all(ProfilingAdded)]


def ordered(node: str, gpus: int, placement: str = "p1") -> StartOrdered:
    member = joined(node, gpus=gpus)
    return StartOrdered(
        at=90.0,
        node_id=NodeId(node),
        placement_id=PlacementId(placement),
        job_id=JobId("other"),
        spec=spec(),
        gang=Gang.of({NodeId(node): gpus}),
        nodes=(member.node,),
        samples_done=0.0,
        learning_rate=None,
    )


def test_a_job_is_measured_on_idle_gpus_at_once() -> None:
    there = driver().tell(joined("a0", "A"), joined("b0", "B"), submitted())
    assert added(there) == [[("j1", "A"), ("j1", "B")]]
    there.tell(*(measured(run) for run in there.all(ProfilingAdded)[0].runs))
    assert there.all(JobProfiled)[0].at == 100.0
    there.until(ROUND_S)
    assert there.all(ProfilingAdded) == there.all(ProfilingAdded)[:1]


def test_a_setting_puts_it_off_to_the_next_round() -> None:
    there = Driver(at_once=False).until(100.0).tell(joined(), submitted())
    assert not there.all(ProfilingAdded)
    assert [run.job_id for run in there.next_round()] == ["j1"]


def test_a_gpu_that_is_in_use_or_promised_is_not_taken() -> None:
    there = driver().tell(joined("a0", gpus=1), started("a0", gpus=1), submitted("j1"))
    assert added(there) == []
    there = driver().tell(joined("a0", gpus=2), ordered("a0", 2), submitted("j1"))
    assert added(there) == []
    assert [run.job_id for run in there.next_round()] == ["j1"]


def test_freed_gpus_are_used_only_after_planned_jobs_could_start() -> None:
    there = driver().tell(joined("a0", gpus=1), started("a0", "p1"), submitted("j1"))
    done = stopped(RUN)
    there.tell(done)
    assert added(there) == []
    there.until(100.0 + SETTLE_S)
    assert added(there) == [[("j1", "A")]]

    there = driver().tell(joined("a0", gpus=1), started("a0", "p1"), submitted("j1"))
    there.tell(done, ordered("a0", 1, "p2"))
    there.until(100.0 + SETTLE_S)
    assert added(there) == []


def test_a_node_that_comes_is_used_at_once() -> None:
    there = driver().tell(submitted())
    assert added(there) == []
    there.tell(joined())
    assert added(there) == [[("j1", "A")]]


def test_a_measurement_that_failed_is_made_again_in_the_next_round() -> None:
    there = driver().tell(joined(), submitted())
    [run] = there.all(ProfilingAdded)[0].runs
    there.tell(failed(run, final=False), stopped(run)).until(ROUND_S - 1)
    assert len(there.all(ProfilingAdded)) == 1
    [again] = there.next_round()
    assert again.placement_id != run.placement_id


def fails(of: Driver) -> ProfileRun:
    """The last measurement ends by an exception of the script."""
    run = of.all(ProfilingAdded)[-1].runs[-1]
    of.tell(msgspec.structs.replace(failed(run, final=False, reason="ValueError"), repeatable=True))
    of.tell(stopped(run)).until(of.now + SETTLE_S)
    return run


def test_a_script_that_fails_is_tried_again_at_once_and_then_the_job_is_rejected() -> None:
    there = driver().tell(joined("a0"), joined("a1"), submitted())
    assert [fails(there).node_id for _ in range(3)] == ["a0", "a1", "a0"]
    [rejected] = there.all(JobRejected)
    assert rejected.reason == "it runs on no GPU type: ValueError"
    assert rejected.at <= 100.0 + 3 * SETTLE_S
    assert len(there.all(ProfilingAdded)) == 3


def test_a_script_that_fails_on_a_lone_gpu_waits_for_it_while_another_job_has_it() -> None:
    there = driver().tell(joined("a0", gpus=1), submitted())
    run = there.all(ProfilingAdded)[0].runs[0]
    there.tell(ordered("a0", 1), started("a0"))
    fails(there)
    assert len(there.all(ProfilingAdded)) == 1
    there.tell(stopped(RUN)).until(there.now + SETTLE_S)
    assert there.all(ProfilingAdded)[1].runs[0].node_id == run.node_id


def test_two_jobs_get_a_gpu_each_while_facts_are_on_their_way() -> None:
    """What was published and has not come back is in no state: the second job waits for it."""
    core = Profiler(round_s=ROUND_S, timeout_s=600, attempts=3)
    for fact in (joined(gpus=1), joined("a1", gpus=1)):
        core.handle(fact, 0.0)
    [opening] = core.resume(1.0)
    assert isinstance(opening, Publish)
    core.handle(opening.event, 1.0)
    [first] = core.handle(submitted("j1"), 2.0)
    assert core.handle(submitted("j2", model="vgg16"), 2.0) == []
    assert isinstance(first, Publish)
    [second] = core.handle(first.event, 2.0)
    assert isinstance(second, Publish)
    assert isinstance(first.event, ProfilingAdded)
    assert isinstance(second.event, ProfilingAdded)
    assert first.event.event_id != second.event.event_id
    assert [run.node_id for run in (*first.event.runs, *second.event.runs)] == ["a0", "a1"]


def test_after_a_restart_it_looks_again() -> None:
    there = driver().tell(joined(), lost(at=90.0), submitted(), NodeReturned(at=95.0, node_id=NodeId("a0")))
    [first] = there.all(ProfilingAdded)
    core = Profiler(round_s=ROUND_S, timeout_s=600, attempts=3)
    for fact in there.stream:
        if fact is not first:
            core.handle(fact, fact.at)
    published = [effect.event for effect in core.resume(120.0) if isinstance(effect, Publish)]
    assert [fact.runs for fact in published if isinstance(fact, ProfilingAdded)] == [first.runs]
