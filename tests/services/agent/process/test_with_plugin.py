"""The runner with the plug-in: ranks that train with torch, started one by one and forked."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from schemas.calibration import AllReduceMeeting, AllReduceTimes, Ring
from schemas.events import StartOrdered
from schemas.ids import JobId, PlacementId
from schemas.questions import JoinAllReduce, OpenAllReduce
from services.agent.process.kernel.identities import parents
from services.agent.tasks import Completed, Failed, Observed, Profiled, Saved, Stopped
from tests.services.agent.agent_bench import HERE, THERE
from tests.services.agent.agent_bench import node as a_node
from tests.services.agent.process.process_bench import (
    P1,
    RunningNode,
    left_of,
    order,
    processes_of,
    running_node,
    short_folder,
)
from tests.torch_python import torch_python

pytestmark = pytest.mark.torch

SCRIPT = """
import sys, time
import torch
import hopjob

data = torch.utils.data.TensorDataset(torch.randn(256, 8), torch.randint(0, 2, (256,)))
loader = torch.utils.data.DataLoader(data, batch_size=32, shuffle=True)
model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
job = hopjob.attach(model, optimizer)
print("attached", job.rank, job.world, flush=True)
for inputs, labels in job.batches(loader):
    if "fail" in sys.argv:
        raise ValueError("no such label")
    torch.nn.functional.cross_entropy(job.model(inputs), labels).backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.01)
"""


def training(
    folder: Path,
    *words: str,
    samples: float = 1e9,
    **more: Any,  # noqa: ANN401 - fields
) -> StartOrdered:
    (folder / "train.py").write_text(SCRIPT)
    return order(
        command=(str(torch_python()), "train.py", *words),
        working_directory=str(folder),
        samples=samples,
        checkpoint_interval_s=0.5,
        **more,
    )


@pytest.mark.parametrize("template", [False, True])
async def test_a_gang_is_stopped_and_goes_on_with_another_number_of_ranks(*, template: bool) -> None:
    with short_folder() as folder:
        node = RunningNode(folder, installed=True, template=template)
        await node.begin()
        await node.trained(training(folder, gpus=2))
        await node.until(lambda: node.of(Saved) and node.of(Observed))
        assert sorted(node.lines(0) + node.lines(1)) == ["attached 0 2", "attached 1 2"]
        node.runner.stop(P1)
        stopped = await node.ended()
        assert isinstance(stopped, Stopped)
        again = training(
            folder,
            name="p2",
            job_id=JobId("job-of-p1"),
            samples=stopped.samples_done + 640,
            learning_rate=0.05,
        )
        await node.trained(again)
        assert node.ups(PlacementId("p2"))[0].samples_restored == stopped.samples_done
        assert isinstance(await node.ended(PlacementId("p2")), Completed)
        await node.end()
        assert left_of(node.folders) == []


async def test_a_template_that_still_imports_ends_with_its_agent() -> None:
    with short_folder() as folder:
        node = RunningNode(folder, installed=True, template=True)
        await node.begin()
        node.runner.start(training(folder), (0,))
        await node.until(lambda: processes_of(node.folders))
        await node.end()
        assert isinstance(node.last(), Stopped)
        assert left_of(node.folders) == []


async def test_a_script_is_measured_and_its_own_exception_is_a_failure() -> None:
    with short_folder() as folder:
        node = RunningNode(folder, installed=True, template=True)
        await node.begin()
        node.runner.start(training(folder, profile_iterations=10), (0,))
        measured = await node.ended()
        assert isinstance(measured, Profiled)
        assert len(measured.measured.iteration_s) == 10
        await node.trained(training(folder, "fail", name="p2"))
        failed = await node.ended(PlacementId("p2"))
        assert isinstance(failed, Failed)
        assert failed.reason.startswith("rank 0 failed: ValueError: no such label")
        assert failed.exit_code == 1
        await node.end()
        assert left_of(node.folders) == []


DAEMON = """
import os, signal, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("daemon", os.getpid(), flush=True)
        time.sleep(600)
    os._exit(0)
os.wait()
"""


@pytest.mark.parametrize("template", [False, True])
async def test_a_daemon_ends_with_its_worker_without_control_groups_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, template: bool
) -> None:
    """It is no descendant of the rank any more, and has executed no program of its own."""
    monkeypatch.setattr("services.agent.process.runner.groups_of", lambda _: None)
    (tmp_path / "train.py").write_text(DAEMON)
    async with running_node(installed=True, template=template) as node:
        await node.trained(order(command=(str(torch_python()), str(tmp_path / "train.py"))))
        assert isinstance(await node.ended(), Completed)
        [(word, pid)] = [line.split() for line in node.lines()]
        assert word == "daemon"
        assert int(pid) not in parents(), "nor as a zombie"


@pytest.mark.parametrize("template", [False, True])
@pytest.mark.parametrize(("script", "inside"), [("none.py", "."), ("train.py", "none"), ("-m none", ".")])
async def test_a_missing_script_or_folder_is_absent(script: str, inside: str, *, template: bool) -> None:
    with short_folder() as folder:
        node = RunningNode(folder, installed=True, template=template)
        await node.begin()
        of = order(
            command=(str(torch_python()), *script.split()),
            working_directory=str(folder / inside),
            profile_iterations=10,
        )
        node.runner.start(of, (0,))
        failed = await node.ended()
        assert isinstance(failed, Failed)
        assert failed.absent
        assert not node.ups(P1)
        await node.end()


async def test_all_reduces_are_timed_on_one_node_and_between_two() -> None:
    with short_folder() as here, short_folder() as there:
        one, other = RunningNode(here, installed=True), RunningNode(there, installed=True)
        await one.begin()
        await other.begin()
        for each, folder in ((one, here), (other, there)):  # a job says which interpreter has torch
            await each.trained(training(folder, samples=64))
            await each.ended()

        for members in (((a_node(HERE), 2),), ((a_node(HERE), 1), (a_node(THERE), 1))):
            ring = Ring(members=members)
            meeting = await one.runner.all_reduces(
                OpenAllReduce(node_id=HERE, ring=ring, sizes=(32e3, 1e9)), (0, 1)
            )
            assert isinstance(meeting, AllReduceMeeting)
            times, *others = await asyncio.gather(
                *(
                    runner.all_reduces(
                        JoinAllReduce(
                            node_id=node.node_id,
                            ring=ring,
                            sizes=meeting.sizes,
                            repeats=8,
                            meeting=meeting.meeting,
                        ),
                        (0, 1),
                    )
                    for runner, (node, _) in zip((one.runner, other.runner), members, strict=False)
                )
            )
            assert isinstance(times, AllReduceTimes)
            small, large = times.seconds
            assert len(small) == len(large) == 8
            assert 0 < min(small) < min(large)  # of so many, one at least was not kept from its processor
            assert others == [AllReduceTimes(seconds=())] * (len(members) - 1)
        for each in (one, other):
            await each.end()
            assert left_of(each.folders) == []


async def test_all_reduces_are_refused_without_an_interpreter_with_torch() -> None:
    async with running_node() as node:
        ring = Ring(members=((a_node(HERE), 2),))
        for question in (
            OpenAllReduce(node_id=HERE, ring=ring, sizes=(1e6,)),
            JoinAllReduce(node_id=HERE, ring=ring, sizes=(1e6,), repeats=1, meeting="127.0.0.1:1"),
        ):
            with pytest.raises(OSError, match="which interpreter has torch"):
                await node.runner.all_reduces(question, (0, 1))
