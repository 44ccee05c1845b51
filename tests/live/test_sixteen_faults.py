"""Those of the sixteen faults of schedulers that no other test causes alone, once each.

One stack of processes for all. Each test checks that the fault has occurred, then what the row of
docs/failures.md promises, and last that `hopyard diag` finds no rule broken. Seconds are printed (`-s`).
"""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from msgspec.structs import replace

from hopyard.api.connect import patiently
from schemas.base import Event
from schemas.events import (
    GpusWithheld,
    JobCancelled,
    JobCompleted,
    JobPreempted,
    JobQueued,
    JobStarted,
    JobSubmitted,
    NodeDrained,
    NodeJoined,
    NodeLost,
    NodeRestored,
    NodeReturned,
    Outcome,
    PlacementRefused,
    PlanPublished,
    PreemptReason,
    ProfileFailed,
    ProfileMeasured,
    ProfilingAdded,
    ProfilingPlanned,
    StartOrdered,
    StopOrdered,
    WorkerCheckpointed,
    WorkerStarted,
    WorkerStopped,
)
from schemas.ids import JobId, NodeId, PlacementId, PlanId
from schemas.placement import Gang
from schemas.plans import PlanKind
from shared.domain.audit import audit
from shared.domain.states import ENDED
from tests.live.fault_target import GPUS_PER_NODE, FaultTarget, fault_target, node_agent
from tests.live.live_builders import SPEED
from tests.stack_watch import Seconds, until

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

START_TIMEOUT_S = 5.0
ROUND_S = 30.0 * SPEED
"""half a real minute"""
EARLY = 0.4
"""share of a round: what begins by then ends before the next round"""
NEVER_UP_S = 1e6
SHORT = 2_900.0 * 4 * 120
"""samples of two minutes on four GPUs"""


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[FaultTarget]:
    folder = tmp_path_factory.mktemp("target")
    async with fault_target(folder, start_timeout_real_s=START_TIMEOUT_S, round_s=ROUND_S) as target:
        yield target


@pytest_asyncio.fixture(loop_scope="module")
async def target(stage: FaultTarget) -> AsyncIterator[FaultTarget]:
    yield stage
    await stage.cleared()
    await stage.breaks_no_rule()


def places(plan: PlanPublished, job_id: JobId) -> bool:
    return any(one.job_id == job_id for one in plan.placements)


async def test_1_the_scheduler_dies_between_decision_and_launch(target: FaultTarget) -> None:
    with target.stopped("placer"):
        job_id = await target.submit("decided", GPUS_PER_NODE)
        plan = await target.fact(PlanPublished, lambda fact: places(fact, job_id))
        target.kill("planner")
        target.kill("placer")
        killed = Seconds()
    assert target.of(StartOrdered, job_id) == []

    started = await target.started(job_id)
    killed.say("1: the job started")
    planned = {one.placement_id for one in plan.placements if one.job_id == job_id}
    assert {started.placement_id} == planned, "what was decided is done"
    orders = target.of(StartOrdered, job_id)
    assert [order.placement_id for order in orders] == [started.placement_id], "and done once"


async def test_2_slow_start(target: FaultTarget) -> None:
    with target.faulty("slow", NEVER_UP_S):
        job_id = await target.submit("slow", 2 * GPUS_PER_NODE)
        late = await target.fact(StartOrdered, lambda fact: fact.job_id == job_id)
        ordered = Seconds()
        refused = await target.fact(PlacementRefused, lambda fact: fact.job_id == job_id)
    assert (refused.placement_id, refused.late) == (late.placement_id, True)
    assert len(up := [one.node_id for one in target.of(WorkerStarted, job_id)]) == 1, "one node of the two"

    started = await target.started(job_id, after=refused)
    ordered.say(f"2: the job started, of which {START_TIMEOUT_S} s are allowed to the slow node,")
    assert started.placement_id != late.placement_id
    stops = {one.node_id for one in target.of(StopOrdered, job_id) if one.placement_id == late.placement_id}
    assert stops == set(late.gang.nodes) >= set(up), "all of the gang are taken back"


async def test_3_a_gpu_vanishes(target: FaultTarget) -> None:
    job_id = await target.submit("robbed", GPUS_PER_NODE)
    before = await target.started(job_id)
    (node_id,) = before.gang.nodes
    with target.faulty(f"gone-{node_id}", 1):
        vanished = Seconds()
        withheld = await target.fact(GpusWithheld, lambda fact: fact.node_id == node_id and 1 in fact.gpus)
        vanished.say("3: the GPU was withheld")
        started = await target.started(job_id, after=before)
        vanished.say("3: the job started elsewhere")
    assert "fallen off the bus" in withheld.gpus[1]
    assert node_id not in started.gang.nodes
    drained = await target.fact(NodeDrained, lambda fact: fact.node_id == node_id)
    assert drained.reason == "GPU 1: fallen off the bus"
    (preempted,) = target.of(JobPreempted, job_id)
    assert preempted.reason is PreemptReason.INTERRUPTED

    target.kill(node_agent(node_id))
    joined = await target.fact(NodeJoined, lambda fact: fact.node_id == node_id, after=drained)
    assert joined.withheld == {}
    await patiently(lambda: target.client.restore(node_id))
    await target.fact(NodeRestored, lambda fact: fact.node_id == node_id)


