"""What the placer makes of nodes that are lost, and of agents that begin new lives."""

import pytest
from msgspec.structs import replace

from schemas.base import Event
from schemas.cluster import Node
from schemas.events import (
    GpusWithheld,
    JobPreempted,
    JobSubmitted,
    NodeDrained,
    NodeJoined,
    NodeLost,
    Outcome,
    PlacementRefused,
    PreemptReason,
    ProfileRun,
    ProfilingPlanned,
    StartOrdered,
)
from schemas.ids import GpuType, JobId, NodeId, PlacementId
from schemas.plans import Cause, PlanKind
from tests.services.placer.placer_bench import (
    JOB,
    OTHER,
    A,
    B,
    Bench,
    copies,
    joined,
    node,
    place,
    plan,
    spec,
)
from tests.services.placer.test_core import kinds, only, refusal_of


@pytest.mark.parametrize("life", ["0", "2", "11"])
def test_a_new_life_of_an_agent_is_any_other_name(life: str) -> None:
    bench = Bench()  # whose agents are in their life "1"
    bench.start(place("p1", a=4))
    facts = bench.tell(joined(A, node(A), life=life, at=60.0))
    assert only(JobPreempted, facts).reason is PreemptReason.AGENT_RESTARTED


def test_an_agent_that_joins_again_in_the_same_life_keeps_its_workers() -> None:
    """As it does once the bus is back: the name is read again each time."""
    bench = Bench(nodes=())
    for at in (0.0, 60.0):
        bench.tell(joined(A, node(A), life=str(4711), at=at))
        if not at:
            bench.start(place("p1", a=4))
    assert bench.plan(place("p1", a=4)) == []


def test_an_agent_that_kept_one_of_its_workers_has_lost_the_others() -> None:
    bench = Bench()
    kept, gone = place("p1", a=2), place("p2", OTHER, a=2)
    bench.start(kept)
    bench.start(gone)
    again = NodeJoined(at=60.0, node_id=A, node=node(A), life="2", workers=(kept.placement_id,))
    assert only(JobPreempted, bench.tell(again)).placement_id == gone.placement_id


def test_a_lost_node_ends_all_placements_though_one_of_copies_goes_on_elsewhere() -> None:
    bench = Bench()
    shared = copies("p1", a=2, b=2)
    bench.start(shared)
    bench.start(place("p2", OTHER, a=2))
    assert only(JobPreempted, bench.tell(NodeLost(at=45.0, node_id=A))).placement_id == "p2"
    assert bench.core.state.placements[shared.placement_id].wanted


def test_a_placement_that_waits_for_a_node_is_refused_when_the_node_is_lost() -> None:
    """Else its job would wait as long as the node is away."""
    bench = Bench()
    old, new = place("p1", a=4), place("p2", OTHER, a=2, b=2)
    bench.start(old)
    bench.plan(new)
    assert (
        refusal_of(bench.tell(NodeLost(at=45.0, node_id=B)))
        == "taken back before it started: a node was lost"
    )
    assert kinds(bench.stop(old, A, Outcome.CHECKPOINTED)) == [JobPreempted]


def test_a_placement_that_waits_for_a_node_still_starts_when_its_agent_restarted() -> None:
    bench = Bench()
    old, new = place("p1", a=4), place("p2", OTHER, a=2, b=2)
    bench.start(old)
    bench.plan(new)
    assert bench.tell(joined(B, node(B), life="2", at=45.0)) == []
    assert PlacementRefused not in kinds(bench.stop(old, A, Outcome.CHECKPOINTED))
    assert len(bench.core.state.coming_up) == 1


K80S = replace(node(A), gpu_type=GpuType("k80"))


@pytest.mark.parametrize(
    ("before", "after", "made_from", "first"),
    [
        (node(A), K80S, 6, PlacementRefused),
        (node(A), K80S, 7, StartOrdered),
        (node(A), node(A, 8), 6, StartOrdered),
    ],
)
def test_a_plan_starts_nothing_on_a_node_whose_gpus_it_took_for_others(
    before: Node, after: Node, made_from: int, first: type[Event]
) -> None:
    """It counts what the plan's maker knew: facts up to `made_from`."""
    bench = Bench(nodes=())
    bench.tell(joined(A, before, life="1"))
    bench.core.state.seq = 7
    bench.tell(joined(A, after, life="2", at=5.0))
    made = plan("plan-1", [place("p1", a=4)], kind=PlanKind.FIRST, token=1, at=10.0)
    facts = bench.tell(replace(made, made_from=made_from))
    assert kinds(facts)[0] is first
    if first is PlacementRefused:
        assert refusal_of(facts) == "node a came back with other GPUs while the plan was made"


def test_no_job_starts_on_gpus_that_it_may_not_use() -> None:
    bench = Bench()
    only_k80 = replace(spec(), gpu_types=(GpuType("k80"),))
    bench.tell(JobSubmitted(at=0.0, job_id=JobId("job-3"), spec=only_k80, key="3"))
    facts = bench.plan(place("p1", JobId("job-3"), a=4))
    assert refusal_of(facts) == "node a has t4 GPUs, which the job may not use"


