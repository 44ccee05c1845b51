"""The sentences of why."""

import msgspec

from hopyard.show.times import Times
from hopyard.show.why import KEPT, OPENINGS, preemptions_text, why_text
from schemas.events import PreemptReason
from schemas.ids import JobId, NodeId, PlanId
from schemas.placement import Gang
from schemas.plans import Beneficiary, Cause, Measures, PlanKind, Stage, Standing, Waiting
from schemas.views import ClockView, HolderView, HoldView, PreemptionView, WhyView
from tests.hopyard.cli_builders import plan_view

LR = Measures(priority="latency ratio, waiting over running", gain="gain, weight × speed")
PREEMPTION = PreemptionView(
    at=600.0,
    started_at=100.0,
    gang=Gang.of({NodeId("t4-0"): 4}),
    reason=PreemptReason.PLAN,
    cause=Cause(
        plan_id=PlanId("plan-1"),
        to=(Beneficiary(job_id=JobId("big"), gpus=4, standing=Standing(priority=2.0)),),
        measures=Measures(priority="level, by attained service, 1 first"),
        standing=Standing(priority=3.0),
    ),
    samples_done=1500.0,
)
WAITS = WhyView(
    job_id=JobId("job-2"),
    state="queued",
    reason="outweighed",
    detail="",
    since=720.0,
    wait_s=65.0,
    expected_wait_s=100.0,
    position=3,
    queue_length=7,
    standing=Standing(priority=0.5, gain=1.25),
    plan=plan_view(measures=LR),
    holders=(
        HolderView(
            job_id=JobId("job-1"),
            gpus=4,
            submitted_at=0.0,
            started_at=300.0,
            standing=Standing(priority=2.0, gain=4.5),
        ),
    ),
)


AT_725 = Times(ClockView(now=725.0, origin=0.0, speed=60.0))
OWN = "latency ratio 0.5, gain 1.25"
SOLVED = "solved, at most 1.0% below the best"
FOR_BIG = "for big (4 GPUs): level 2 against its 3 (plan-1)"


def said(why: WhyView) -> list[str]:
    return why_text(why, AT_725.moment).splitlines()


def test_a_waiting_job_is_explained_by_its_place_the_holders_and_the_plan() -> None:
    assert said(WAITS) == [
        "job-2 is queued and does not run. It could run; other jobs come first, since 00:12:00.0 (5s ago).",
        f"It is number 3 of 7 that wait, in the queue by latency ratio; its own: {OWN}.",
        "Other jobs hold the GPUs that it could use:",
        "  job-1, 4 GPUs, since 00:05:00.0 (7m 05s ago); latency ratio 2, gain 4.5",
        f"Decided in plan-3, a first plan of round 2 by hops, {SOLVED}; 00:12:00.0 (5s ago).",
        "(Latency ratio: waiting over running; gain: weight × speed.)",
        "It has waited 1m 05s so far, of ~1m 40s expected in all.",
    ]


def test_a_job_that_waits_for_longer_than_was_expected_says_so() -> None:
    late = msgspec.structs.replace(WAITS, wait_s=130.0)
    assert said(late)[-1] == "It has waited 2m 10s so far, longer than the ~1m 40s that were expected."


def test_a_queue_without_figures_says_which_jobs_ran_before_or_came_when() -> None:
    plan = plan_view(policy="fifo", stage=Stage.QUEUE, gap=0.0, kind=PlanKind.FRAGMENT)
    holders = tuple(msgspec.structs.replace(one, standing=None) for one in WAITS.holders)
    text = said(
        msgspec.structs.replace(WAITS, plan=plan, holders=holders, standing=None, queue_length=1, position=1)
    )
    assert text[1] == "It is the only one that waits, in the queue."
    assert text[2].startswith(f"Other jobs hold the GPUs that it could use{KEPT}:")
    assert text[3].endswith("since 00:05:00.0 (7m 05s ago); it ran already")
    assert "by fifo, in the order of its queue" in text[4]
    late = tuple(msgspec.structs.replace(one, started_at=None) for one in holders)
    text = said(msgspec.structs.replace(WAITS, plan=plan, holders=late))
    assert text[3].endswith("about to start; submitted 00:00:00.0 (12m 05s ago)")


def test_a_plan_of_another_policy_than_the_chosen_one_says_whose_it_is_and_why() -> None:
    """It has the name of the policy that failed."""
    note = "bad.py:Bad failed: ValueError: no | want; planned by fifo"
    plan = plan_view(policy="bad.py:Bad", stage=Stage.QUEUE, gap=0.0, notes=("the estimator was late", note))
    text = said(msgspec.structs.replace(WAITS, plan=plan))
    at = next(at for at, line in enumerate(text) if line.startswith("Decided"))
    assert "by fifo in place of bad.py:Bad, in the order of its queue" in text[at]
    assert text[at + 1] == f"({note}.)"
    assert not any("late" in line for line in text)
    unfit = plan_view(policy="fifo", notes=("fifo plans in place of gone:Policy: there is none",))
    text = said(msgspec.structs.replace(WAITS, state="running", plan=unfit))
    assert text[2] == "(fifo plans in place of gone:Policy: there is none.)"


