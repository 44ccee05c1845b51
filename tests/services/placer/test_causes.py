"""For whom a placement was ended, and what that was worth."""

from hopyard.show.causes import cause_text
from schemas.events import (
    JobPreempted,
    NodeDrained,
    NodeLost,
    Outcome,
    PlacementRefused,
    ProfileRun,
    ProfilingPlanned,
)
from schemas.ids import GpuType, JobId, PlacementId, PlanId
from schemas.plans import Beneficiary, Cause, LeftOut, PlanKind, Standing, Waiting
from tests.services.placer.placer_bench import JOB, MEASURES, OTHER, A, B, Bench, place
from tests.services.placer.test_core import only

OLD = place("p1", a=4)


def cause_of_its_end(bench: Bench) -> Cause | None:
    return only(JobPreempted, bench.stop(OLD, A, Outcome.CHECKPOINTED)).cause


def running() -> Bench:
    bench = Bench()
    bench.start(OLD)
    return bench


def test_a_preemption_names_the_jobs_it_serves_with_their_standings() -> None:
    bench = running()
    mine, theirs = Standing(priority=0.5, gain=1.5), Standing(priority=2.0, gain=4.0)
    bench.plan(place("p2", OTHER, a=3), standings={JOB: mine, OTHER: theirs})
    assert cause_of_its_end(bench) == Cause(
        plan_id=PlanId("plan-2"),
        to=(Beneficiary(job_id=OTHER, gpus=3, standing=theirs),),
        measures=MEASURES,
        standing=mine,
    )


def test_a_job_on_hold_was_not_stopped_for_others() -> None:
    bench = running()
    left = LeftOut(job_id=JOB, reason=Waiting.ON_HOLD, held_by=())
    bench.plan(place("p2", OTHER, a=3), left_out=(left,))
    cause = cause_of_its_end(bench)
    assert cause is not None
    assert cause.on_hold
    assert cause_text("plan", cause) == "since it was put on hold (plan-2)"


def test_a_job_that_gets_another_place_was_moved() -> None:
    bench = running()
    bench.plan(place("p2", a=2, b=2), standings={JOB: Standing(gain=2.0, stay=1.0)})
    cause = cause_of_its_end(bench)
    assert cause is not None
    assert (cause.moved, cause.to, cause.standing) == (True, (), Standing(gain=2.0, stay=1.0))


def test_a_preemption_does_not_name_jobs_placed_on_other_nodes() -> None:
    bench = running()
    bench.plan(place("p2", OTHER, b=4))
    cause = cause_of_its_end(bench)
    assert cause is not None
    assert (cause.to, cause.moved) == ((), False)


def test_a_few_are_named_and_the_others_counted() -> None:
    bench = running()
    jobs = [JobId(f"small-{number}") for number in range(4)]
    for job_id in jobs:
        bench.submit(job_id)
    bench.plan(*(place(f"q{job_id}", job_id, a=1) for job_id in jobs))
    cause = cause_of_its_end(bench)
    assert cause is not None
    assert ([one.job_id for one in cause.to], cause.others) == (jobs[:3], 1)


def test_those_with_most_gpus_are_named_first() -> None:
    bench = Bench(gpus=13)
    bench.start(place(OLD.placement_id, a=13))
    wants = {JobId("d"): 4, JobId("c"): 3, JobId("b"): 3, JobId("e"): 2, JobId("a"): 1}
    for job_id in wants:
        bench.submit(job_id)
    bench.plan(*(place(f"q{job_id}", job_id, a=gpus) for job_id, gpus in sorted(wants.items())))
    cause = cause_of_its_end(bench)
    assert cause is not None
    assert ([(one.job_id, one.gpus) for one in cause.to], cause.others) == ([("d", 4), ("b", 3), ("c", 3)], 2)


