"""The runner on an emulated world: jobs that stand by on their node, and jobs that take turns on one GPU."""

import asyncio
from collections import Counter

import msgspec
import pytest

from schemas.events import StartOrdered
from schemas.ids import JobId, PlacementId, RotaId
from schemas.placement import Gang, Relaxed
from services.agent.tasks import (
    Completed,
    Failed,
    Saved,
    Started,
    Stopped,
)
from tests.services.agent.agent_bench import HERE, job, node, start
from tests.services.agent.work.emulated_bench import (
    BEFORE,
    JOB,
    P1,
    STARTUP_S,
    SWITCH_S,
    Play,
    played,
)

RELAXED = Relaxed(tasks=((1,),))


async def _switched(play: Play, again: StartOrdered) -> None:
    """A relaxed job runs for 100 s, and is stopped; then another placement of it is ordered."""
    await play.trained(start(sync=RELAXED))
    await asyncio.sleep(100.0)
    play.runner.stop(P1)
    play.runner.start(again, (0,))


def test_a_relaxed_job_leaves_at_once_and_comes_back_by_a_switch() -> None:
    again = msgspec.structs.replace(start("p2", sync=RELAXED), job_id=JOB)
    play = played(lambda play: _switched(play, again))
    assert play.of(Stopped) == [(STARTUP_S + 100.0, Stopped(P1, 200.0))]
    assert [at for at, _ in play.of(Started)] == [STARTUP_S, STARTUP_S + 100.0 + SWITCH_S]


@pytest.mark.parametrize(
    "again",
    [
        start("p2", sync=RELAXED),
        msgspec.structs.replace(start("p2"), job_id=JOB),
        msgspec.structs.replace(start("p2", gang=[(node(), 2)], sync=Relaxed(tasks=((1, 1),))), job_id=JOB),
    ],
    ids=["another job", "in another mode", "on more GPUs"],
)
def test_all_others_start_again(again: StartOrdered) -> None:
    play = played(lambda play: _switched(play, again))
    assert [at for at, _ in play.of(Started)][1] == STARTUP_S + 100.0 + STARTUP_S


def test_a_job_that_was_stopped_before_it_was_up_does_not_stand_by() -> None:
    async def scene(play: Play) -> None:
        play.runner.start(start(sync=RELAXED), (0,))
        await asyncio.sleep(1.0)
        play.runner.stop(P1)
        play.runner.start(msgspec.structs.replace(start("p2", sync=RELAXED), job_id=JOB), (0,))

    assert [at for at, _ in played(scene).of(Started)] == [1.0 + STARTUP_S]


def turning(name: str, turns: int = 1, place: int = 0, samples: float = 1_000.0) -> StartOrdered:
    """On the GPU of a rota that goes on at 2 samples/s, divided by turns."""
    sync = Relaxed(tasks=((1,),), rota=RotaId("r"), turns=turns, place=place)
    return start(name, sync=sync, spec=job(samples=samples, checkpoint_interval_s=1e6))


async def _together(play: Play, *orders: StartOrdered) -> None:
    for order in orders:
        play.runner.start(order, (0,))
    await asyncio.sleep(STARTUP_S)
    await asyncio.sleep(0)
    for order in orders:
        play.runner.train(order.placement_id, "")


def test_jobs_of_a_rota_divide_its_time_by_turns() -> None:
    """400 s: half a GPU each; then the first has 200 samples left, and all of it."""

    async def scene(play: Play) -> None:
        await _together(play, turning("p1", samples=600.0), turning("p2", place=1, samples=400.0))
        await asyncio.sleep(100.0)
        assert play.runner.progress() == {JobId("job-of-p1"): 100.0, JobId("job-of-p2"): 100.0}

    ends = {report.placement_id: at - STARTUP_S for at, report in played(scene).of(Completed)}
    assert ends == {PlacementId("p2"): pytest.approx(400.0), P1: pytest.approx(500.0)}


