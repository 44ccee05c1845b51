"""Facts as lines for people."""

import msgspec
import pytest

from hopyard.show.events import OUTCOMES, WORDS, fact_line, plain_line
from hopyard.show.times import Times
from loadgen.scenarios import load_scenario
from loadgen.simulation import simulate
from schemas.base import Event
from schemas.events import FACTS, GpusWithheld, NodeDrained, Outcome, PlacementRefused, PreemptReason
from schemas.ids import JobId, NodeId, PlacementId, PlanId
from schemas.plans import Beneficiary, Cause, Measures, Standing
from tests.fact_builders import (
    failed,
    gang_formed,
    plan,
    preempted,
    refused,
    submitted,
    worker_started,
    worker_stopped,
)

UNKNOWN = Times(None)
LONGEST = 500
"""characters of a line"""
GAIN = Measures(priority="latency ratio, waiting over running", gain="gain, weight × speed")


def test_every_fact_has_a_description() -> None:
    assert set(WORDS) == set(FACTS.values())


def test_a_whole_run_is_a_line_a_fact_in_words() -> None:
    events = simulate(load_scenario("tiny"), policy="hops").events
    lines = [fact_line(event, UNKNOWN) for event in events]
    assert len({type(event) for event in events}) > 12
    for event, line in zip(events, lines, strict=True):
        assert "\n" not in line
        assert len(line) < LONGEST
        assert event.tag() not in line
        assert "memory" not in line
        job_id = getattr(event, "job_id", None)
        assert job_id is None or job_id in line


def test_a_plan_shows_its_horizon_if_it_is_known() -> None:
    assert fact_line(plan(horizon_s=90.0), UNKNOWN).endswith("(solved); no plan ends all jobs within 1m 30s")
    assert fact_line(plan(notes=("late",)), UNKNOWN).endswith("(solved); late")


def test_a_policy_s_error_of_several_lines_is_shown_in_one_without_control_characters() -> None:
    note = "mine failed: ValueError: what\n  \x1b[31mwhere\x1b[0m; planned by fifo"
    line = fact_line(plan(notes=(note,)), UNKNOWN)
    assert line.endswith("; mine failed: ValueError: what … [31mwhere[0m; planned by fifo")
    no_room = msgspec.structs.replace(refused(), reason="no room:\n\x07none")
    assert "not started (plan-1): no room: … none" in fact_line(no_room, UNKNOWN)


def test_what_a_submitter_wrote_forges_no_line_and_gives_the_terminal_no_orders() -> None:
    job = submitted()
    forged = msgspec.structs.replace(job.spec.workload, model="m\n00:00:09  job-2  completed\x1b[1A\x9b2K")
    line = fact_line(
        msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, workload=forged)), UNKNOWN
    )
    assert line.isprintable()
    assert "m 00:00:09  job-2  completed[1A2K on" in line
    later = plain_line({"fact": "job.praised", "at": 1.0, "job_id": "job-1\r\x1b[2K", "by": "a\nb"}, UNKNOWN)
    assert later.isprintable()


def test_gpus_that_get_no_job_are_named_with_the_reason() -> None:
    gpus = {3: "in use by process 7", 0: "lost", 1: "lost"}
    kept = GpusWithheld(at=1.0, node_id=NodeId("n-1"), gpus=gpus)
    assert fact_line(kept, UNKNOWN).endswith("GPU 0,1 withheld: lost; GPU 3 withheld: in use by process 7")
    assert fact_line(msgspec.structs.replace(kept, gpus={}), UNKNOWN).endswith("no GPU is withheld any more")


def cause(**fields: object) -> Cause:
    return Cause(**{"plan_id": PlanId("plan-3-1-7"), "measures": GAIN, **fields})  # type: ignore[arg-type]


