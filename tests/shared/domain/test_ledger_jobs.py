"""The ledger's jobs: states, times, progress and what was lost."""

import msgspec
import pytest

from schemas.base import Event
from schemas.events import Outcome, PreemptReason
from schemas.ids import JobId
from schemas.plans import Layer, LeftOut, Waiting
from shared.domain.ledger import Ledger, fold, forget_jobs, ledger_of
from shared.domain.ledger.records import JobRecord
from shared.domain.states import JobState
from tests.fact_builders import (
    JOB,
    cancelled,
    checkpointed,
    completed,
    config,
    failed,
    held,
    in_queue,
    joined,
    lost,
    placement,
    plan,
    preempted,
    priority_changed,
    profiled,
    queued,
    released,
    start_ordered,
    started,
    stop_ordered,
    submitted,
    whole_life,
    worker_started,
    worker_stopped,
)


def job(*facts: Event) -> JobRecord:
    return ledger_of(facts).jobs[JOB]


def test_the_times_of_all_states_of_a_job_are_recorded() -> None:
    record = job(*whole_life())
    assert (record.state, record.submitted_at, record.started_at, record.ended_at) == (
        JobState.COMPLETED,
        0.0,
        20.0,
        120.0,
    )


def test_a_job_whose_script_ended_by_itself_is_complete_and_says_so() -> None:
    early = msgspec.structs.replace(worker_stopped(at=120, reason="its script ended"), samples_trained=320.0)
    record = job(joined(), *in_queue(), start_ordered(), started(at=20), early, completed(at=120))
    assert (record.state, record.samples_done, record.reason) == (
        JobState.COMPLETED,
        1000.0,
        "its script ended",
    )
    assert record.runs[-1].samples_to == 320.0


def test_a_job_waits_from_its_submission_until_it_starts() -> None:
    assert job(submitted(at=5), profiled(at=30), queued(at=31), started(at=50)).wait_s(now=80) == 45


def test_a_job_waits_again_after_a_preemption() -> None:
    record = job(*in_queue(), started(at=10), preempted(at=40))
    assert record.wait_s(now=45) == 15


def test_waiting_ends_with_the_job() -> None:
    record = job(*in_queue(), started(at=10), completed(at=110))
    assert record.wait_s(now=1000) == 10


def test_a_cancelled_job_waited_until_it_was_cancelled() -> None:
    assert job(submitted(), cancelled(at=30)).wait_s(now=99) == 30


def test_a_job_has_the_priority_that_was_set_last_until_it_ends() -> None:
    facts = [*in_queue(priority=3.0), priority_changed(at=5, priority=7.0), started(at=10)]
    record = job(*facts)
    assert (record.spec.priority, record.state, record.since) == (7.0, JobState.RUNNING, 10.0)
    ended = ledger_of([*facts, completed(at=50), priority_changed(at=60)])
    assert (ended.jobs[JOB].spec.priority, ended.void) == (7.0, 1)


def test_a_job_on_hold_does_not_wait() -> None:
    facts = [*in_queue(), held(at=10), held(at=20), released(at=40), released(at=45)]
    assert job(*facts[:-2]).wait_s(now=30) == 10
    assert job(*facts).wait_s(now=50) == 20
    assert job(*facts, started(at=60), held(at=70), preempted(at=80)).wait_s(now=90) == 30
    assert job(*facts, started(at=60), held(at=70), preempted(at=80), released(at=95)).wait_s(now=100) == 35
    assert job(*facts, held(at=60), cancelled(at=90)).wait_s(now=99) == 30


def test_a_hold_of_a_job_that_has_ended_is_void() -> None:
    ledger = ledger_of([*in_queue(), cancelled(at=5), held(at=6), released(at=7)])
    assert (ledger.jobs[JOB].hold, ledger.void) == (None, 2)


def test_idle_gpus_beside_jobs_on_hold_are_no_fragments() -> None:
    left = LeftOut(job_id=JobId(JOB), reason=Waiting.ON_HOLD, held_by=())
    made = msgspec.structs.replace(plan(), left_out=(left,), idle_gpus=4)
    assert ledger_of([*in_queue(), made]).plans[-1].fragments == 0


def test_the_first_terminal_fact_wins() -> None:
    record = job(*in_queue(), started(at=1), cancelled(at=5), completed(at=6), failed(at=7))
    assert (record.state, record.ended_at) == (JobState.CANCELLED, 5)


def test_an_illegal_move_changes_nothing_and_is_counted() -> None:
    ledger = ledger_of([submitted(), started(at=3)])
    assert ledger.jobs[JOB].state is JobState.SUBMITTED
    assert ledger.void == 1


def test_a_fact_about_an_unknown_job_is_void() -> None:
    assert ledger_of([started()]).void == 1


def test_a_run_knows_its_configuration_and_the_estimate_it_was_placed_by() -> None:
    run = job(*in_queue(), plan(placement(on=config(node_1=4))), started(on=config(node_1=4))).present
    assert run is not None
    assert (run.gpus, run.throughput, run.layer) == (4, 10.0, Layer.THEORY)


def test_progress_is_that_of_the_newest_checkpoint() -> None:
    assert job(*in_queue(), started(), checkpointed(samples_done=300)).samples_done == 300


def test_a_checkpoint_of_an_earlier_placement_is_no_progress() -> None:
    record = job(*in_queue(), started(place="pl-2"), checkpointed(place="pl-1", samples_done=300))
    assert record.samples_done == 0


