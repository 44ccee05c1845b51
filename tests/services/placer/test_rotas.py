"""What the placer makes of jobs that take turns on the same GPUs."""

from collections.abc import Sequence

import msgspec
import pytest
from msgspec.structs import replace

from schemas.base import Event
from schemas.events import (
    GangFormed,
    GpusWithheld,
    JobPreempted,
    JobStarted,
    JobSubmitted,
    NodeLost,
    Outcome,
    PlacementRefused,
    ProfileRun,
    ProfilingPlanned,
    StartOrdered,
    StopOrdered,
    TurnsOrdered,
    WorkerCheckpointed,
)
from schemas.ids import GpuType, JobId, PlacementId, RotaId
from schemas.placement import Gang, Relaxed
from schemas.plans import Placement
from tests.services.placer.placer_bench import (
    JOB,
    OTHER,
    A,
    B,
    Bench,
    joined,
    node,
    place,
    spec,
    worker_started,
)
from tests.services.placer.test_core import only

THIRD = JobId("job-3")


def bench_of_turns() -> Bench:
    """Whose nodes run relaxed gangs."""
    bench = Bench(nodes=())
    for node_id in (A, B):
        fact = joined(node_id, node(node_id), life="1")
        bench.tell(msgspec.structs.replace(fact, modes=("lockstep", "relaxed")))
    bench.submit(THIRD)
    return bench


def test_a_gang_in_a_mode_that_its_job_lacks_is_refused() -> None:
    bench = bench_of_turns()
    bound = JobId("bound")
    bench.tell(JobSubmitted(at=0.0, job_id=bound, spec=replace(spec(), modes=("lockstep",)), key=bound))
    refused = only(PlacementRefused, bench.plan(in_turns("p1", bound, a=4)))
    assert refused.reason == "the job runs no relaxed gangs"


def in_turns(name: str, job_id: JobId = JOB, turns: int = 1, at: int = 0, **gpus: int) -> Placement:
    """A task on each GPU of the rota `r`."""
    alone = place(name, job_id, **gpus)
    tasks = tuple((1,) * one.gpus for one in alone.gang.members)
    sync = Relaxed(tasks=tasks, rota=RotaId("r"), turns=turns, place=at)
    return msgspec.structs.replace(alone, gang=Gang(alone.gang.members, sync), share=0.5)


ONE, TWO = in_turns("p1", a=2, b=2), in_turns("p2", OTHER, at=1, a=2, b=2)


def seen(events: Sequence[Event]) -> list[tuple[type[Event], str]]:
    return [(type(event), getattr(event, "placement_id", "")) for event in events]


def test_jobs_of_a_rota_start_on_the_same_gpus() -> None:
    bench = bench_of_turns()
    assert seen(bench.plan(ONE, TWO)) == [(StartOrdered, "p1")] * 2 + [(StartOrdered, "p2")] * 2
    started = [fact for each in (ONE, TWO) for fact in bench.come_up(each) if isinstance(fact, JobStarted)]
    assert [fact.gang for fact in started] == [ONE.gang, TWO.gang]


def test_other_jobs_get_the_gpus_outside_the_rota() -> None:
    bench = bench_of_turns()
    facts = bench.plan(ONE, TWO, place("p3", THIRD, a=2))
    assert (StartOrdered, "p3") in seen(facts)
    refusals = [
        fact
        for fact in bench_of_turns().plan(ONE, place("p3", THIRD, a=4))
        if isinstance(fact, PlacementRefused)
    ]
    assert [fact.reason for fact in refusals] == [
        "node a has fewer than 4 GPUs that no other placement has or waits for"
    ]


def test_a_job_joins_a_rota_only_once_a_pending_measurement_is_given_back() -> None:
    bench = bench_of_turns()
    old, new = place("p0", OTHER, b=4), in_turns("p2", OTHER, at=1, a=4)
    for each in (in_turns("p1", a=4), old):
        bench.start(each)
    bench.plan(in_turns("p1", a=4), new)
    run = ProfileRun(placement_id=PlacementId("profile"), job_id=THIRD, gpu_type=GpuType("t4"), node_id=A)
    bench.tell(ProfilingPlanned(at=30.0, round=1, runs=(run,)))
    assert (StartOrdered, "p2") not in seen(bench.stop(old, B, Outcome.CHECKPOINTED))
    assert (StartOrdered, "p2") in seen(bench.tell(ProfilingPlanned(at=390.0, round=2, runs=())))


def test_new_turns_are_sent_to_the_nodes_without_restarts() -> None:
    bench = bench_of_turns()
    for each in (ONE, TWO):
        bench.start(each)
    changed = in_turns("p1", turns=3, a=2, b=2)
    facts = bench.plan(changed, TWO)
    assert [(type(fact), fact.node_id) for fact in facts if isinstance(fact, TurnsOrdered)] == [
        (TurnsOrdered, A),
        (TurnsOrdered, B),
    ]
    assert len(facts) == 2
    assert all(isinstance(fact, TurnsOrdered) and fact.gang == changed.gang for fact in facts)
    assert bench.plan(changed, TWO) == []