def with_cause(reason: PreemptReason, why: Cause | None) -> str:
    fact = preempted("train-1", at=3725.0, reason=reason, samples_done=1500.0)
    return fact_line(msgspec.structs.replace(fact, cause=why), UNKNOWN).split(maxsplit=2)[2]


@pytest.mark.parametrize(
    ("reason", "why", "words"),
    [
        (PreemptReason.PLAN, None, "preempted at 1,500 samples by a plan"),
        (PreemptReason.NODE_LOST, None, "preempted at 1,500 samples since a node was lost"),
        (PreemptReason.NODE_LOST, Cause(node=NodeId("a")), "preempted at 1,500 samples since a was lost"),
        (
            PreemptReason.INTERRUPTED,
            Cause(node=NodeId("a")),
            "interrupted at 1,500 samples since its processes on a were interrupted",
        ),
        (
            PreemptReason.FAILED,
            Cause(node=NodeId("a")),
            "failed, to be tried again, at 1,500 samples since its processes on a failed",
        ),
        (
            PreemptReason.INTERRUPTED,
            None,
            "interrupted at 1,500 samples since its processes were interrupted",
        ),
        (
            PreemptReason.PLAN,
            cause(
                to=(Beneficiary(job_id=JobId("x"), gpus=4, standing=Standing(priority=3.0, gain=4.5)),),
                others=2,
                standing=Standing(priority=0.5, gain=1.25),
            ),
            "preempted at 1,500 samples for x (4 GPUs) and 2 more: gain 4.5 against its 1.25 (plan-3-1-7)",
        ),
        (
            PreemptReason.PLAN,
            cause(moved=True, standing=Standing(gain=4.5, stay=4.0)),
            (
                "moved at 1,500 samples for a place that is worth more: gain 4.5 against 4 where it was"
                " (plan-3-1-7)"
            ),
        ),
        (
            PreemptReason.PLAN,
            cause(
                moved=True,
                to=(Beneficiary(job_id=JobId("x"), gpus=2, standing=Standing(gain=2.5)),),
                others=1,
                standing=Standing(gain=4.5, stay=4.0),
            ),
            (
                "moved at 1,500 samples for a place that is worth more: gain 4.5 against 4 where it was;"
                " x (2 GPUs) and 1 more start there (plan-3-1-7)"
            ),
        ),
        (
            PreemptReason.PLAN,
            cause(
                moved=True,
                to=(Beneficiary(job_id=JobId("x"), gpus=2, standing=Standing(gain=4.5)),),
                standing=Standing(gain=3.0, stay=4.0),
            ),
            "moved at 1,500 samples for x (2 GPUs): gain 4.5 against its 3 (plan-3-1-7)",
        ),
        (
            PreemptReason.PLAN,
            cause(
                to=(Beneficiary(job_id=JobId("x"), gpus=4, standing=Standing(priority=3.0, gain=4.5)),),
                standing=Standing(priority=0.5),
            ),
            "preempted at 1,500 samples for x (4 GPUs): latency ratio 3 against its 0.5 (plan-3-1-7)",
        ),
        (
            PreemptReason.PLAN,
            cause(moved=True, node=NodeId("a")),
            "moved at 1,500 samples since a drains (plan-3-1-7)",
        ),
        (
            PreemptReason.PLAN,
            cause(moved=True, standing=Standing(priority=0.5)),
            "moved at 1,500 samples for another place: latency ratio 0.5 (plan-3-1-7)",
        ),
        (
            PreemptReason.PLAN,
            cause(to=(Beneficiary(job_id=JobId("new"), gpus=1),), standing=Standing(gain=1.25)),
            "preempted at 1,500 samples for new (1 GPU): its own gain 1.25 (plan-3-1-7)",
        ),
        (
            PreemptReason.MERGE,
            cause(
                moved=True,
                to=(Beneficiary(job_id=JobId("x"), gpus=4, standing=Standing(gain=4.5)),),
                standing=Standing(gain=1.25),
            ),
            (
                "merged at 1,500 samples since its copies get new shares, to make room for x (4 GPUs): "
                "gain 4.5 against its 1.25 (plan-3-1-7)"
            ),
        ),
        (
            PreemptReason.MERGE,
            cause(moved=True, node=NodeId("a")),
            "merged at 1,500 samples since its copies get new shares, as a drains (plan-3-1-7)",
        ),
        (
            PreemptReason.MERGE,
            None,
            "merged at 1,500 samples since its copies did their shares",
        ),
        (
            PreemptReason.MERGE,
            Cause(node=NodeId("a")),
            "merged at 1,500 samples since its worker on a ended",
        ),
        (
            PreemptReason.PLAN,
            cause(
                measures=Measures(priority="GPU-seconds held so far, least first"),
                to=(Beneficiary(job_id=JobId("x"), gpus=1, standing=Standing(priority=0.0)),),
                standing=Standing(priority=3250.0),
            ),
            (
                "preempted at 1,500 samples for x (1 GPU): GPU-seconds held so far 0 against its 3,250"
                " (plan-3-1-7)"
            ),
        ),
    ],
)
def test_a_preemption_names_its_reason_and_the_jobs_it_serves(
    reason: PreemptReason, why: Cause | None, words: str
) -> None:
    assert with_cause(reason, why) == words