def test_a_job_whose_placement_waited_before_the_plan_takes_nothing_by_it() -> None:
    bench = running()
    third, fourth = JobId("third"), JobId("fourth")
    for job_id in (third, fourth):
        bench.submit(job_id)
    waits = place("p2", OTHER, a=2)
    bench.plan(waits, place("p3", third, a=2))
    bench.plan(waits, place("p4", fourth, a=2))
    refused = only(PlacementRefused, bench.log)
    assert refused.placement_id == "p3"
    assert refused.cause is not None
    assert [one.job_id for one in refused.cause.to] == [fourth]


def test_jobs_that_start_on_free_gpus_take_none() -> None:
    bench = Bench(gpus=8)
    bench.start(OLD)
    small, late = JobId("small"), JobId("late")
    for job_id in (small, late):
        bench.submit(job_id)
    bench.plan(place("p2", OTHER, a=3), place("p3", small, a=1), place("p4", late, a=2))
    cause = cause_of_its_end(bench)
    assert cause is not None
    assert [one.job_id for one in cause.to] == [late]


def test_gpus_that_another_placement_waits_for_are_not_free() -> None:
    bench = Bench(gpus=8)
    third, fourth = JobId("third"), JobId("fourth")
    for job_id in (third, fourth):
        bench.submit(job_id)
    bench.start(OLD)
    bench.plan(OLD, place("p3", third, b=4))
    bench.come_up(place("p3", third, b=4))
    waits = place("p2", OTHER, a=4, b=8)
    bench.plan(OLD, waits)
    bench.plan(waits, place("p4", fourth, a=4))
    cause = cause_of_its_end(bench)
    assert cause is not None
    assert [one.job_id for one in cause.to] == [fourth]


def test_a_placement_that_has_ended_since_the_plan_takes_nothing() -> None:
    bench = running()
    bench.start(place("p2", OTHER, b=2))
    bench.stop(place("p2", OTHER, b=2), B, Outcome.CHECKPOINTED)
    bench.plan(place("p2", OTHER, a=2))
    cause = cause_of_its_end(bench)
    assert cause is not None
    assert cause.to == ()


def test_a_measurement_that_takes_the_gpu_is_named_by_its_job() -> None:
    bench = running()
    run = ProfileRun(placement_id=PlacementId("m"), job_id=OTHER, gpu_type=GpuType("t4"), node_id=A)
    bench.tell(ProfilingPlanned(at=9.0, round=1, runs=(run,)))
    bench.plan(place("p2", b=4))
    cause = cause_of_its_end(bench)
    assert cause is not None
    assert cause.to == (Beneficiary(job_id=OTHER, gpus=1),)


def test_a_node_that_drains_is_named() -> None:
    bench = running()
    bench.tell(NodeDrained(at=9.0, node_id=A))
    bench.plan(place("p2", b=4))
    cause = cause_of_its_end(bench)
    assert cause is not None
    assert (cause.node, cause.moved) == (A, True)


def test_a_lost_node_is_named() -> None:
    cause = only(JobPreempted, running().tell(NodeLost(at=30.0, node_id=A))).cause
    assert cause == Cause(node=A)


def test_a_refused_placement_names_the_job_that_took_its_place() -> None:
    bench = running()
    bench.plan(OLD, place("p2", OTHER, b=2))
    bench.stop(place("p2", OTHER, b=2), B, Outcome.REFUSED)
    bench.plan(OLD, place("p3", OTHER, b=2))
    bench.submit(JobId("third"))
    bench.plan(OLD, place("p4", JobId("third"), b=4))
    refused = only(PlacementRefused, bench.stop(place("p3", OTHER, b=2), B, Outcome.CHECKPOINTED))
    assert refused.cause is not None
    assert [one.job_id for one in refused.cause.to] == ["third"]


def test_a_fragment_plan_ends_no_placement() -> None:
    assert running().plan(place("p2", OTHER, b=4), kind=PlanKind.FRAGMENT)[0].tag() == "worker.start-ordered"
