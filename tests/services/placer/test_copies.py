"""What the placer makes of a job's copies: quotas, merging, and copies that are lost."""

import msgspec
import pytest

from schemas.base import Event
from schemas.events import (
    GangFormed,
    JobCancelled,
    JobFailed,
    JobPreempted,
    JobStarted,
    NodeDrained,
    NodeJoined,
    NodeLost,
    NodeReturned,
    Outcome,
    PreemptReason,
    StartOrdered,
    StopOrdered,
    WorkerCheckpointed,
)
from schemas.ids import JobId, NodeId
from schemas.placement import Forked, Gang, Member
from schemas.plans import Placement, PlanKind
from services.placer.core import Placer
from tests.services.placer.placer_bench import JOB, OTHER, A, B, Bench, copies, node, place, worker_started
from tests.services.placer.test_core import kinds, only

C = NodeId("c")
RETRIED = JobId("job-3")


def forked(placement_id: str, job_id: JobId = JOB, **shares: float) -> Placement:
    """Copies of four GPUs each."""
    members = tuple(Member(NodeId(name), 4) for name in sorted(shares))
    gang = Gang(members, Forked(shares=tuple(shares[one.node] for one in members)))
    return msgspec.structs.replace(place(placement_id, job_id, a=4), gang=gang)


def stage() -> Bench:
    """Three nodes that run copies; a job of 1,000,000 samples in batches of 32."""
    bench = Bench(nodes=())
    for number, node_id in enumerate((A, B, C)):
        joined = NodeJoined(
            at=0.0, node_id=node_id, node=node(node_id), life=str(number), modes=("forked", "lockstep")
        )
        bench.tell(joined)
    bench.submit(RETRIED, retries=1)
    return bench


def gone(
    bench: Bench, placement: Placement, node_id: NodeId, outcome: Outcome, samples: float
) -> list[Event]:
    return bench.stop(placement, node_id, outcome, samples, leads=True)


def saved(bench: Bench, placement: Placement, node_id: NodeId, samples: float) -> list[Event]:
    return bench.tell(
        WorkerCheckpointed(
            at=40.0,
            node_id=node_id,
            placement_id=placement.placement_id,
            job_id=placement.job_id,
            samples_done=samples,
        )
    )


def orders(facts: list[Event]) -> dict[NodeId, StartOrdered]:
    return {fact.node_id: fact for fact in facts if isinstance(fact, StartOrdered)}


def test_each_node_is_ordered_to_train_a_gang_of_its_own_to_its_quota() -> None:
    """31,250 steps of 32 samples, a half, three tenths and a fifth of them."""
    bench = stage()
    facts = bench.start(forked("p1", a=0.5, b=0.3, c=0.2))
    ordered = orders(facts)
    assert {node_id: order.until for node_id, order in ordered.items()} == {A: 5e5, B: 3e5, C: 2e5}
    for node_id, order in ordered.items():
        assert order.gang == Gang((Member(node_id, 4),))
        assert [one.node_id for one in order.nodes] == [node_id]
        assert order.learning_rate == 0.4  # of four GPUs, not of twelve
    assert [fact.node_id for fact in facts if isinstance(fact, GangFormed)] == [A, B, C]
    started = only(JobStarted, facts)
    assert (started.global_batch, started.learning_rate) == (12 * 32, 0.4)


def test_a_copy_that_has_to_meet_meets_its_own_processes_alone() -> None:
    bench, placement = stage(), forked("p1", a=0.5, b=0.5)
    bench.plan(placement)
    bench.tell(worker_started(placement, A, 4, meeting="a:1"))
    facts = bench.tell(worker_started(placement, B, 4, meeting="b:2"))
    formed = [fact for fact in facts if isinstance(fact, GangFormed)]
    assert [(fact.node_id, fact.meeting) for fact in formed] == [(A, "a:1"), (B, "b:2")]


def test_a_copy_at_its_quota_frees_its_gpus_and_the_others_run_on() -> None:
    bench, placement = stage(), forked("p1", a=0.5, b=0.5)
    bench.start(placement)
    assert gone(bench, placement, A, Outcome.QUOTA, 5e5) == []
    other = bench.plan(place("p2", OTHER, a=4), kind=PlanKind.FRAGMENT)
    assert kinds(other) == [StartOrdered]


def test_when_all_copies_did_their_shares_the_job_is_over() -> None:
    bench, placement = stage(), forked("p1", a=0.5, b=0.5)
    bench.start(placement)
    gone(bench, placement, A, Outcome.QUOTA, 5e5)
    assert gone(bench, placement, B, Outcome.QUOTA, 5e5) == []
    assert bench.core.state.jobs[JOB].ended
    assert bench.core.state.jobs[JOB].samples_done == 1e6


