"""What the monitor and its ledger make of a job whose nodes are copies."""

import msgspec
import pytest

from schemas.base import Event
from schemas.events import JobCompleted, JobFailed, Outcome, PreemptReason
from schemas.ids import JobId, NodeId
from schemas.placement import Forked, Gang
from schemas.questions import ShowJob
from schemas.views import JobView
from shared.domain.ledger.records import JobRecord
from tests.fact_builders import (
    JOB,
    checkpointed,
    in_queue,
    joined,
    lost,
    preempted,
    start_ordered,
    started,
    worker_started,
    worker_stopped,
)
from tests.services.monitor.monitor_world import World, heartbeat

ONE, TWO = "node-1", "node-2"


def trains() -> World:
    """Two copies on a GPU each, from 10 s on, of 500 samples each."""
    gang = Gang.of({NodeId(ONE): 1, NodeId(TWO): 1}, Forked(shares=(0.5, 0.5)))
    up: list[Event] = [start_ordered(at=2.0, node_id=each, until=500.0) for each in (ONE, TWO)]
    up += [worker_started(at=10.0, node_id=each) for each in (ONE, TWO)]
    begun = msgspec.structs.replace(started(at=10.0), gang=gang)
    return World(joined(ONE), joined(TWO), *in_queue(), *up, begun)


def record(world: World) -> JobRecord:
    return world.monitor.state.ledger.jobs[JobId(JOB)]


def share_done(node_id: str, at: float = 90.0) -> Event:
    return worker_stopped(at=at, node_id=node_id, outcome=Outcome.QUOTA, samples_done=500.0)


def test_a_job_is_complete_when_all_its_copies_did_their_shares() -> None:
    world = trains()
    assert world.tell(share_done(ONE)) == []
    [end] = world.tell(share_done(TWO, at=95.0))
    assert isinstance(end, JobCompleted)
    assert (end.at, end.samples_done) == (95.0, 1000.0)


def test_a_failed_copy_does_not_fail_the_job_unless_it_is_the_last() -> None:
    world = trains()
    assert world.tell(worker_stopped(node_id=ONE, outcome=Outcome.FAILED, samples_done=0.0)) == []
    assert record(world).failures == 0
    [end] = world.tell(worker_stopped(node_id=TWO, outcome=Outcome.FAILED, samples_done=0.0, reason="exit 3"))
    assert isinstance(end, JobFailed)
    assert end.reason == "exit 3"


def test_a_failed_copy_beside_one_that_saved_does_not_fail_the_job() -> None:
    world = trains()
    world.tell(share_done(ONE))
    assert world.tell(worker_stopped(node_id=TWO, outcome=Outcome.FAILED, samples_done=0.0)) == []


def test_progress_is_of_all_copies_together() -> None:
    world = trains()
    for node_id, samples in ((ONE, 200.0), (TWO, 100.0), (ONE, 250.0)):
        world.hear(heartbeat(node_id, progress={JobId(JOB): samples}), at=20.0)
    view = world.ask(ShowJob(job_id=JobId(JOB)))
    assert isinstance(view, JobView)
    assert view.samples_done == 350.0


def test_checkpoints_of_copies_add_up() -> None:
    world = trains()
    world.tell(checkpointed(node_id=ONE, samples_done=200.0), checkpointed(node_id=TWO, samples_done=100.0))
    assert (record(world).samples_done, record(world).checkpoints) == (300.0, 2)


def test_a_merge_is_no_restart_and_loses_no_work() -> None:
    world = trains()
    world.tell(worker_stopped(at=60.0, node_id=ONE, outcome=Outcome.CHECKPOINTED, samples_done=200.0))
    world.tell(worker_stopped(at=61.0, node_id=TWO, outcome=Outcome.CHECKPOINTED, samples_done=100.0))
    world.tell(preempted(at=61.0, reason=PreemptReason.MERGE, samples_done=300.0))
    assert (record(world).restarts, record(world).lost_gpu_s, record(world).samples_done) == (0, 0.0, 300.0)


def test_a_lost_copy_loses_what_it_did_since_its_own_checkpoint() -> None:
    world = trains()
    world.tell(checkpointed(at=40.0, node_id=TWO, samples_done=100.0), checkpointed(at=50.0, node_id=ONE))
    world.tell(lost(TWO, at=70.0))
    assert record(world).lost_gpu_s == 30.0
    world.tell(preempted(at=90.0, reason=PreemptReason.MERGE, samples_done=600.0))
    assert record(world).lost_gpu_s == 30.0


@pytest.mark.parametrize(("saved", "lost_gpu_s"), [(100.0, 30.0), (0.0, 30.0), (150.0, 0.0)])
def test_an_interrupted_copy_loses_what_it_did_since_its_last_checkpoint(
    saved: float, lost_gpu_s: float
) -> None:
    """It loses nothing where it is interrupted after a checkpoint that it did not report."""
    world = trains()
    world.tell(checkpointed(at=40.0, node_id=TWO, samples_done=100.0))
    world.tell(worker_stopped(at=70.0, node_id=TWO, outcome=Outcome.INTERRUPTED, samples_done=saved))
    assert (record(world).samples_done, record(world).lost_gpu_s) == (max(saved, 100.0), lost_gpu_s)


def test_a_new_life_without_its_copy_loses_it_and_one_that_adopts_does_not() -> None:
    world = trains()
    world.tell(joined(ONE, at=30.0, life="2", workers=["pl-1"]))
    assert record(world).lost_gpu_s == 0.0
    world.tell(joined(TWO, at=30.0, life="2"))
    assert record(world).lost_gpu_s == 20.0


def test_copies_interrupted_beside_one_that_saved_are_no_interruption_of_the_job() -> None:
    world = trains()
    world.tell(worker_stopped(node_id=TWO, outcome=Outcome.INTERRUPTED, samples_done=0.0), share_done(ONE))
    world.tell(preempted(at=90.0, reason=PreemptReason.MERGE, samples_done=500.0))
    assert record(world).interruptions == 0
