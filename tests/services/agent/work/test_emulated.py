"""The runner on an emulated world, under virtual time: when things end, and how far they came."""

import asyncio
from typing import Any

import msgspec
import pytest

from schemas.ids import JobId, PlacementId
from schemas.measurements import Stretch
from schemas.placement import Forked
from services.agent.tasks import (
    Completed,
    Failed,
    Observed,
    Profiled,
    Report,
    Saved,
    Started,
    Stopped,
)
from services.agent.work.printed import saved
from shared.runtime.shell.virtual import run
from tests.services.agent.agent_bench import HERE, THERE, FixedWorld, job, node, start
from tests.services.agent.work.emulated_bench import (
    BEFORE,
    JOB,
    P1,
    STARTUP_S,
    Play,
    played,
)


def test_processes_come_up_after_the_startup_time() -> None:
    async def scene(play: Play) -> None:
        play.runner.start(start(), (0,))

    assert played(scene).reports == [(10.0, Started(P1))]


def test_no_worker_trains_before_its_gang_has_formed() -> None:
    async def scene(play: Play) -> None:
        play.runner.start(start(), (0,))
        await asyncio.sleep(500.0)
        assert play.runner.progress() == {}
        play.runner.train(P1, "")

    assert played(scene).of(Completed) == [(500.0 + 1_000.0 / 2.0, Completed(P1, 1_000.0))]


@pytest.mark.parametrize(
    ("samples", "samples_done", "gpus", "seconds"),
    [
        (100.0, 0.0, 1, 50.0),
        (1_000.0, 0.0, 1, 500.0),
        (1_000.0, 900.0, 1, 50.0),
        (960.0, 0.0, 4, 120.0),
        (1_000.0, 0.0, 4, 125.0),
        (1_000.0, 1_000.0, 1, 0.0),
    ],
)
def test_a_job_ends_when_its_samples_are_done(
    samples: float, samples_done: float, gpus: int, seconds: float
) -> None:
    async def scene(play: Play) -> None:
        await play.trained(start(gpus=gpus, spec=job(samples), samples_done=samples_done))

    assert played(scene).of(Completed) == [(STARTUP_S + seconds, Completed(P1, samples))]


def test_a_gang_runs_on_all_its_gpus() -> None:
    async def scene(play: Play) -> None:
        await play.trained(start(gang=[(node(HERE), 2), (node(THERE), 3)], spec=job(100.0)))

    assert played(scene).of(Completed) == [(STARTUP_S + 10.0, Completed(P1, 100.0))]


@pytest.mark.parametrize("done", [0.0, 1e12])
def test_a_copy_ends_exactly_at_its_share_in_a_huge_job(done: float) -> None:
    """100 samples at 2 samples/s: less than what rounding is for the whole job."""
    order = msgspec.structs.replace(start(spec=job(2e12), samples_done=done), until=done + 100.0)

    async def scene(play: Play) -> None:
        await play.trained(order)

    assert played(scene).of(Completed) == [(STARTUP_S + 50.0, Completed(P1, done + 100.0))]


def test_a_copy_without_a_share_ends_at_once() -> None:
    async def scene(play: Play) -> None:
        await play.trained(msgspec.structs.replace(start(samples_done=500.0), until=500.0))

    assert played(scene).of(Completed) == [(STARTUP_S, Completed(P1, 500.0))]


def test_an_emulated_node_runs_copies_in_any_world_that_runs_lockstep() -> None:
    assert Play().runner.modes == {*FixedWorld.modes, Forked}


def test_copies_of_one_placement_have_draws_of_their_own() -> None:
    keys = []

    class Noting(FixedWorld):
        def stretch(self, *args: Any, key: str, **more: Any) -> Stretch:  # noqa: ANN401 - handed on
            keys.append(key)
            return super().stretch(*args, key=key, **more)

    async def scene(play: Play) -> None:
        play.runner._world = Noting()
        await play.trained(msgspec.structs.replace(start(), until=10.0))

    played(scene)
    assert set(keys) == {f"p1/{HERE}"}