def test_a_plan_with_new_shares_merges_the_copies_and_is_no_restart() -> None:
    bench, first, second = stage(), forked("p1", a=0.5, b=0.5), forked("p2", a=0.25, b=0.75)
    bench.start(first)
    assert kinds(bench.plan(second)) == [StopOrdered, StopOrdered]
    gone(bench, first, A, Outcome.CHECKPOINTED, 1e5)
    facts = gone(bench, first, B, Outcome.CHECKPOINTED, 5e4)
    preempted = only(JobPreempted, facts)
    assert (preempted.reason, preempted.samples_done) == (PreemptReason.MERGE, 1.5e5)
    ordered = orders(facts)
    assert {order.samples_done for order in ordered.values()} == {1.5e5}
    quotas = [float(order.until or 0.0) - 1.5e5 for order in ordered.values()]
    assert sum(quotas) == pytest.approx(8.5e5, abs=32)
    assert quotas[1] == pytest.approx(3 * quotas[0], abs=64)


def test_a_plan_that_wants_the_gpus_for_others_preempts_the_copies() -> None:
    bench, placement = stage(), forked("p1", a=0.5, b=0.5)
    bench.start(placement)
    bench.plan()
    gone(bench, placement, A, Outcome.CHECKPOINTED, 1e5)
    preempted = only(JobPreempted, gone(bench, placement, B, Outcome.CHECKPOINTED, 5e4))
    assert (preempted.reason, preempted.samples_done) == (PreemptReason.PLAN, 1.5e5)


def test_a_lost_node_loses_its_copy_and_that_copy_s_unsaved_work() -> None:
    """The third case of HadarE: at 1600 and 1300, the third lost after its checkpoint at 1100."""
    bench, placement = stage(), forked("p1", a=0.5, b=0.2, c=0.3)
    bench.start(placement)
    saved(bench, placement, B, 100.0)
    assert bench.tell(NodeLost(at=45.0, node_id=B)) == [only(StopOrdered, bench.log[-1:])]
    gone(bench, placement, A, Outcome.CHECKPOINTED, 600.0)
    preempted = only(JobPreempted, gone(bench, placement, C, Outcome.CHECKPOINTED, 300.0))
    assert (preempted.reason, preempted.samples_done) == (PreemptReason.MERGE, 1000.0)


def test_the_checkpoint_of_a_lost_copy_counts_once_its_node_is_back() -> None:
    bench, placement = stage(), forked("p1", a=0.5, b=0.5)
    bench.start(placement)
    bench.tell(NodeLost(at=45.0, node_id=B))
    bench.tell(NodeReturned(at=46.0, node_id=B))
    gone(bench, placement, B, Outcome.CHECKPOINTED, 500.0)
    preempted = only(JobPreempted, gone(bench, placement, A, Outcome.CHECKPOINTED, 600.0))
    assert preempted.samples_done == 1100.0


def test_a_copy_out_of_memory_leaves_the_others() -> None:
    bench, placement = stage(), forked("p1", a=0.5, b=0.5)
    bench.start(placement)
    assert gone(bench, placement, B, Outcome.FAILED, 0.0) == []
    preempted = only(JobPreempted, gone(bench, placement, A, Outcome.QUOTA, 5e5))
    assert (preempted.reason, preempted.samples_done) == (PreemptReason.MERGE, 5e5)
    assert bench.core.state.jobs[JOB].failures == 0


@pytest.mark.parametrize(
    ("last", "reason"),
    [(Outcome.INTERRUPTED, PreemptReason.INTERRUPTED), (Outcome.FAILED, PreemptReason.FAILED)],
)
def test_all_copies_gone_are_as_a_lost_gang(last: Outcome, reason: PreemptReason) -> None:
    bench, placement = stage(), forked("p1", RETRIED, a=0.5, b=0.5)
    bench.start(placement)
    saved(bench, placement, A, 200.0)
    gone(bench, placement, A, Outcome.INTERRUPTED, 200.0)
    preempted = only(JobPreempted, gone(bench, placement, B, last, 0.0))
    assert (preempted.reason, preempted.samples_done) == (reason, 200.0)


def test_all_copies_failed_fail_a_job_without_retries() -> None:
    bench, placement = stage(), forked("p1", a=0.5, b=0.5)
    bench.start(placement)
    gone(bench, placement, A, Outcome.FAILED, 0.0)
    gone(bench, placement, B, Outcome.FAILED, 0.0)
    assert bench.core.state.jobs[JOB].ended