async def test_4_two_placements_on_one_gpu(target: FaultTarget) -> None:
    ended, running = [await target.submit(name, GPUS_PER_NODE) for name in ("ended", "running")]
    before, owner = [await target.started(job_id) for job_id in (ended, running)]
    (node_id,) = owner.gang.nodes
    await target.cancel(ended)
    await target.fact(WorkerStopped, lambda fact: fact.placement_id == before.placement_id)

    second = _ordered_to(target, target.of(StartOrdered, ended)[0], node_id)
    await target.publish("placer", second)
    ordered = Seconds()
    assert await target.fact(StartOrdered, lambda fact: fact == second)
    refused = await target.fact(
        WorkerStopped, lambda fact: (fact.placement_id, fact.node_id) == (second.placement_id, node_id)
    )
    ordered.say("4: the agent refused the second order")
    assert (refused.outcome, refused.reason) == (Outcome.REFUSED, f"{GPUS_PER_NODE} GPUs wanted, 0 free")

    stale = _second_place(target, running, node_id)
    await target.publish("planner", stale)
    assert await target.fact(PlanPublished, lambda fact: fact.plan_id == stale.plan_id)
    objection = await target.fact(PlacementRefused, lambda fact: fact.plan_id == stale.plan_id)
    assert objection.reason == "its plan is by an older leader of the planner"
    assert [one.placement_id for one in target.of(StartOrdered, running)] == [owner.placement_id]
    assert not target.of(JobPreempted, running)


def _ordered_to(target: FaultTarget, order: StartOrdered, node_id: NodeId) -> StartOrdered:
    """The order, changed to the GPUs of another node, where a job runs."""
    assert order.node_id != node_id
    node = next(fact.node for fact in target.log if isinstance(fact, NodeJoined) and fact.node_id == node_id)
    return replace(order, node_id=node_id, gang=Gang.of({node_id: order.gang.gpus}), nodes=(node,))


def _second_place(target: FaultTarget, job_id: JobId, node_id: NodeId) -> PlanPublished:
    """A plan as a former leader would make it too late: the job has a second placement on its node."""
    plans = [fact for fact in target.log if isinstance(fact, PlanPublished)]
    plan = next(fact for fact in plans if places(fact, job_id))
    (first,) = [one for one in plan.placements if one.job_id == job_id]
    again = replace(first, placement_id=PlacementId("second"), gang=Gang.of({node_id: GPUS_PER_NODE}))
    return replace(
        plan,
        plan_id=PlanId("stale"),
        kind=PlanKind.FRAGMENT,
        token=max(fact.token for fact in plans) - 1,
        placements=(again,),
        left_out=(),
    )


async def test_5_one_node_of_a_gang_refuses(target: FaultTarget) -> None:
    with target.stopped("placer"):
        job_id = await target.submit("refused", 2 * GPUS_PER_NODE)
        plan = await target.fact(PlanPublished, lambda fact: places(fact, job_id))
        (gang,) = [one.gang for one in plan.placements if one.job_id == job_id]
        with target.faulty(f"busy-{gang.nodes[-1]}"):
            await target.fact(
                GpusWithheld, lambda fact: fact.node_id == gang.nodes[-1] and len(fact.gpus) > 0, after=plan
            )
            assert target.of(StartOrdered, job_id) == []
            target.wake("placer")
            refusal = await target.fact(
                WorkerStopped, lambda fact: fact.job_id == job_id and fact.outcome is Outcome.REFUSED
            )
            noticed = Seconds()
    assert refusal.node_id == gang.nodes[-1]
    assert "withheld" in refusal.reason

    refused = await target.fact(PlacementRefused, lambda fact: fact.job_id == job_id)
    assert refused.reason == refusal.reason
    stopped = await target.fact(
        WorkerStopped, lambda fact: fact.job_id == job_id and fact.node_id == gang.nodes[0]
    )
    started = await target.started(job_id, after=stopped)
    noticed.say("5: the job started, its other node freed,")
    assert started.placement_id != refusal.placement_id
    assert len(started.gang.nodes) == len(gang.nodes)