def test_a_stop_within_a_stretch_counts_the_samples_so_far_and_takes_time_to_save() -> None:
    async def scene(play: Play) -> None:
        await play.trained(start(samples_done=100.0))
        await asyncio.sleep(150.0)
        play.runner.stop(P1)

    [(at, report)] = played(scene).of(Stopped)
    assert isinstance(report, Stopped)
    assert (at, round(report.samples_done, 3)) == (10.0 + 150.0 + 5.0, 100.0 + 300.0)


def test_no_progress_is_made_while_the_checkpoint_is_written() -> None:
    async def scene(play: Play) -> None:
        await play.trained(start())
        await asyncio.sleep(30.0)
        play.runner.stop(P1)
        await asyncio.sleep(3.0)
        assert play.runner.progress() == {JobId("job-of-p1"): pytest.approx(60.0)}

    played(scene)


def test_a_stop_before_training_is_over_at_once_and_keeps_the_old_checkpoint() -> None:
    async def scene(play: Play) -> None:
        play.runner.start(start(samples_done=40.0), (0,))
        await asyncio.sleep(4.0)
        play.runner.stop(P1)

    assert played(scene).reports == [(4.0, Stopped(P1, 40.0))]


def test_stopping_twice_is_stopping_once() -> None:
    async def scene(play: Play) -> None:
        await play.trained(start())
        play.runner.stop(P1)
        await asyncio.sleep(1.0)
        play.runner.stop(P1)

    assert [at for at, _ in played(scene).of(Stopped)] == [15.0]


def test_a_stop_at_the_very_end_finds_the_job_complete() -> None:
    async def scene(play: Play) -> None:
        asyncio.get_running_loop().call_at(60.0, play.runner.stop, P1)
        await play.trained(start(spec=job(100.0)))

    [(at, last)] = [entry for entry in played(scene).reports if not isinstance(entry[1], Started)]
    assert (at, last) == (60.0, Completed(P1, 100.0))


def test_a_job_that_is_gone_cannot_be_stopped_or_trained() -> None:
    async def scene(play: Play) -> None:
        await play.trained(start(spec=job(10.0)))
        await asyncio.sleep(100.0)
        play.runner.stop(P1)
        play.runner.train(P1, "")
        assert play.runner.running() == ()

    assert [type(report) for _, report in played(scene).reports] == [Started, Completed]


def test_checkpoint_times_do_not_depend_on_stretches() -> None:
    async def scene(play: Play) -> None:
        await play.trained(start(spec=job(500.0, checkpoint_interval_s=100.0)))

    saved = [
        (at, round(report.samples_done, 3))
        for at, report in played(scene).reports
        if isinstance(report, Saved)
    ]
    assert saved == [(110.0, 200.0), (210.0, 400.0)]


def test_every_whole_stretch_is_observed_and_lasts_as_long_as_all_before_it() -> None:
    async def scene(play: Play) -> None:
        await play.trained(start(spec=job(2_500.0)))

    observed = played(scene).of(Observed)
    assert [at for at, _ in observed] == [130.0, 250.0, 490.0, 970.0]
    seconds = [report.seconds for _, report in observed if isinstance(report, Observed)]
    assert seconds == [120.0, 120.0, 240.0, 480.0]


def test_progress_is_known_at_any_time() -> None:
    async def scene(play: Play) -> None:
        await play.trained(start())
        await asyncio.sleep(33.0)
        assert play.runner.progress() == {JobId("job-of-p1"): pytest.approx(66.0)}

    played(scene)


def test_a_measurement_takes_its_start_and_its_iterations() -> None:
    async def scene(play: Play) -> None:
        play.runner.start(start(profile_iterations=10), (0,))

    [(up_at, _), (done_at, done)] = played(scene).reports
    assert (up_at, done_at) == (10.0, 14.0)
    assert isinstance(done, Profiled)
    assert len(done.measured.iteration_s) == 10


def test_measuring_a_job_too_large_for_the_gpu_is_a_lasting_failure() -> None:
    async def scene(play: Play) -> None:
        play.runner.start(start(profile_iterations=10, spec=job(model="huge")), (0,))

    assert played(scene).of(Failed) == [
        (10.0, Failed(P1, "out of memory", lasting=True, whole_workload=True))
    ]