def test_all_copies_failed_are_one_failure_of_a_job_with_retries() -> None:
    bench = stage()
    often = JobId("often")
    bench.submit(often, retries=2)
    for number in range(2):
        placement = forked(f"p{number}", often, a=0.5, b=0.5)
        bench.start(placement)
        gone(bench, placement, A, Outcome.FAILED, 0.0)
        preempted = only(JobPreempted, gone(bench, placement, B, Outcome.FAILED, 0.0))
        assert preempted.reason is PreemptReason.FAILED
        assert (bench.core.state.jobs[often].failures, bench.core.state.jobs[often].ended) == (
            number + 1,
            False,
        )


def test_the_reason_of_a_copys_end_is_not_that_of_others_on_its_node() -> None:
    """A copy whose peers have saved is merged; the job beside it on the node that is lost has lost it."""
    bench, placement = stage(), copies("p1", a=2, b=2)
    bench.start(placement)
    bench.start(place("p2", OTHER, a=2))
    gone(bench, placement, B, Outcome.QUOTA, 5e5)
    ends = [fact for fact in bench.tell(NodeLost(at=45.0, node_id=A)) if isinstance(fact, JobPreempted)]
    assert {end.job_id: end.reason for end in ends} == {
        JOB: PreemptReason.MERGE,
        OTHER: PreemptReason.NODE_LOST,
    }


def test_all_nodes_lost_are_a_lost_gang() -> None:
    bench, placement = stage(), forked("p1", a=0.5, b=0.5)
    bench.start(placement)
    bench.tell(NodeLost(at=45.0, node_id=A))
    preempted = only(JobPreempted, bench.tell(NodeLost(at=46.0, node_id=B)))
    assert (preempted.reason, preempted.samples_done) == (PreemptReason.NODE_LOST, 0.0)


def test_a_copy_that_fails_while_others_come_up_takes_all_back() -> None:
    bench, placement = stage(), forked("p1", a=0.5, b=0.5)
    bench.plan(placement)
    bench.tell(worker_started(placement, A, 4))
    facts = gone(bench, placement, B, Outcome.INTERRUPTED, 0.0)
    assert kinds(facts) == [StopOrdered]


def test_a_node_that_joins_takes_part_from_the_next_round() -> None:
    bench, first, second = stage(), forked("p1", a=1.0), forked("p2", a=0.5, b=0.5)
    bench.start(first)
    bench.plan(second)
    assert set(orders(gone(bench, first, A, Outcome.CHECKPOINTED, 320.0))) == {A, B}


def test_copies_of_a_cancelled_job_stop_without_further_facts() -> None:
    bench, placement = stage(), forked("p1", a=0.5, b=0.5)
    bench.start(placement)
    assert kinds(bench.tell(JobCancelled(at=45.0, job_id=JOB))) == [StopOrdered, StopOrdered]
    assert gone(bench, placement, A, Outcome.CHECKPOINTED, 10.0) == []
    assert gone(bench, placement, B, Outcome.CHECKPOINTED, 10.0) == []
    assert not bench.core.state.placements


def test_a_copy_on_a_node_that_takes_its_leave_leaves_alone() -> None:
    bench, placement = stage(), forked("p1", a=0.5, b=0.5)
    bench.start(placement)
    bench.tell(NodeDrained(at=44.0, node_id=A, life="0"))
    assert gone(bench, placement, A, Outcome.CHECKPOINTED, 64.0) == []
    assert JobFailed not in kinds(gone(bench, placement, B, Outcome.QUOTA, 5e5))
    assert bench.core.state.jobs[JOB].samples_done == 64.0 + 5e5


def test_a_killed_placer_restores_copies_from_the_stream() -> None:
    bench, placement = stage(), forked("p1", a=0.5, b=0.2, c=0.3)
    bench.start(placement)
    saved(bench, placement, B, 100.0)
    gone(bench, placement, A, Outcome.QUOTA, 5e5)
    bench.tell(NodeLost(at=45.0, node_id=B))
    again = Placer(start_timeout_s=60.0, profile_iterations=20)
    for fact in bench.log:
        again.handle(fact, fact.at)
    assert again.state == bench.core.state
    before = bench.core
    bench.core = again
    preempted = only(JobPreempted, gone(bench, placement, C, Outcome.QUOTA, 3e5))
    assert preempted.samples_done == 5e5 + 100.0 + 3e5
    assert before.state.jobs[JOB].samples_done == 5e5 + 100.0