def test_a_running_job_says_where_how_fast_and_by_which_plan() -> None:
    runs = msgspec.structs.replace(
        WAITS, state="running", reason="running", gang=PREEMPTION.gang, estimated_throughput=812.0, holders=()
    )
    text = said(runs)
    assert text[0] == "job-2 runs on t4-0:4, since 00:12:00.0 (5s ago), estimated at 812 samples/s."
    assert text[1].endswith("latency ratio 0.5, gain 1.25.")


def test_a_waiting_job_on_hold_says_who_holds_it_and_since_when() -> None:
    waits = msgspec.structs.replace(WAITS, reason="on-hold", detail="by ana")
    assert said(waits)[0].endswith("It is on hold, by ana, since 00:12:00.0 (5s ago).")
    waits = msgspec.structs.replace(waits, detail="")
    assert said(waits)[0].endswith("It is on hold, since 00:12:00.0 (5s ago).")


def test_a_running_job_on_hold_says_whether_it_is_stopped() -> None:
    runs = msgspec.structs.replace(WAITS, state="running", reason="running", holders=())
    stops = msgspec.structs.replace(runs, hold=HoldView(at=600.0))
    assert said(stops)[1].endswith(": the next plan for all jobs stops it.")
    stays = msgspec.structs.replace(runs, hold=HoldView(at=600.0, keeps_gpus=True))
    assert said(stays)[1].endswith(": it is not preemptible and keeps its GPUs.")


def test_a_preempted_job_names_the_jobs_it_was_stopped_for() -> None:
    text = said(msgspec.structs.replace(WAITS, state="preempted", last_preemption=PREEMPTION))
    assert (
        "It ran on t4-0:4 until it was stopped, 00:10:00.0 (2m 05s ago), at 1,500 samples: "
        f"{FOR_BIG}." in text
    )


def test_an_ended_job_says_how_it_ended() -> None:
    rejected = WhyView(
        job_id=JobId("j"), state="rejected", reason="rejected", detail="out of memory", since=9.0
    )
    assert said(rejected) == ["j is rejected, since 00:00:09.0 (11m 56s ago): out of memory."]
    failed = msgspec.structs.replace(rejected, state="failed", detail="exit code 3")
    assert said(failed) == ["j has failed, since 00:00:09.0 (11m 56s ago): exit code 3."]
    cancelled = WhyView(job_id=JobId("j"), state="cancelled", reason="cancelled", detail="it is cancelled")
    assert said(cancelled) == ["j is cancelled."]


def test_an_answer_of_an_earlier_version_is_described_as_far_as_possible() -> None:
    old = WhyView(job_id=JobId("j"), state="queued", reason="outweighed", detail="others")
    assert said(old)[0] == "j is queued and does not run. It could run; other jobs come first: others."


def test_the_details_of_a_reason_follow_its_time() -> None:
    new = WhyView(
        job_id=JobId("j"), state="queued", reason="not-planned", detail="no plan has considered it", since=9.0
    )
    assert said(new)[0].endswith(
        "It waits for a plan, since 00:00:09.0 (11m 56s ago): no plan has considered it."
    )


def test_want_of_room_is_the_reason_only_where_no_other_is_known() -> None:
    waits = msgspec.structs.replace(WAITS, reason="no-configuration", since=None)
    assert said(waits)[0].endswith("No nodes that it may use have room for it.")
    waits = msgspec.structs.replace(waits, detail="it runs no relaxed gangs")
    assert said(waits)[0].endswith("does not run. It can have no GPUs: it runs no relaxed gangs.")


def test_a_level_is_explained_and_an_order_that_says_itself_is_not() -> None:
    level = plan_view(measures=Measures(priority="level, by attained service, 1 first"))
    text = said(msgspec.structs.replace(WAITS, plan=level, standing=Standing(priority=2.0)))
    assert text[1].endswith("in the queue by level; its own: level 2.")
    assert "(Level: by attained service, 1 first.)" in text
    least = plan_view(measures=Measures(priority="GPU-seconds held so far, least first"))
    assert "(" not in "".join(line[0] for line in said(msgspec.structs.replace(WAITS, plan=least)))


def test_every_reason_to_wait_has_words() -> None:
    assert set(Waiting) <= set(OPENINGS)


def test_a_job_that_nobody_replaced_says_so() -> None:
    alone = msgspec.structs.replace(PREEMPTION, cause=Cause(plan_id=PlanId("plan-1")))
    assert preemptions_text((alone,), Times(None).moment).endswith(
        "at 1,500 samples: no job took its place (plan-1)"
    )


def test_moves_are_a_line_each() -> None:
    lost = PreemptionView(at=900.0, started_at=650.0, gang=PREEMPTION.gang, reason=PreemptReason.NODE_LOST)
    assert preemptions_text((PREEMPTION, lost), Times(None).moment).splitlines() == [
        "It ran before:",
        f"  00:01:40.0 to 00:10:00.0 on t4-0:4, stopped at 1,500 samples: {FOR_BIG}",
        "  00:10:50.0 to 00:15:00.0 on t4-0:4, stopped at 0 samples: a node was lost",
    ]