def test_training_a_job_too_large_for_the_gpu_fails() -> None:
    async def scene(play: Play) -> None:
        await play.trained(start(spec=job(model="huge")))

    assert [type(report) for _, report in played(scene).reports] == [Started, Failed]


def test_two_jobs_run_side_by_side() -> None:
    async def scene(play: Play) -> None:
        play.runner.start(start("p1", spec=job(100.0)), (0,))
        play.runner.start(start("p2", spec=job(200.0)), (1,))
        await asyncio.sleep(20.0)
        play.runner.train(PlacementId("p1"), "")
        play.runner.train(PlacementId("p2"), "")

    ends = [(at, report.placement_id) for at, report in played(scene).of(Completed)]
    assert ends == [(70.0, "p1"), (120.0, "p2")]


# ---- what it prints

ALONE = "GPU 0, 1 of 1 GPUs of the gang"


def test_a_job_prints_where_it_starts_how_it_goes_on_and_how_it_ends() -> None:
    """1,000 samples at 2 a second; the first stretch ends after 120 s, the next at 240 s, then at 480 s."""

    async def scene(play: Play) -> None:
        await play.trained(start(spec=job(checkpoint_interval_s=300.0), samples_done=100.0))

    assert played(scene).printed == [
        (
            0.0,
            JOB,
            0,
            "emulated: starts on here, GPU 0, 1 of 1 GPUs of the gang, at 100 of 1000 samples (10.0%)",
        ),
        (130.0, JOB, 0, "trained to 340 of 1000 samples (34.0%), 2.0 samples/s"),
        (250.0, JOB, 0, "trained to 580 of 1000 samples (58.0%), 2.0 samples/s"),
        (310.0, JOB, 0, "checkpoint at 700 of 1000 samples (70.0%)"),
        (460.0, JOB, 0, "complete: 1000 of 1000 samples (100.0%)"),
    ]


def test_a_follower_prints_under_its_rank_and_reports_no_progress() -> None:
    async def scene(play: Play) -> None:
        play.runner.start(start(gang=[(node(HERE), 1), (node(BEFORE), 2)]), (3,))
        await asyncio.sleep(20.0)
        play.runner.stop(P1)

    assert [line[2:] for line in played(scene).printed] == [
        (2, "emulated: starts on here, GPU 3, 1 of 3 GPUs of the gang, at 0 of 1000 samples (0.0%)"),
        (2, "stopped on order"),
    ]


def test_a_measurement_prints_that_it_is_one_and_a_failure_why() -> None:
    async def scene(play: Play) -> None:
        play.runner.start(start(profile_iterations=20), (0,))
        play.runner.start(start("p2", profile_iterations=20, spec=job(model="huge")), (1,))

    texts = [text for *_, text in played(scene).printed]
    assert texts[0] == f"emulated: measures 20 iterations on here, {ALONE}"
    assert sorted(texts[2:]) == ["failed: out of memory", "measured"]


def test_epochs_are_printed_where_the_data_set_has_a_size() -> None:
    workload = msgspec.structs.replace(job().workload, dataset_samples=250)
    order = start(spec=msgspec.structs.replace(job(), workload=workload), samples_done=500.0)
    assert saved(order, 500.0) == "checkpoint at 500 of 1000 samples (50.0%), epoch 2.0 of 4.0"


def test_output_that_is_not_kept_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> str:
        raise AssertionError("a line was made")

    for name in ("started", "trained", "saved", "ended"):
        monkeypatch.setattr(f"services.agent.work.emulated.{name}", fails)

    async def main() -> list[tuple[float, Report]]:
        play = Play()
        running = asyncio.create_task(play.runner.run(play.note, None))
        await asyncio.sleep(0)
        await play.trained(start())
        await asyncio.sleep(10_000.0)
        running.cancel()
        await asyncio.wait({running})
        return play.of(Completed)

    assert len(run(main)) == 1
