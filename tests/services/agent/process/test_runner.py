"""Workers as real processes, whose ranks speak as the plug-in does: how they start, run and end."""

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from schemas.ids import JobId
from services.agent.process import launcher, runner, worker
from services.agent.process.kernel.spawning import ProcessSpec, start_process
from services.agent.tasks import (
    Completed,
    Failed,
    Interrupted,
    Observed,
    Profiled,
    Saved,
    Started,
    Stopped,
)
from tests.services.agent.agent_bench import HERE
from tests.services.agent.process.process_bench import (
    P1,
    RunningNode,
    left_of,
    order,
    processes_of,
    running_node,
    short_folder,
)


async def test_a_job_trains_to_its_end() -> None:
    async with running_node() as node:
        await node.trained(order("print=hello", "iterations=5"))
        assert await node.ended() == Completed(P1, 1_000.0)
        assert node.of(Started) == [Started(P1, "", 0.0)]
        assert node.lines() == ["hello"]
        await node.until(lambda: node.runner.running() == ())


async def test_a_node_ends_in_the_instant_in_which_its_last_job_does() -> None:
    with short_folder() as folder:
        node = RunningNode(folder)
        node.end_with(Completed)
        await node.begin()
        await node.trained(order("iterations=5"))
        with contextlib.suppress(asyncio.CancelledError):
            await node.ended()
        await node.end()
        assert left_of(node.folders) == []


async def test_reading_on_does_not_restore_a_folder_that_is_being_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def removed_slowly(folder: Path, **_: object) -> None:
        shutil.rmtree(folder / "last")
        for path in folder.iterdir():
            path.unlink()
        time.sleep(0.2)  # for whoever reads to write down how far
        folder.rmdir()

    monkeypatch.setattr(runner, "READ_EVERY_S", 0.0)
    monkeypatch.setattr(worker, "shutil", SimpleNamespace(rmtree=removed_slowly))
    async with running_node() as node:
        await node.trained(order("print=hello", "iterations=5"))
        await node.ended()


async def test_each_rank_is_claimed_before_the_next_one_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    async with running_node() as node:

        def noting(start: ProcessSpec) -> "subprocess.Popen[bytes]":
            seen.append(len(node.pids()))
            return start_process(start)

        monkeypatch.setattr(launcher, "start_process", noting)
        await node.trained(order("iterations=1", gpus=3))
        await node.ended()
    assert seen == [0, 1, 2]


async def test_a_gang_meets_where_rank_0_is() -> None:
    async with running_node() as node:
        await node.trained(order("iterations=3", gpus=3))
        assert await node.ended() == Completed(P1, 1_000.0)
        assert node.of(Started) == [Started(P1, "127.0.0.1:29500", 0.0)]