def words(fact: Event) -> str:
    return fact_line(fact, UNKNOWN).split(maxsplit=2)[2]


def test_a_drain_says_why() -> None:
    drained = NodeDrained(at=1.0, node_id=NodeId("a"), reason="Xid 79 on GPU 3")
    assert words(drained) == "drains: Xid 79 on GPU 3"
    assert words(NodeDrained(at=1.0, node_id=NodeId("a"))) == "drains: nothing new starts there"


def test_the_end_of_processes_is_one_line_for_any_reason() -> None:
    end = worker_stopped(outcome=Outcome.FAILED, reason="ends\nTraceback:\n  x\nValueError: \x1b[1mno")
    end = msgspec.structs.replace(end, exit_code=1)
    assert words(end).endswith("(exit code 1): ends … ValueError: [1mno")
    assert "\n" not in fact_line(failed(reason="a\nb\nc"), UNKNOWN)


def test_a_measurement_that_failed_is_not_said_to_have_completed() -> None:
    end = worker_stopped(outcome=Outcome.COMPLETED, samples_done=0.0)
    assert words(end) == f"its measurement on {end.node_id} has ended"


def test_every_outcome_has_words() -> None:
    assert set(OUTCOMES) == set(Outcome)
    done = worker_stopped(outcome=Outcome.QUOTA)
    assert ", its share done at " in words(done)


def test_a_placement_that_was_taken_back_names_both_plans_once() -> None:
    fact = PlacementRefused(
        at=1.0,
        job_id=JobId("train-1"),
        placement_id=PlacementId("pl-1"),
        plan_id=PlanId("plan-3-1-6"),
        reason="taken back before it started",
        cause=cause(to=(Beneficiary(job_id=JobId("x"), gpus=4),)),
    )
    taken = "not started (plan-3-1-6): taken back before it started"
    assert words(fact) == f"{taken}, for x (4 GPUs) (plan-3-1-7)"
    lost = msgspec.structs.replace(
        fact, reason=f"{fact.reason}: a node was lost", cause=Cause(node=NodeId("a"))
    )
    assert words(lost) == f"{taken}: a node was lost (a)"


def test_the_start_of_a_gang_says_its_meeting_point_and_restored_samples() -> None:
    up = msgspec.structs.replace(worker_started(), samples_restored=1500.0)
    assert words(up).endswith(", restored at 1,500 samples")
    assert words(msgspec.structs.replace(gang_formed(node_id="a"), meeting="10.0.0.1:4711")).endswith(
        "ordered to train on a, to meet at 10.0.0.1:4711"
    )