async def test_9_a_waiting_job_not_woken(target: FaultTarget) -> None:
    """What it waits for comes free between two rounds; then again while the planner is killed."""
    first, second, third = [await target.submit(f"full-{number}", GPUS_PER_NODE) for number in range(3)]
    for job_id in (first, second, third):
        await target.started(job_id)
    large, larger = [await target.submit(name, 2 * GPUS_PER_NODE) for name in ("large", "larger")]
    for job_id in (large, larger):
        await target.fact(JobQueued, lambda fact, job_id=job_id: fact.job_id == job_id)  # type: ignore[misc]

    await early_in_a_round(target)
    await target.cancel(first, second)
    freed = Seconds()
    started = await target.started(large)
    freed.say("9: the waiting job started")
    assert not rounds_between(target.log, target.of(JobCancelled, second)[0], started)

    await early_in_a_round(target)
    with target.stopped("planner"):
        await target.cancel(large)
        for node_id in started.gang.nodes:
            await target.fact(
                WorkerStopped,
                lambda fact, node_id=node_id: (fact.job_id, fact.node_id) == (large, node_id),  # type: ignore[misc]
            )
        target.kill("planner")
        killed = Seconds()
    woken = await target.started(larger)
    killed.say("9: the waiting job started, its planner killed,")
    assert not rounds_between(target.log, target.of(JobCancelled, large)[0], woken)


async def early_in_a_round(target: FaultTarget) -> None:
    now = (await patiently(target.client.status)).at
    if now % ROUND_S > EARLY * ROUND_S:
        await target.fact(ProfilingPlanned, lambda fact: fact.at > now)


def rounds_between(log: list[Event], earlier: Event, later: Event) -> list[Event]:
    between = log[log.index(earlier) : log.index(later)]
    return [fact for fact in between if isinstance(fact, ProfilingPlanned)]


async def test_10_quota_on_growth(target: FaultTarget) -> None:
    """A job grows to its demand and no further; a project that has its share leaves the rest to who waits."""
    await target.choose("optimus")
    beside = await target.submit("beside", 2 * GPUS_PER_NODE)
    await target.started(beside)
    elastic = await target.submit("elastic", [1, 2, 4])
    small = await target.started(elastic)
    assert small.gang.gpus == GPUS_PER_NODE
    await target.cancel(beside)
    left = Seconds()
    grown = await target.started(elastic, after=small)
    left.say("10: a job ran on all that it asks for")
    assert grown.gang.gpus == 4, "not all six that are there"
    await target.cleared()

    await target.choose("yarn-cs+capacities=greedy=1 modest=1")
    greedy = [await target.submit(f"greedy-{number}", 1, project="greedy") for number in range(9)]
    for job_id in greedy[:6]:
        await target.started(job_id)
    modest = [await target.submit(f"modest-{number}", 1, project="modest") for number in range(3)]
    for job_id in modest:
        queued = await target.fact(JobQueued, lambda fact, job_id=job_id: fact.job_id == job_id)  # type: ignore[misc]
    await target.cancel(*greedy[:3])
    for job_id in modest:
        await target.started(job_id)
    after = target.log[target.log.index(queued) :]
    assert {fact.job_id for fact in after if isinstance(fact, JobStarted)} == {*modest}, (
        "and nobody of the others"
    )
    assert [fact for fact in target.log if isinstance(fact, JobQueued) and fact.job_id in greedy[6:]], (
        "who waited"
    )
    await target.choose("fifo-skipping")


async def test_11_a_flapping_node(target: FaultTarget) -> None:
    """Its cable is cut: its workers run on unnoticed and start elsewhere, too; then the cable is mended."""
    node_id = target.of_kind(NodeJoined)[0].node_id
    async with target.through_cable(node_id) as line:
        jobs = [await target.submit(f"parted-{number}", GPUS_PER_NODE) for number in range(3)]
        places = {(await target.started(job_id)).gang.nodes[0]: job_id for job_id in jobs}
        job_id = places.pop(node_id)
        (before,) = target.of(JobStarted, job_id)
        await target.fact(WorkerCheckpointed, lambda fact: fact.job_id == job_id)
        line.cut()
        cut = Seconds()
        lost = await target.fact(NodeLost, lambda fact: fact.node_id == node_id, after=before)
        cut.say("11: the node was lost")
        await target.cancel(*places.values())
        again = await target.started(job_id, after=lost)
        (order,) = [one for one in target.of(StartOrdered, job_id) if one.placement_id == again.placement_id]
        assert node_id not in again.gang.nodes
        assert order.samples_done == newest(target, before) > 0, "from what it was heard to have saved"

        line.mend()
        mended = Seconds()
        returned = await target.fact(NodeReturned, lambda fact: fact.node_id == node_id, after=lost)
        mended.say("11: the node was back")
        whole = await target.submit("everywhere", 2 * GPUS_PER_NODE)
        stopped = await target.fact(
            WorkerStopped, lambda fact: fact.placement_id == before.placement_id, after=lost
        )
        first = await target.fact(StartOrdered, lambda fact: (fact.job_id, fact.node_id) == (whole, node_id))
        assert lost.at < returned.at
        assert target.log.index(stopped) < target.log.index(first), "stale work stops before anything starts"
        assert len(target.of(JobStarted, job_id)) == 2, "and nothing is started once more"
        await target.cleared()


