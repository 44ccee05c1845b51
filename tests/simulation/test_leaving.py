"""Nodes that go away at known times, as allocations do: no job loses what it did."""

import msgspec
import pytest

from loadgen.fault_injection import Disturbance, Stack
from loadgen.simulation import Engine, Simulated, simulate
from schemas.cluster import ClusterFile
from schemas.events import (
    JobPreempted,
    JobStarted,
    NodeDrained,
    NodeLost,
    PreemptReason,
    StartOrdered,
    WorkerStopped,
)
from schemas.ids import JobId, NodeId
from schemas.jobs import GpuRange
from schemas.scenarios import ListedWorkload, ScenarioFile
from shared.domain.audit import audit
from tests.simulation.storms import CLUSTER, SMALL, XP, arriving

LEAVE_S = 60.0
ENDS = {"xp": 450.0, "rtx": 700.0}
"""of half of the nodes of either type, in the middle of a round"""
JOBS = [
    arriving(0.0, "spread", [2, 4], 1800.0, [XP]),
    arriving(5.0, "rigid", 2, 1000.0),
    arriving(10.0, "elastic", GpuRange(min=1, max=4, choices=4), 1200.0),
    arriving(130.0, "late", [1, 2], 700.0),
    arriving(400.0, "last", [1, 2], 900.0),
]
POLICIES = ("hops", "fifo", "las", "tiresias", "gavel", "sia")


def leaving() -> ScenarioFile:
    """The cluster of the storms, of which one node of each type goes away."""
    halves = [
        msgspec.structs.replace(group, prefix=f"{group.prefix}{half}", count=1, until=until)
        for group in CLUSTER.nodes
        for half, until in (("-goes", ENDS[group.prefix]), ("-stays", None))
    ]
    return ScenarioFile(
        name="leaving",
        cluster=ClusterFile(name="leaving", gpu_types=CLUSTER.gpu_types, nodes=halves),
        workload=ListedWorkload(jobs=JOBS),
        settings=SMALL.settings,
    )


def gone(node: str, until: float) -> Disturbance:
    """Whatever the agent has not done by then it never will."""

    async def disturb(stack: Stack) -> None:
        await stack.sleep(until)
        await stack.kill(f"agent-{node}")

    return disturb


ALL_GONE = tuple(gone(f"{prefix}-goes-0", until) for prefix, until in ENDS.items())


def ran(policy: str, engine: Engine = "conductor", disturb: tuple[Disturbance, ...] = ALL_GONE) -> Simulated:
    own = {"leave_before_end_s": LEAVE_S, "node_lease_real_s": 40.0}
    return simulate(leaving(), policy=policy, overrides=own, disturb=disturb, engine=engine)


@pytest.mark.parametrize("policy", POLICIES)
def test_no_job_loses_work_when_its_node_leaves(policy: str) -> None:
    done = ran(policy)
    assert audit(done.events, drained=True, seqs=done.seqs) == []
    assert done.result.jobs == {"submitted": len(JOBS), "completed": len(JOBS)}
    drains = {fact.node_id: fact.at for fact in done.events if isinstance(fact, NodeDrained)}
    assert drains == {f"{prefix}-goes-0": until - LEAVE_S for prefix, until in ENDS.items()}
    assert {fact.node_id for fact in done.events if isinstance(fact, NodeLost)} == set(drains)
    reasons = {fact.reason for fact in done.events if isinstance(fact, JobPreempted)}
    assert reasons <= {PreemptReason.PLAN, PreemptReason.NODE_LEFT}
    assert PreemptReason.NODE_LEFT in reasons
    assert saved(done)


def saved(done: Simulated) -> bool:
    """Whether every job resumed with all that its last worker had done."""
    progress: dict[JobId, float] = {}
    for fact in done.events:
        if isinstance(fact, WorkerStopped) and fact.leads:
            progress[fact.job_id] = fact.samples_done
        elif isinstance(fact, StartOrdered) and not fact.profile_iterations:
            assert fact.samples_done == progress.get(fact.job_id, 0.0), fact
    return bool(progress)


@pytest.mark.parametrize("policy", POLICIES)
def test_no_job_starts_on_a_leaving_node_where_it_would_not_pay(policy: str) -> None:
    """By the restart that was believed beforehand; orders follow their plan when others have stopped."""
    needed_s, patience_s = 15.0 * (1 + 4), 30.0
    for fact in ran(policy).events:
        if isinstance(fact, JobStarted):
            for node in fact.gang.nodes:
                until = ENDS.get(NodeId(node).partition("-")[0], 0.0) if "goes" in node else None
                assert until is None or fact.at + needed_s - patience_s < until - LEAVE_S


@pytest.mark.parametrize("policy", ["hops", "tiresias"])
def test_the_engines_agree(policy: str) -> None:
    one, other = ran(policy, disturb=()), ran(policy, "loop", disturb=())
    assert any(isinstance(fact, NodeDrained) for fact in one.events)
    assert one.result.event_log_hash == other.result.event_log_hash