def test_a_job_led_by_another_node_takes_its_turns_and_counts_no_samples_here() -> None:
    """On two GPUs p1 alone would take 250 s; p2 goes after 200 s, with 400 of p1's 1,000 samples done."""

    def led(order: StartOrdered, *tasks: tuple[int, ...]) -> StartOrdered:
        sync = order.gang.sync
        assert isinstance(sync, Relaxed)
        gang = Gang.of({BEFORE: 1, HERE: 1}, msgspec.structs.replace(sync, tasks=tasks))
        return msgspec.structs.replace(order, gang=gang, nodes=(node(BEFORE), node()))

    async def scene(play: Play) -> None:
        p1, p2 = led(turning("p1"), (0,), (1,)), led(turning("p2", place=1), (1,), (0,))
        await _together(play, p1, p2)
        await asyncio.sleep(200.0)
        assert play.runner.progress() == {JOB: pytest.approx(400.0)}
        play.runner.stop(PlacementId("p2"))

    play = played(scene)
    ends = {report.placement_id: at - STARTUP_S for at, report in play.of(Completed)}
    assert ends == {P1: pytest.approx(200.0 + 150.0)}
    assert [(report.placement_id, report.samples_done) for _, report in play.of(Stopped)] == [
        (PlacementId("p2"), 0.0)
    ]
    assert {report.placement_id for _, report in play.of(Saved)} <= {P1}


def test_samples_are_conserved_over_every_change_of_turns() -> None:
    async def scene(play: Play) -> None:
        one, other = turning("p1"), turning("p2", place=1)
        await _together(play, one, other)
        for seconds, turns in ((60.0, 3), (40.0, 0), (80.0, 1)):  # p1 at 1, 1.5, 0 and 1 sample/s
            await asyncio.sleep(seconds)
            play.runner.turn(P1, turning("p1", turns).gang)
        await asyncio.sleep(20.0)
        play.runner.stop(P1)
        play.runner.stop(PlacementId("p2"))

    counts = {report.placement_id: report.samples_done for _, report in played(scene).of(Stopped)}
    assert counts == {
        P1: pytest.approx(60 + 60 + 0 + 20),
        PlacementId("p2"): pytest.approx(60 + 20 + 160 + 20),
    }


@pytest.mark.parametrize("batch_size", [1, 100])
def test_no_task_is_an_event(batch_size: int) -> None:
    """Two jobs for 1,000 s: as much is reported of 2,000 tasks as of 20."""

    def order(name: str, place: int) -> StartOrdered:
        found = turning(name, place=place)
        workload = msgspec.structs.replace(found.spec.workload, batch_size=batch_size)
        return msgspec.structs.replace(found, spec=msgspec.structs.replace(found.spec, workload=workload))

    play = played(lambda play: _together(play, order("p1", 0), order("p2", 1)))
    kinds = Counter(type(report).__name__ for _, report in play.reports)
    assert kinds == {"Started": 2, "Completed": 2}


def test_a_job_with_no_turns_waits_without_progress() -> None:
    async def scene(play: Play) -> None:
        await _together(play, turning("p1", turns=0), turning("p2", place=1, samples=200.0))
        await asyncio.sleep(5_000.0)
        assert play.runner.progress() == {JOB: 0.0}
        play.runner.turn(P1, turning("p1").gang)

    play = played(scene)
    assert [(at, report.placement_id) for at, report in play.of(Completed)] == [
        (STARTUP_S + 100.0, PlacementId("p2")),
        (STARTUP_S + 5_000.0 + 500.0, P1),
    ]


def test_a_job_too_large_for_the_shared_gpu_fails_and_the_others_run_on() -> None:
    async def scene(play: Play) -> None:
        huge = msgspec.structs.replace(turning("p2"), spec=job(model="huge"))
        await _together(play, turning("p1"), huge)

    play = played(scene)
    assert [report.placement_id for _, report in play.of(Failed)] == [PlacementId("p2")]
    assert play.of(Completed) == [(STARTUP_S + 500.0, Completed(P1, 1_000.0))]


def test_checkpoints_of_a_rota_come_at_their_times() -> None:
    async def scene(play: Play) -> None:
        one = msgspec.structs.replace(turning("p1"), spec=job(checkpoint_interval_s=300.0))
        await _together(play, one, turning("p2", place=1))

    saves = [(at - STARTUP_S, report.samples_done) for at, report in played(scene).of(Saved)]
    assert [at for at, _ in saves] == pytest.approx([300.0, 600.0, 900.0])
    assert [samples for _, samples in saves] == pytest.approx([300.0, 600.0, 900.0])