@pytest.mark.parametrize("end", [cancelled(at=200), failed(at=200)])
def test_what_a_job_saves_when_it_is_cancelled_or_reaches_its_time_limit_counts(end: Event) -> None:
    saved = worker_stopped(at=205, outcome=Outcome.CHECKPOINTED, samples_done=300)
    record = job(*in_queue(), started(at=10), checkpointed(at=100, samples_done=200), end, saved)
    [run] = record.runs
    assert (record.samples_done, record.checkpoints, run.samples_to, run.saved_at) == (300, 2, 300, 205)


def test_after_a_job_s_end_no_report_of_an_earlier_placement_counts() -> None:
    late = worker_stopped(at=205, outcome=Outcome.CHECKPOINTED, samples_done=300)
    ended = job(*in_queue(), started(), preempted(at=40, samples_done=200), cancelled(at=200), late)
    assert (ended.samples_done, ended.runs[0].samples_to) == (200, 200)
    assert job(*in_queue(), cancelled(at=200), late).samples_done == 0


def test_a_preemption_counts_as_a_restart_and_keeps_the_run() -> None:
    record = job(*in_queue(), started(at=10), preempted(at=40, samples_done=200))
    assert record.restarts == 1
    assert (record.run_s, record.runs[0].samples_to, record.samples_done) == (30, 200, 200)


def test_work_after_the_last_checkpoint_is_lost_with_the_node() -> None:
    record = job(
        *in_queue(),
        started(at=0, on=config(node_1=4)),
        checkpointed(at=100),
        preempted(at=130, reason=PreemptReason.NODE_LOST),
    )
    assert record.lost_gpu_s == 4 * 30


@pytest.mark.parametrize(("samples", "lost_s"), [(1000.0, 0.0), (100.0, 30.0)])
def test_work_that_an_interrupted_worker_saved_as_it_ended_is_not_lost(samples: float, lost_s: float) -> None:
    record = job(
        *in_queue(),
        started(at=0, on=config(node_1=4)),
        checkpointed(at=100, samples_done=100.0),
        worker_stopped(at=130, outcome=Outcome.INTERRUPTED, samples_done=samples),
        preempted(at=130, reason=PreemptReason.INTERRUPTED, samples_done=samples),
    )
    assert (record.samples_done, record.lost_gpu_s) == (samples, 4 * lost_s)


def test_the_time_to_checkpoint_on_order_is_lost_work() -> None:
    record = job(
        joined(),
        *in_queue(),
        worker_started(gpu_indices=(0, 1)),
        started(on=config(node_1=2)),
        stop_ordered(at=100),
        worker_stopped(at=105, outcome=Outcome.CHECKPOINTED),
        preempted(at=105),
    )
    assert record.lost_gpu_s == 2 * 5


def test_the_time_that_a_peer_takes_to_stop_is_lost_once() -> None:
    """A leader's node is lost at 100; until 140 its peer holds its own GPUs only."""
    record = job(
        *(joined(name) for name in ("node-1", "node-2")),
        *in_queue(),
        *(worker_started(node_id=name, gpu_indices=(0, 1)) for name in ("node-1", "node-2")),
        started(on=config(node_1=2, node_2=2)),
        checkpointed(at=90),
        lost(at=100),
        *(stop_ordered(at=100, node_id=name) for name in ("node-1", "node-2")),
        worker_stopped(at=140, node_id="node-2", outcome=Outcome.CHECKPOINTED),
        preempted(at=140, reason=PreemptReason.NODE_LOST),
    )
    assert record.lost_gpu_s == 4 * 10 + 2 * 40


def test_the_time_to_restore_is_lost_work_and_that_of_a_first_start_is_not() -> None:
    first = [*in_queue(), start_ordered(at=0), started(at=10)]
    assert job(*first).lost_gpu_s == 0
    again = [preempted(at=20), start_ordered(at=30, place="pl-2"), started(at=42, place="pl-2")]
    assert job(*first, *again).lost_gpu_s == 12


def test_a_run_records_how_long_its_start_and_stop_took() -> None:
    first = [start_ordered(at=10.0), started(at=14.0)]
    stop = [worker_started(at=14.0), stop_ordered(at=50.0), stop_ordered(at=51.0), preempted(at=53.0)]
    again = [start_ordered(at=60.0, place="p2"), started(at=61.5, place="p2"), preempted(at=90.0, place="p2")]
    runs = job(joined(), *in_queue(), *first, *stop, *again).runs
    assert [(run.start_s, run.stop_s) for run in runs] == [(4.0, 3.0), (1.5, None)]


def test_a_placement_taken_back_is_ordered_no_more() -> None:
    assert job(*in_queue(), start_ordered(), started(), preempted()).ordered is None


@pytest.mark.parametrize("length", range(12))
def test_a_ledger_survives_being_written_down(length: int) -> None:
    facts = whole_life()
    ledger = ledger_of(facts[:length])
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(ledger), type=Ledger)
    for fact in facts[length:]:
        fold(again, fact)
    assert again == ledger_of(facts)


def test_the_oldest_ended_jobs_are_forgotten_and_still_counted() -> None:
    facts = [
        fact
        for number in range(20)
        for fact in (submitted(f"job-{number}", at=number), cancelled(f"job-{number}", at=number))
    ]
    ledger = ledger_of([*facts, submitted("open", at=0)])
    forget_jobs(ledger, keep=10)
    assert [*ledger.jobs] == [*(f"job-{number}" for number in range(10, 20)), "open"]
    assert ledger.forgotten == {JobState.CANCELLED: 10}