def test_the_loss_of_a_node_that_is_unknown_or_lost_changes_nothing() -> None:
    bench = Bench()
    assert bench.tell(NodeLost(at=45.0, node_id=NodeId("absent"))) == []
    bench.start(place("p1", JOB, a=4))
    assert only(JobPreempted, bench.tell(NodeLost(at=46.0, node_id=A)))
    assert bench.tell(NodeLost(at=47.0, node_id=A)) == []


def test_nothing_new_starts_on_a_drained_node() -> None:
    bench = Bench()
    bench.tell(NodeDrained(at=5.0, node_id=A, reason="GPU 3: fallen off the bus"))
    assert refusal_of(bench.plan(place("p1", a=4))) == "node a is drained"
    assert kinds(bench.plan(place("p2", OTHER, b=4)))[0] is StartOrdered


def test_a_placement_that_waits_for_a_node_is_taken_back_when_the_node_is_drained() -> None:
    bench = Bench()
    old, new = place("p1", a=4), place("p2", OTHER, a=2, b=2)
    bench.start(old)
    bench.plan(new)
    taken_back = only(PlacementRefused, bench.tell(NodeDrained(at=45.0, node_id=A)))
    assert (taken_back.placement_id, taken_back.reason) == (
        "p2",
        "taken back before it started: the node is drained",
    )
    assert taken_back.cause == Cause(node=A)
    assert StartOrdered not in kinds(bench.stop(old, A, Outcome.CHECKPOINTED))


def test_what_runs_on_a_drained_node_is_left_to_the_next_plan_and_so_is_a_measurement() -> None:
    bench = Bench()
    bench.start(place("p1", a=4))
    run = ProfileRun(placement_id=PlacementId("pf"), job_id=OTHER, gpu_type=GpuType("t4"), node_id=A)
    bench.tell(ProfilingPlanned(at=30.0, round=1, runs=(run,)))  # waits for a GPU
    assert bench.tell(NodeDrained(at=45.0, node_id=A)) == []
    assert all(placed.wanted for placed in bench.core.state.placements.values())


def waiting_for_a() -> Bench:
    """`p2` waits for GPUs of both nodes, of which `p1` has those of A."""
    bench = Bench()
    bench.start(place("p1", a=4))
    bench.plan(place("p2", OTHER, a=2, b=2))
    return bench


def test_a_placement_that_waits_for_a_node_is_taken_back_when_its_agent_leaves() -> None:
    gone = waiting_for_a().tell(NodeDrained(at=45.0, node_id=A, life="1"))
    assert refusal_of(gone) == "taken back before it started: the time of a node was over"


def test_the_leave_of_an_earlier_agent_takes_nothing_back() -> None:
    assert waiting_for_a().tell(NodeDrained(at=45.0, node_id=A, life="0")) == []


def moving_to_a() -> Bench:
    """`p1` runs on two GPUs of A. `p3` waits for the other two until its job has stopped on B."""
    bench = Bench()
    kept = place("p1", a=2)
    bench.start(kept)
    bench.start(place("p2", OTHER, b=2))
    bench.plan(kept, place("p3", OTHER, a=2))
    return bench


def test_what_waits_for_gpus_that_are_withheld_by_now_is_taken_back() -> None:
    """Else its job would wait for the next first plan, also beside GPUs that are idle elsewhere."""
    bench = moving_to_a()
    assert bench.tell(GpusWithheld(at=45.0, node_id=A, gpus={})) == []
    facts = bench.tell(GpusWithheld(at=46.0, node_id=A, gpus={3: "python (4711)"}))
    taken_back = only(PlacementRefused, facts)
    assert (taken_back.placement_id, taken_back.reason) == (
        "p3",
        "taken back before it started: GPUs of the node are withheld",
    )
    assert bench.core.state.placements[PlacementId("p1")].wanted


def test_what_waits_for_gpus_that_a_new_agent_withholds_is_taken_back() -> None:
    bench = moving_to_a()
    again = joined(A, node(A), life="2", at=45.0, workers=(PlacementId("p1"),))
    assert refusal_of(bench.tell(replace(again, withheld={0: "broken"}))).endswith("are withheld")


def test_what_waits_is_left_where_the_gpus_that_are_not_withheld_suffice() -> None:
    bench = waiting_for_a()
    assert bench.tell(GpusWithheld(at=45.0, node_id=A, gpus={2: "broken", 3: "broken"})) == []


def test_a_worker_that_ends_before_it_is_up_is_no_drain() -> None:
    bench = Bench()
    coming = place("p1", a=2, b=2)
    bench.plan(coming)
    bench.tell(NodeDrained(at=45.0, node_id=A))
    bench.stop(coming, A, Outcome.CHECKPOINTED)
    assert refusal_of(bench.stop(coming, B, Outcome.CHECKPOINTED)) == "taken back before it started"