LISTENS = """import os, socket
if os.environ["RANK"] == "0":
    socket.socket().bind(("", int(os.environ["MASTER_PORT"])))
    print("listens", flush=True)
"""
"""as a program does that sets no option of its socket"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere no port is held")
async def test_the_port_of_a_command_that_is_no_script_is_held_until_its_rank_0_starts() -> None:
    async with running_node() as node:
        one = order(command=("sh", "-c", f"exec {sys.executable} -c '{LISTENS}'"), gpus=2)
        node.runner.start(one, (0, 1))
        await node.until(lambda: node.ups(P1))
        (up,) = node.ups(P1)
        with socket.socket() as somebody, pytest.raises(OSError, match="Address already in use"):
            somebody.bind(("", int(up.meeting.rpartition(":")[2])))
        node.runner.train(P1, up.meeting)
        await node.ended()
        assert "listens" in node.lines()


async def test_observations_and_checkpoints_of_a_job_are_reported() -> None:
    async with running_node() as node:
        await node.trained(order("forever", gpus=2))
        await node.until(lambda: node.of(Observed) and node.of(Saved))
        assert node.runner.progress().keys() == {JobId("job-of-p1")}
        node.runner.stop(P1)
        last = await node.ended()
        assert isinstance(last, Stopped)
        assert last.samples_done >= node.of(Saved)[-1].samples_done > 0
        seen = node.of(Observed)[0]
        assert seen.seconds >= 0.5
        assert 0 < seen.stretch.throughput <= 2 * 8 / 0.02
        assert len(seen.stretch.data_s[HERE]) == len(seen.stretch.wait_s[HERE]) > 0


async def test_a_stopped_job_goes_on_from_its_checkpoint() -> None:
    async with running_node() as node:
        await node.trained(order("forever"))
        await node.until(lambda: node.of(Saved))
        node.runner.stop(P1)
        first = await node.ended()
        assert isinstance(first, Stopped)
        again = order("iterations=1", name="p2", job_id=JobId("job-of-p1"))
        node.reports.clear()
        await node.trained(again)
        await node.ended(again.placement_id)
        assert node.of(Started)[0].samples_restored == first.samples_done


async def test_a_measurement_starts_without_an_order_to_train() -> None:
    async with running_node() as node:
        node.runner.start(order(profile_iterations=12), (0,))
        last = await node.ended()
        assert isinstance(last, Profiled)
        assert len(last.measured.iteration_s) == 12


@pytest.mark.parametrize(
    ("words", "kind", "reason"),
    [
        (("print=a", "print=b", "exit=3"), Failed, "rank 0 ended with exit code 3\na\nb"),
        (("raise",), Failed, "rank 0 failed: ValueError: no such layer"),
        (("lost",), Interrupted, "rank 0 was interrupted: Connection reset by peer"),
        ((f"kill={signal.SIGKILL}",), Interrupted, "rank 0 was ended by SIGKILL"),
        ((f"kill={signal.SIGSEGV}",), Interrupted, "rank 0 was ended by SIGSEGV"),
        (("exit=0",), Interrupted, "rank 0 ended with exit code 0, but did not report its end"),
    ],
)
async def test_an_exit_is_reported_as_a_failure_or_an_interruption(
    words: tuple[str, ...], kind: type, reason: str
) -> None:
    async with running_node() as node:
        await node.trained(order(*words))
        last = await node.ended()
        assert isinstance(last, kind)
        assert isinstance(last, Failed | Interrupted)
        assert last.reason.startswith(reason)


async def test_a_folder_of_checkpoints_that_is_a_file_is_named_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("no folder")
    async with running_node() as node:
        await node.trained(order("iterations=1", checkpoint_folder=str(tmp_path / "taken")))
        last = await node.ended()
        assert isinstance(last, Failed)
        assert last.reason == f"cannot be started: {tmp_path / 'taken'}: File exists"


async def test_a_rank_that_is_gone_ends_its_gang() -> None:
    async with running_node() as node:
        await node.trained(order("forever", gpus=3))
        os.kill(node.pids()[1], signal.SIGKILL)
        last = await node.ended()
        assert isinstance(last, Interrupted)
        assert (last.reason, last.signal) == ("rank 1 was ended by SIGKILL", signal.SIGKILL)
        assert processes_of(node.folders) == []


@pytest.mark.parametrize(
    "command",
    [("/no/such/python", "script.py"), ("/no/such/program",), ("no-such-program",), ("",), ("a\0b",)],
)
async def test_a_command_that_cannot_be_started_fails_with_the_reason(command: tuple[str, ...]) -> None:
    async with running_node() as node:
        await node.trained(order(command=command))
        last = await node.ended()
        assert isinstance(last, Failed)
        assert "cannot be started" in last.reason
        assert "b'" not in last.reason
        await node.trained(order("iterations=1", name="p2"))  # the others run on
        assert isinstance(await node.ended(order(name="p2").placement_id), Completed)


async def test_a_measurement_says_that_its_program_is_not_there() -> None:
    async with running_node() as node:
        node.runner.start(order(command=("/no/such/python", "script.py"), profile_iterations=12), (0,))
        last = await node.ended()
        assert isinstance(last, Failed)
        assert last.absent


async def test_a_folder_that_is_not_there_is_named() -> None:
    async with running_node() as node:
        await node.trained(order("forever", working_directory="/no/such/folder"))
        last = await node.ended()
        assert isinstance(last, Failed)
        assert "/no/such/folder" in last.reason


async def test_ranks_know_how_long_to_train_on_without_an_agent() -> None:
    async with running_node(node_lease_real_s=7.0) as node:
        await node.trained(order(command=("sh", "-c", "echo $HOPJOB_ORPHAN_S")))
        assert isinstance(await node.ended(), Completed)
        assert node.lines() == ["14.0"]
