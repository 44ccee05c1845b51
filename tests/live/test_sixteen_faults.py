"""Those of the sixteen faults of schedulers that nothing else here strikes with alone, once each.

One stack of processes for all. Each test says in its first lines that the fault has struck, then what the row
of docs/failures.md promises, and last that `hopyard diag` finds no rule broken. Seconds are printed (`-s`).
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
from tests.live.live_builders import SPEED
from tests.live.struck import GPUS_PER_NODE, Struck, node_agent, struck_stack
from tests.stack_watch import Seconds, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

START_TIMEOUT_S = 5.0
ROUND_S = 30.0 * SPEED
"""half a minute"""
EARLY = 0.4
"""of a round: what begins by then has come to its end before the next"""
NEVER_UP_S = 1e6
SHORT = 2_900.0 * 4 * 120
"""samples of two minutes on four GPUs"""


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Struck]:
    folder = tmp_path_factory.mktemp("struck")
    async with struck_stack(folder, start_timeout_real_s=START_TIMEOUT_S, round_s=ROUND_S) as struck:
        yield struck


@pytest_asyncio.fixture(loop_scope="module")
async def struck(stage: Struck) -> AsyncIterator[Struck]:
    yield stage
    await stage.cleared()
    await stage.breaks_no_rule()


def places(plan: PlanPublished, job_id: JobId) -> bool:
    return any(one.job_id == job_id for one in plan.placements)


async def test_1_the_scheduler_dies_between_decision_and_launch(struck: Struck) -> None:
    with struck.stopped("placer"):
        job_id = await struck.submit("decided", GPUS_PER_NODE)
        plan = await struck.fact(PlanPublished, lambda fact: places(fact, job_id))
        struck.kill("planner")
        struck.kill("placer")
        killed = Seconds()
    assert struck.of(StartOrdered, job_id) == []

    started = await struck.started(job_id)
    killed.say("1: the job started")
    planned = {one.placement_id for one in plan.placements if one.job_id == job_id}
    assert {started.placement_id} == planned, "what was decided is done"
    orders = struck.of(StartOrdered, job_id)
    assert [order.placement_id for order in orders] == [started.placement_id], "and done once"


async def test_2_slow_start(struck: Struck) -> None:
    with struck.ill("slow", NEVER_UP_S):
        job_id = await struck.submit("slow", 2 * GPUS_PER_NODE)
        late = await struck.fact(StartOrdered, lambda fact: fact.job_id == job_id)
        ordered = Seconds()
        refused = await struck.fact(PlacementRefused, lambda fact: fact.job_id == job_id)
    assert (refused.placement_id, refused.late) == (late.placement_id, True)
    assert len(up := [one.node_id for one in struck.of(WorkerStarted, job_id)]) == 1, "one node of the two"

    started = await struck.started(job_id, after=refused)
    ordered.say(f"2: the job started, of which {START_TIMEOUT_S} s are allowed to the slow node,")
    assert started.placement_id != late.placement_id
    stops = {one.node_id for one in struck.of(StopOrdered, job_id) if one.placement_id == late.placement_id}
    assert stops == set(late.gang.nodes) >= set(up), "all of the gang are taken back"


async def test_3_a_gpu_vanishes(struck: Struck) -> None:
    job_id = await struck.submit("robbed", GPUS_PER_NODE)
    before = await struck.started(job_id)
    (node_id,) = before.gang.nodes
    with struck.ill(f"gone-{node_id}", 1):
        vanished = Seconds()
        withheld = await struck.fact(GpusWithheld, lambda fact: fact.node_id == node_id and 1 in fact.gpus)
        vanished.say("3: the GPU was withheld")
        started = await struck.started(job_id, after=before)
        vanished.say("3: the job started elsewhere")
    assert "fallen off the bus" in withheld.gpus[1]
    assert node_id not in started.gang.nodes
    drained = await struck.fact(NodeDrained, lambda fact: fact.node_id == node_id)
    assert drained.reason == "GPU 1: fallen off the bus"
    (preempted,) = struck.of(JobPreempted, job_id)
    assert preempted.reason is PreemptReason.INTERRUPTED

    struck.kill(node_agent(node_id))
    joined = await struck.fact(NodeJoined, lambda fact: fact.node_id == node_id, after=drained)
    assert joined.withheld == {}
    await patiently(lambda: struck.client.restore(node_id))
    await struck.fact(NodeRestored, lambda fact: fact.node_id == node_id)


async def test_4_two_placements_on_one_gpu(struck: Struck) -> None:
    ended, running = [await struck.submit(name, GPUS_PER_NODE) for name in ("ended", "running")]
    before, owner = [await struck.started(job_id) for job_id in (ended, running)]
    (node_id,) = owner.gang.nodes
    await struck.cancel(ended)
    await struck.fact(WorkerStopped, lambda fact: fact.placement_id == before.placement_id)

    second = _ordered_to(struck, struck.of(StartOrdered, ended)[0], node_id)
    await struck.publish("placer", second)
    ordered = Seconds()
    assert await struck.fact(StartOrdered, lambda fact: fact == second)
    refused = await struck.fact(
        WorkerStopped, lambda fact: (fact.placement_id, fact.node_id) == (second.placement_id, node_id)
    )
    ordered.say("4: the agent refused the second order")
    assert (refused.outcome, refused.reason) == (Outcome.REFUSED, f"{GPUS_PER_NODE} GPUs wanted, 0 free")

    stale = _second_place(struck, running, node_id)
    await struck.publish("planner", stale)
    assert await struck.fact(PlanPublished, lambda fact: fact.plan_id == stale.plan_id)
    objection = await struck.fact(PlacementRefused, lambda fact: fact.plan_id == stale.plan_id)
    assert objection.reason == "its plan is by an older leader of the planner"
    assert [one.placement_id for one in struck.of(StartOrdered, running)] == [owner.placement_id]
    assert not struck.of(JobPreempted, running)


def _ordered_to(struck: Struck, order: StartOrdered, node_id: NodeId) -> StartOrdered:
    """The order to another node, which is that of a job that runs."""
    assert order.node_id != node_id
    node = next(fact.node for fact in struck.log if isinstance(fact, NodeJoined) and fact.node_id == node_id)
    return replace(order, node_id=node_id, gang=Gang.of({node_id: order.gang.gpus}), nodes=(node,))


def _second_place(struck: Struck, job_id: JobId, node_id: NodeId) -> PlanPublished:
    """A plan as a leader of before would make one, too late: the job again where it is."""
    plans = [fact for fact in struck.log if isinstance(fact, PlanPublished)]
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


async def test_5_one_node_of_a_gang_refuses(struck: Struck) -> None:
    with struck.stopped("placer"):
        job_id = await struck.submit("refused", 2 * GPUS_PER_NODE)
        plan = await struck.fact(PlanPublished, lambda fact: places(fact, job_id))
        (gang,) = [one.gang for one in plan.placements if one.job_id == job_id]
        with struck.ill(f"busy-{gang.nodes[-1]}"):
            await struck.fact(
                GpusWithheld, lambda fact: fact.node_id == gang.nodes[-1] and len(fact.gpus) > 0, after=plan
            )
            assert struck.of(StartOrdered, job_id) == []
            struck.wake("placer")
            refusal = await struck.fact(
                WorkerStopped, lambda fact: fact.job_id == job_id and fact.outcome is Outcome.REFUSED
            )
            noticed = Seconds()
    assert refusal.node_id == gang.nodes[-1]
    assert "withheld" in refusal.reason

    refused = await struck.fact(PlacementRefused, lambda fact: fact.job_id == job_id)
    assert refused.reason == refusal.reason
    stopped = await struck.fact(
        WorkerStopped, lambda fact: fact.job_id == job_id and fact.node_id == gang.nodes[0]
    )
    started = await struck.started(job_id, after=stopped)
    noticed.say("5: the job started, its other node freed,")
    assert started.placement_id != refusal.placement_id
    assert len(started.gang.nodes) == len(gang.nodes)


async def test_9_a_waiting_job_not_woken(struck: Struck) -> None:
    """What it waits for comes free between two rounds; once more while who should wake it is killed."""
    first, second, third = [await struck.submit(f"full-{number}", GPUS_PER_NODE) for number in range(3)]
    for job_id in (first, second, third):
        await struck.started(job_id)
    large, larger = [await struck.submit(name, 2 * GPUS_PER_NODE) for name in ("large", "larger")]
    for job_id in (large, larger):
        await struck.fact(JobQueued, lambda fact, job_id=job_id: fact.job_id == job_id)  # type: ignore[misc]

    await early_in_a_round(struck)
    await struck.cancel(first, second)
    freed = Seconds()
    started = await struck.started(large)
    freed.say("9: the waiting job started")
    assert not rounds_between(struck.log, struck.of(JobCancelled, second)[0], started)

    await early_in_a_round(struck)
    with struck.stopped("planner"):
        await struck.cancel(large)
        for node_id in started.gang.nodes:
            await struck.fact(
                WorkerStopped,
                lambda fact, node_id=node_id: (fact.job_id, fact.node_id) == (large, node_id),  # type: ignore[misc]
            )
        struck.kill("planner")
        killed = Seconds()
    woken = await struck.started(larger)
    killed.say("9: the waiting job started, its planner killed,")
    assert not rounds_between(struck.log, struck.of(JobCancelled, large)[0], woken)


async def early_in_a_round(struck: Struck) -> None:
    now = (await patiently(struck.client.status)).at
    if now % ROUND_S > EARLY * ROUND_S:
        await struck.fact(ProfilingPlanned, lambda fact: fact.at > now)


def rounds_between(log: list[Event], earlier: Event, later: Event) -> list[Event]:
    between = log[log.index(earlier) : log.index(later)]
    return [fact for fact in between if isinstance(fact, ProfilingPlanned)]


async def test_10_quota_on_growth(struck: Struck) -> None:
    """A job grows to its demand and no further; a project that has its share leaves the rest to who waits."""
    await struck.choose("optimus")
    beside = await struck.submit("beside", 2 * GPUS_PER_NODE)
    await struck.started(beside)
    elastic = await struck.submit("elastic", [1, 2, 4])
    small = await struck.started(elastic)
    assert small.gang.gpus == GPUS_PER_NODE
    await struck.cancel(beside)
    left = Seconds()
    grown = await struck.started(elastic, after=small)
    left.say("10: a job ran on all that it asks for")
    assert grown.gang.gpus == 4, "not all six that are there"
    await struck.cleared()

    await struck.choose("yarn-cs+capacities=greedy=1 modest=1")
    greedy = [await struck.submit(f"greedy-{number}", 1, project="greedy") for number in range(9)]
    for job_id in greedy[:6]:
        await struck.started(job_id)
    modest = [await struck.submit(f"modest-{number}", 1, project="modest") for number in range(3)]
    for job_id in modest:
        queued = await struck.fact(JobQueued, lambda fact, job_id=job_id: fact.job_id == job_id)  # type: ignore[misc]
    await struck.cancel(*greedy[:3])
    for job_id in modest:
        await struck.started(job_id)
    after = struck.log[struck.log.index(queued) :]
    assert {fact.job_id for fact in after if isinstance(fact, JobStarted)} == {*modest}, (
        "and nobody of the others"
    )
    assert [fact for fact in struck.log if isinstance(fact, JobQueued) and fact.job_id in greedy[6:]], (
        "who waited"
    )
    await struck.choose("fifo-skipping")


async def test_11_a_flapping_node(struck: Struck) -> None:
    """Its cable is cut: what it runs goes on there, unheard, and is started elsewhere; then it is mended."""
    node_id = struck.of_kind(NodeJoined)[0].node_id
    async with struck.wired(node_id) as line:
        jobs = [await struck.submit(f"parted-{number}", GPUS_PER_NODE) for number in range(3)]
        places = {(await struck.started(job_id)).gang.nodes[0]: job_id for job_id in jobs}
        job_id = places.pop(node_id)
        (before,) = struck.of(JobStarted, job_id)
        await struck.fact(WorkerCheckpointed, lambda fact: fact.job_id == job_id)
        line.cut()
        cut = Seconds()
        lost = await struck.fact(NodeLost, lambda fact: fact.node_id == node_id, after=before)
        cut.say("11: the node was lost")
        await struck.cancel(*places.values())
        again = await struck.started(job_id, after=lost)
        (order,) = [one for one in struck.of(StartOrdered, job_id) if one.placement_id == again.placement_id]
        assert node_id not in again.gang.nodes
        assert order.samples_done == newest(struck, before) > 0, "from what it was heard to have saved"

        line.mend()
        mended = Seconds()
        returned = await struck.fact(NodeReturned, lambda fact: fact.node_id == node_id, after=lost)
        mended.say("11: the node was back")
        whole = await struck.submit("everywhere", 2 * GPUS_PER_NODE)
        stopped = await struck.fact(
            WorkerStopped, lambda fact: fact.placement_id == before.placement_id, after=lost
        )
        first = await struck.fact(StartOrdered, lambda fact: (fact.job_id, fact.node_id) == (whole, node_id))
        assert lost.at < returned.at
        assert struck.log.index(stopped) < struck.log.index(first), "stale work stops before anything starts"
        assert len(struck.of(JobStarted, job_id)) == 2, "and nothing is started once more"
        await struck.cleared()


async def test_12_a_reservation_never_released(struck: Struck) -> None:
    """GPUs are set aside for a measurement on a node that never answers."""
    with struck.stopped("placer"):
        job_id = await struck.submit("unmeasured", 1, code="new")
        planned = await struck.fact(
            ProfilingAdded, lambda fact: any(run.job_id == job_id for run in fact.runs)
        )
        (run,) = [run for run in planned.runs if run.job_id == job_id]
        with struck.stopped(node_agent(run.node_id)):
            struck.wake("placer")
            order = await struck.fact(StartOrdered, lambda fact: fact.placement_id == run.placement_id)
            reserved = Seconds()
            assert order.profile_iterations > 0
            lost = await struck.fact(NodeLost, lambda fact: fact.node_id == run.node_id, after=order)
            reserved.say("12: the node was lost")
            failed = await struck.fact(ProfileFailed, lambda fact: fact.placement_id == run.placement_id)
            assert not failed.final
            measured = await struck.fact(ProfileMeasured, lambda fact: fact.job_id == job_id)
            assert measured.node_id != run.node_id
            await struck.started(job_id)
            reserved.say("12: the job was measured elsewhere, and started")
    await struck.fact(NodeReturned, lambda fact: fact.node_id == run.node_id, after=lost)
    back = Seconds()
    await struck.cancel(job_id)
    whole = await struck.submit("whole", 3 * GPUS_PER_NODE)
    await struck.started(whole)
    back.say("12: a job had every GPU there is")


async def test_14_order_of_preemption_drifts(struck: Struck) -> None:
    """Of two that are to stop one hears it late, and who ordered it dies in between."""
    keeper = await struck.submit("keeper", GPUS_PER_NODE, preemptible=False)
    movable = [await struck.submit(f"movable-{number}", GPUS_PER_NODE) for number in range(2)]
    kept = await struck.started(keeper)
    before = [await struck.started(job_id) for job_id in movable]
    for job_id in movable:
        await struck.fact(WorkerCheckpointed, lambda fact, job_id=job_id: fact.job_id == job_id)  # type: ignore[misc]
    await struck.choose("srtf")

    deaf = before[0].gang.nodes[0]
    with struck.stopped(node_agent(deaf)):
        urgent = await struck.submit("urgent", 2 * GPUS_PER_NODE, samples=SHORT)
        for job_id in movable:
            await struck.fact(StopOrdered, lambda fact, job_id=job_id: fact.job_id == job_id)  # type: ignore[misc]
        struck.kill("placer")
        killed = Seconds()
        assert not [one for one in struck.of(WorkerStopped, movable[0]) if one.node_id == deaf], "heard late"
    started = await struck.started(urgent)
    killed.say("14: the job that was preferred started")
    for one in before:
        ends = [
            fact for fact in struck.of(WorkerStopped, one.job_id) if fact.placement_id == one.placement_id
        ]
        first = next(
            fact for fact in struck.of(StartOrdered, urgent) if fact.placement_id == started.placement_id
        )
        assert struck.log.index(ends[0]) < struck.log.index(first), "stops come before starts"

    await struck.fact(JobCompleted, lambda fact: fact.job_id == urgent)
    for one in before:
        again = await struck.fact(
            StartOrdered,
            lambda fact, one=one: (  # type: ignore[misc]
                fact.job_id == one.job_id and fact.placement_id != one.placement_id
            ),
        )
        assert again.samples_done == newest(struck, one) > 0, "from the newest checkpoint"
    assert struck.of(JobStarted, keeper) == [kept]
    assert not struck.of(JobPreempted, keeper)
    await struck.choose("fifo-skipping")


def newest(struck: Struck, started: JobStarted) -> float:
    """Samples in the last checkpoint that a placement reported, at any time."""
    said: list[WorkerCheckpointed | WorkerStopped] = [
        *struck.of(WorkerCheckpointed, started.job_id),
        *struck.of(WorkerStopped, started.job_id),
    ]
    return max(fact.samples_done for fact in said if fact.placement_id == started.placement_id)


async def test_after_all_that_every_job_has_ended(stage: Struck) -> None:
    jobs = len([fact for fact in await stage.facts() if isinstance(fact, JobSubmitted)])
    await until(stage.client, lambda status: sum(status.jobs.get(state, 0) for state in ENDED) == jobs)
    lines = [line async for line in stage.client.events()]
    assert audit([line.fact() for line in lines], drained=True, seqs=[line.seq for line in lines]) == []
