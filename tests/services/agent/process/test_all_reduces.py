"""All-reduces that are timed: on which GPUs, and what is left of their processes."""

import asyncio
import contextlib
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from schemas.calibration import AllReduceTimes, Ring
from schemas.questions import JoinAllReduce
from services.agent.process import all_reduces, runner
from services.agent.process.all_reduces import NotTimed
from services.agent.process.host import Host
from services.agent.process.kernel.cgroups import Groups
from services.agent.process.kernel.spawning import ProcessSpec
from tests.services.agent.agent_bench import HERE
from tests.services.agent.agent_bench import node as a_node
from tests.services.agent.process.process_bench import RunningNode, order, running_node

TIMES = AllReduceTimes(seconds=((1.0,),))


def part(gpus: int) -> JoinAllReduce:
    ring = Ring(members=((a_node(HERE), gpus),))
    return JoinAllReduce(node_id=HERE, ring=ring, sizes=(1e6,), repeats=1, meeting="127.0.0.1:1")


async def test_all_reduces_run_only_on_the_gpus_they_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Sequence[int]] = []

    async def timed(_: Host, question: JoinAllReduce, gpu_indices: Sequence[int]) -> AllReduceTimes:  # noqa: ARG001
        taken.append(gpu_indices)
        return TIMES

    monkeypatch.setattr(runner, "time_all_reduces", timed)
    async with running_node() as node:
        await node.trained(order("iterations=1000000"))
        assert await node.runner.all_reduces(part(2), (0, 2, 3)) == TIMES
        assert taken == [[2, 3]]
        with pytest.raises(NotTimed, match="2 GPUs wanted, 1 free"):
            await node.runner.all_reduces(part(2), (0, 3))


async def test_all_reduces_and_jobs_have_the_same_variables_of_the_agent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Such as those with which an operator chooses the network of NCCL."""
    monkeypatch.setenv("NCCL_IB_HCA", "mlx5_0")
    interpreter = tmp_path / "python"
    interpreter.write_text(f"#!/bin/sh\nenv >>{tmp_path}/seen\necho '[[1.0]]'\n")
    interpreter.chmod(0o755)
    async with running_node() as node:
        node.folders.interpreter.write_text(str(interpreter))
        assert await node.runner.all_reduces(part(1), (0,)) == TIMES
        await node.trained(order(command=("sh", "-c", f"env >>{tmp_path}/seen; true")))
        await node.ended()
    assert (tmp_path / "seen").read_text().splitlines().count("NCCL_IB_HCA=mlx5_0") == 2


class Starts:
    """Ranks that wait for their peers; the second start is held until `go_on`, and fails where `fails`."""

    def __init__(self, *, fails: bool = False) -> None:
        self.made: list[subprocess.Popen[bytes]] = []
        self.second = asyncio.Event()
        self.go_on = threading.Event()
        self._loop = asyncio.get_running_loop()
        self._fails = fails

    def started(self, _: ProcessSpec) -> subprocess.Popen[bytes]:
        if self.made:
            self._loop.call_soon_threadsafe(self.second.set)
            assert self.go_on.wait(30.0)
            if self._fails:
                raise BlockingIOError("no process is left")
        self.made.append(subprocess.Popen(["sleep", "600"]))
        return self.made[-1]

    def left(self) -> list[int]:
        return [one.pid for one in self.made if one.returncode is None]

    def end(self) -> None:
        for one in self.made:
            one.kill()
            one.wait()


def asked_of(node: RunningNode) -> asyncio.Task[object]:
    node.folders.interpreter.write_text(sys.executable)
    return asyncio.create_task(node.runner.all_reduces(part(2), (0, 1)))


def folders_of(node: RunningNode) -> list[Path]:
    return list(node.folders.run.glob("all-reduce-*"))


def groups_in(folder: Path) -> list[Path]:
    return list(folder.iterdir())


@pytest.mark.parametrize("ends", ["a start fails", "nobody wants it"])
async def test_no_rank_outlives_a_start_that_is_cut_short(monkeypatch: pytest.MonkeyPatch, ends: str) -> None:
    fails = ends == "a start fails"
    starts = Starts(fails=fails)
    monkeypatch.setattr(all_reduces, "start_process", starts.started)
    async with running_node() as node:
        timing = asked_of(node)
        await starts.second.wait()
        if not fails:
            timing.cancel()
            await asyncio.sleep(0)
        starts.go_on.set()
        try:
            with pytest.raises(BlockingIOError if fails else asyncio.CancelledError):
                await timing
            await node.until(lambda: len(starts.made) == (1 if fails else 2))
            assert starts.left() == []
            assert folders_of(node) == []
        finally:
            starts.end()


async def test_no_group_outlives_all_reduces_that_are_cancelled_as_it_is_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    begun, go_on, loop = asyncio.Event(), threading.Event(), asyncio.get_running_loop()
    make = Groups.make

    def late(self: Groups, name: str) -> object:
        loop.call_soon_threadsafe(begun.set)
        assert go_on.wait(30.0)
        return make(self, name)

    async with running_node() as node:
        with monkeypatch.context() as patch:
            patch.setattr(Groups, "make", late)
            patch.setattr(node.runner._host, "groups", Groups({"": tmp_path}))
            timing = asked_of(node)
            await begun.wait()
            timing.cancel()
            await asyncio.sleep(0)
            go_on.set()
            with contextlib.suppress(asyncio.CancelledError):
                await timing
            await asyncio.sleep(0.1)  # for a thread that is left to itself
        assert folders_of(node) == groups_in(tmp_path) == []