def test_turns_that_change_before_the_start_are_in_its_order() -> None:
    bench = bench_of_turns()
    blocker = place("p0", THIRD, a=4)
    bench.start(blocker)
    assert (StopOrdered, "p0") in seen(bench.plan(ONE))
    changed = in_turns("p1", turns=2, a=2, b=2)
    assert bench.plan(changed) == []
    orders = [fact for fact in bench.stop(blocker, A, Outcome.CHECKPOINTED) if isinstance(fact, StartOrdered)]
    assert [fact.gang for fact in orders] == [changed.gang] * 2


def test_a_failure_of_one_job_in_a_rota_leaves_the_others() -> None:
    bench = bench_of_turns()
    for each in (ONE, TWO):
        bench.start(each)
    facts = bench.stop(ONE, A, Outcome.FAILED)
    assert {fact.placement_id for fact in facts if isinstance(fact, StopOrdered)} == {"p1"}
    assert bench.core.state.placements[TWO.placement_id].wanted


@pytest.mark.parametrize("meeting", ["", "10.0.0.2:4711"])
def test_a_job_is_led_by_the_first_node_where_it_has_tasks(meeting: str) -> None:
    """On the other one it has no process: what that node's worker says of samples counts nothing."""
    bench = bench_of_turns()
    sync = Relaxed(tasks=((0, 0), (1, 1)), rota=RotaId("r"))
    led = msgspec.structs.replace(ONE, gang=Gang(ONE.gang.members, sync))
    bench.plan(led)
    for node_id, said in ((A, ""), (B, meeting)):
        facts = bench.tell(worker_started(led, node_id, 2, said))
    formed = [(fact.node_id, fact.meeting) for fact in facts if isinstance(fact, GangFormed)]
    assert formed == [(A, meeting), (B, meeting)]
    for node_id, samples, counted in ((A, 900.0, 0.0), (B, 70.0, 70.0)):
        bench.tell(
            WorkerCheckpointed(
                at=40.0, node_id=node_id, placement_id=led.placement_id, job_id=JOB, samples_done=samples
            )
        )
        assert bench.core.state.jobs[JOB].samples_done == counted
    facts = bench.stop(led, B, Outcome.COMPLETED)
    assert [fact.node_id for fact in facts if isinstance(fact, StopOrdered)] == [A]
    assert bench.core.state.jobs[JOB].ended


def test_a_lost_node_ends_all_of_its_rota() -> None:
    bench = bench_of_turns()
    for each in (ONE, TWO):
        bench.start(each)
    bench.tell(NodeLost(at=60.0, node_id=A))
    facts = [fact for each in (ONE, TWO) for fact in bench.stop(each, B, Outcome.CHECKPOINTED)]
    assert {fact.placement_id for fact in facts if isinstance(fact, JobPreempted)} == {"p1", "p2"}


def test_what_waits_to_join_a_rota_is_left_where_gpus_outside_it_are_withheld() -> None:
    bench = bench_of_turns()
    first = in_turns("p1", a=2)
    for each in (first, place("p2", OTHER, b=2), place("p3", THIRD, b=2)):
        bench.start(each)
    bench.plan(first, place("p4", THIRD, a=2), in_turns("p5", OTHER, at=1, a=2))
    facts = bench.tell(GpusWithheld(at=46.0, node_id=A, gpus={3: "python (4711)"}))
    assert seen(facts) == [(PlacementRefused, "p4")]


def test_what_waits_to_join_a_rota_is_taken_back_where_the_rota_s_own_gpus_are_withheld() -> None:
    """Once the rota has left, nothing would take it back, and it could start as little."""
    bench = bench_of_turns()
    first = in_turns("p1", a=4)
    for each in (first, place("p2", OTHER, b=4)):
        bench.start(each)
    bench.plan(first, in_turns("p5", OTHER, at=1, a=4))
    facts = bench.tell(GpusWithheld(at=46.0, node_id=A, gpus={3: "Xid 79"}))
    assert (PlacementRefused, "p5") in seen(facts)


def test_a_rota_of_which_nothing_runs_is_taken_back_where_its_gpus_are_withheld() -> None:
    bench = bench_of_turns()
    for each in (place("p2", OTHER, b=2), place("p3", THIRD, b=2)):
        bench.start(each)
    bench.plan(in_turns("p4", THIRD, a=2), in_turns("p5", OTHER, at=1, a=2))
    facts = bench.tell(GpusWithheld(at=46.0, node_id=A, gpus=dict.fromkeys((1, 2, 3), "python (4711)")))
    assert {name for kind, name in seen(facts) if kind is PlacementRefused} == {"p4", "p5"}


def test_a_rota_on_other_gpus_waits_until_the_old_one_is_gone() -> None:
    bench = bench_of_turns()
    old = [in_turns("p1", a=4), in_turns("p2", OTHER, at=1, a=4)]
    for each in old:
        bench.start(each)
    new = [in_turns("p3", a=2, b=2), in_turns("p4", OTHER, at=1, a=2, b=2)]
    assert {kind for kind, _ in seen(bench.plan(*new))} == {StopOrdered}
    assert StartOrdered not in dict(seen(bench.stop(old[0], A, Outcome.CHECKPOINTED)))
    facts = bench.stop(old[1], A, Outcome.CHECKPOINTED)
    assert {name for kind, name in seen(facts) if kind is StartOrdered} == {"p3", "p4"}