async def test_12_a_reservation_never_released(target: FaultTarget) -> None:
    """GPUs are set aside for a measurement on a node that never answers."""
    with target.stopped("placer"):
        job_id = await target.submit("unmeasured", 1, code="new")
        planned = await target.fact(
            ProfilingAdded, lambda fact: any(run.job_id == job_id for run in fact.runs)
        )
        (run,) = [run for run in planned.runs if run.job_id == job_id]
        with target.stopped(node_agent(run.node_id)):
            target.wake("placer")
            order = await target.fact(StartOrdered, lambda fact: fact.placement_id == run.placement_id)
            reserved = Seconds()
            assert order.profile_iterations > 0
            lost = await target.fact(NodeLost, lambda fact: fact.node_id == run.node_id, after=order)
            reserved.say("12: the node was lost")
            failed = await target.fact(ProfileFailed, lambda fact: fact.placement_id == run.placement_id)
            assert not failed.final
            measured = await target.fact(ProfileMeasured, lambda fact: fact.job_id == job_id)
            assert measured.node_id != run.node_id
            await target.started(job_id)
            reserved.say("12: the job was measured elsewhere, and started")
    await target.fact(NodeReturned, lambda fact: fact.node_id == run.node_id, after=lost)
    back = Seconds()
    await target.cancel(job_id)
    whole = await target.submit("whole", 3 * GPUS_PER_NODE)
    await target.started(whole)
    back.say("12: a job had every GPU there is")


async def test_14_order_of_preemption_drifts(target: FaultTarget) -> None:
    """Of two that are to stop, one gets its order late, and the service that ordered it dies meanwhile."""
    keeper = await target.submit("keeper", GPUS_PER_NODE, preemptible=False)
    movable = [await target.submit(f"movable-{number}", GPUS_PER_NODE) for number in range(2)]
    kept = await target.started(keeper)
    before = [await target.started(job_id) for job_id in movable]
    for job_id in movable:
        await target.fact(WorkerCheckpointed, lambda fact, job_id=job_id: fact.job_id == job_id)  # type: ignore[misc]
    await target.choose("srtf")

    deaf = before[0].gang.nodes[0]
    with target.stopped(node_agent(deaf)):
        urgent = await target.submit("urgent", 2 * GPUS_PER_NODE, samples=SHORT)
        for job_id in movable:
            await target.fact(StopOrdered, lambda fact, job_id=job_id: fact.job_id == job_id)  # type: ignore[misc]
        target.kill("placer")
        killed = Seconds()
        assert not [one for one in target.of(WorkerStopped, movable[0]) if one.node_id == deaf], "heard late"
    started = await target.started(urgent)
    killed.say("14: the job that was preferred started")
    for one in before:
        ends = [
            fact for fact in target.of(WorkerStopped, one.job_id) if fact.placement_id == one.placement_id
        ]
        first = next(
            fact for fact in target.of(StartOrdered, urgent) if fact.placement_id == started.placement_id
        )
        assert target.log.index(ends[0]) < target.log.index(first), "stops come before starts"

    await target.fact(JobCompleted, lambda fact: fact.job_id == urgent)
    for one in before:
        again = await target.fact(
            StartOrdered,
            lambda fact, one=one: (  # type: ignore[misc]
                fact.job_id == one.job_id and fact.placement_id != one.placement_id
            ),
        )
        assert again.samples_done == newest(target, one) > 0, "from the newest checkpoint"
    assert target.of(JobStarted, keeper) == [kept]
    assert not target.of(JobPreempted, keeper)
    await target.choose("fifo-skipping")


def newest(target: FaultTarget, started: JobStarted) -> float:
    """Samples in the last checkpoint that a placement reported, at any time."""
    said: list[WorkerCheckpointed | WorkerStopped] = [
        *target.of(WorkerCheckpointed, started.job_id),
        *target.of(WorkerStopped, started.job_id),
    ]
    return max(fact.samples_done for fact in said if fact.placement_id == started.placement_id)


async def test_after_all_that_every_job_has_ended(stage: FaultTarget) -> None:
    jobs = len([fact for fact in await stage.facts() if isinstance(fact, JobSubmitted)])
    await until(stage.client, lambda status: sum(status.jobs.get(state, 0) for state in ENDED) == jobs)
    lines = [line async for line in stage.client.events()]
    assert audit([line.fact() for line in lines], drained=True, seqs=[line.seq for line in lines]) == []
