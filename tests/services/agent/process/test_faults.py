"""What goes wrong with real processes, each with its verdict; nothing is left of any of them."""

import contextlib
import errno
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from schemas.ids import GpuType, PlacementId
from services.agent.process.kernel.cgroups import remove_folder
from services.agent.process.kernel.hierarchies import groups_of
from services.agent.process.kernel.identities import ended_children
from services.agent.process.launcher import Launcher
from services.agent.tasks import (
    Completed,
    Failed,
    Interrupted,
    LastReport,
    NotStarted,
    Saved,
    Started,
    Stopped,
)
from tests.services.agent.gpus.driver import StubGpu, found_here, gpus, uuid
from tests.services.agent.process.process_bench import (
    P1,
    RunningNode,
    left_of,
    order,
    processes_of,
    running_node,
    short_folder,
)

GRACE_S = 1.0


def has_groups(controller: str = "") -> bool:
    groups = groups_of("hopyard-test-probe")
    if groups is None:
        return False
    groups.remove()
    return not controller or bool({controller, ""} & groups.folders.keys())


async def test_a_rank_that_hangs_is_killed_when_its_grace_is_over() -> None:
    async with running_node() as node:
        await node.trained(order("forever", gpus=2, grace_s=GRACE_S))
        await node.until(lambda: node.of(Saved))
        for pid in node.pids():
            os.kill(pid, signal.SIGSTOP)
        node.runner.stop(P1)
        last = await node.ended()
        assert isinstance(last, Stopped)
        assert last.samples_done >= node.of(Saved)[-1].samples_done > 0


async def test_a_process_that_ignores_its_stop_is_killed_when_its_grace_is_over() -> None:
    async with running_node() as node:
        await node.trained(order("deaf", grace_s=GRACE_S))
        node.runner.stop(P1)
        assert await node.ended() == Stopped(P1, 0.0)


@contextlib.contextmanager
def frozen(pid: int) -> Iterator[None]:
    """No signal reaches the process, as if it waited for a disk that hangs."""
    group = Path("/sys/fs/cgroup/freezer/hopyard-test-frozen")
    try:
        group.mkdir(exist_ok=True)
        (group / "cgroup.procs").write_text(f"{pid}")
        (group / "freezer.state").write_text("FROZEN")
    except OSError:
        pytest.skip("no process can be frozen here")
    try:
        yield
    finally:
        (group / "freezer.state").write_text("THAWED")
        remove_folder(group)


async def test_processes_that_do_not_end_when_killed_are_reported_and_keep_their_gpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("services.agent.process.worker.DEATH_LIMIT_S", 0.1)
    async with running_node() as node:
        await node.trained(order("forever", grace_s=GRACE_S))
        with frozen(node.pids()[0]):
            node.runner.stop(P1)
            node.runner.start(order("iterations=1", name="p2"), (0,))
            await node.until(node.runner.troubles)
            assert node.runner.troubles() == ("processes of job-of-p1 do not end although they were killed",)
            assert node.last() is None
            assert not node.ups(PlacementId("p2"))
        assert isinstance(await node.ended(), Stopped)
        await node.until(lambda: node.ups(PlacementId("p2")))
        assert node.runner.troubles() == ()
        node.runner.stop(PlacementId("p2"))
        await node.ended(PlacementId("p2"))


SAVES = """
import signal, sys, time
def save(*_):
    time.sleep(0.5)
    print("saved", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("trains", flush=True)
time.sleep(600)
"""


SHELL_LINES = [
    "{python} {script} 2>&1 | cat",
    "cd / && {python} {script}; echo over",
    "bash -c '{python} {script}; true'",
    "{runner}; true",
]


@pytest.mark.parametrize("line", SHELL_LINES)
async def test_what_a_shell_runs_gets_the_signal_and_may_save(tmp_path: Path, line: str) -> None:
    script = tmp_path / "saves.py"
    script.write_text(SAVES)
    runner = tmp_path / "run.sh"
    runner.write_text(f"#!/bin/bash\n{sys.executable} {script}\ntrue\n")
    runner.chmod(0o755)
    command = ("sh", "-c", line.format(python=sys.executable, script=script, runner=runner))
    async with running_node() as node:
        await node.trained(order(command=command))
        await node.until(lambda: "trains" in node.lines())
        node.runner.stop(P1)
        assert await node.ended() == Stopped(P1, 0.0)
        if "|" not in line:  # there `cat` ends too
            assert node.lines() == ["trains", "saved"]


async def test_a_process_in_its_own_session_ends_with_its_worker() -> None:
    async with running_node() as node:
        await node.trained(order("child", "exit=1", "rank=0"))
        assert isinstance(await node.ended(), Failed)
        assert processes_of(node.folders) == []


async def test_a_worker_s_processes_all_end_without_control_groups_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("services.agent.process.runner.groups_of", lambda _: None)
    async with running_node() as node:
        await node.trained(order("child", "forever", gpus=2))
        await node.until(lambda: node.of(Saved))
        assert len(processes_of(node.folders)) >= 4
        os.kill(node.pids()[0], signal.SIGKILL)
        assert isinstance(await node.ended(), Interrupted)
        assert processes_of(node.folders) == []


LEAVES_A_ZOMBIE = """
import os, signal, time
child = os.fork() or time.sleep(600)
os.kill(child, signal.SIGKILL)
time.sleep(0.1)
os._exit(0)
"""
"""as a rank does with a loader's workers, for whose end it does not wait"""


async def test_what_a_rank_killed_and_did_not_reap_is_reaped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.agent.process.runner.groups_of", lambda _: None)
    async with running_node() as node:
        node.runner.start(order(command=(sys.executable, "-c", LEAVES_A_ZOMBIE)), (0,))
        await node.until(lambda: node.of(Started))
        node.runner.train(P1, "")
        await node.until(node.pids)
        ranks = set(node.pids())
        assert isinstance(await node.ended(), Completed)
        assert ended_children(ranks) == []


async def test_a_worker_of_the_same_name_elsewhere_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.agent.process.runner.groups_of", lambda _: None)
    async with running_node() as one, running_node() as other:
        await one.trained(order("forever"))
        await other.trained(order("child", "exit=1"))
        assert isinstance(await other.ended(), Failed)
        assert one.last() is None
        one.runner.stop(P1)
        assert isinstance(await one.ended(), Stopped)


@pytest.mark.skipif(not has_groups("memory"), reason="no control group of memory to be had here")
async def test_a_job_that_exceeds_its_memory_fails() -> None:
    async with running_node() as node:
        await node.trained(order("memory=300", memory=100e6))
        last = await node.ended()
        assert isinstance(last, Failed)
        assert last.reason.startswith("rank 0: more main memory than the job asked for")
        assert last.signal == signal.SIGKILL
        assert last.lasting


@pytest.mark.skipif(not has_groups(), reason="no control groups to be had here")
async def test_a_limit_that_a_node_cannot_set_is_reported_in_the_output() -> None:
    async with running_node() as node:
        await node.trained(order("iterations=1", cpus=0.5, memory=1e9))
        assert isinstance(await node.ended(), Completed)
        said = [line for line in node.lines() if "sets no limit" in line]
        assert len(said) == [has_groups("cpu"), has_groups("memory")].count(False)


async def test_two_nodes_on_one_machine_do_not_meet() -> None:
    async with running_node() as one, running_node() as other:
        await one.trained(order("forever"))
        await other.trained(order("forever"))
        await one.until(lambda: one.of(Saved) and other.of(Saved))
        one.runner.stop(P1)
        await one.ended()
        assert other.runner.running() == (P1,)
        other.runner.stop(P1)
        assert isinstance(await other.ended(), Stopped)


async def test_a_node_that_ends_lets_its_workers_save() -> None:
    with short_folder() as folder:
        node = RunningNode(folder)
        await node.begin()
        await node.trained(order("forever", gpus=2))
        await node.until(lambda: node.of(Saved))
        await node.end()
        assert isinstance(node.last(), Stopped)
        assert left_of(node.folders) == []


async def test_a_stop_before_it_is_up_ends_it() -> None:
    async with running_node() as node:
        node.runner.start(order("forever"), (0,))
        node.runner.stop(P1)
        node.runner.stop(P1)
        assert isinstance(await node.ended(), Stopped)


async def test_gpus_are_waited_for() -> None:
    async with running_node() as node:
        await node.trained(order("deaf", grace_s=GRACE_S))
        node.runner.stop(P1)
        node.runner.start(order("iterations=1", name="p2"), (0,))
        await node.until(lambda: node.ups(PlacementId("p2")))
        kinds = [type(report) for report in node.reports if isinstance(report, LastReport | Started)]
        assert kinds == [Started, Stopped, Started]


async def test_a_command_that_is_no_script_runs_once_its_gang_has_formed() -> None:
    async with running_node() as node:
        show = (
            "import os; print(os.environ['RANK'], os.environ['MASTER_ADDR'], 'HOPJOB_SOCKET' in os.environ)"
        )
        command = (sys.executable, "-c", show)
        node.runner.start(order(command=command, gpus=2), (0, 1))
        await node.until(lambda: node.of(Started))
        assert node.printed == []
        node.runner.train(P1, node.of(Started)[0].meeting)
        assert isinstance(await node.ended(), Completed)
        assert sorted(text for *_, text in node.printed) == ["0 127.0.0.1 True", "1 127.0.0.1 True"]


async def test_a_command_that_is_no_script_is_not_measured() -> None:
    async with running_node() as node:
        node.runner.start(order(command=("/bin/true",), profile_iterations=10), (0,))
        last = await node.ended()
        assert isinstance(last, Failed)
        assert last.lasting
        assert "no Python script" in last.reason


async def test_secrets_of_the_agent_are_no_business_of_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOPYARD_NATS_TOKEN", "secret")
    async with running_node() as node:
        command = (sys.executable, "-c", "import os; print([n for n in os.environ if 'HOPYARD' in n])")
        await node.trained(order(command=command))
        await node.ended()
        assert node.lines() == ["[]"]


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """Of a megabyte or two."""
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "none", folder], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("no disk can be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


async def test_a_run_folder_that_is_full_is_no_fault_of_a_job() -> None:
    with short_folder() as folder, small_disk(folder / "run"):
        node = RunningNode(folder)
        await node.begin()
        await node.trained(order("fill=/dev/stdout"))
        last = await node.ended()
        assert isinstance(last, Interrupted)
        assert last.reason.startswith(f"rank 0: no space left in {folder / 'run'}")
        fill(folder / "run" / "rest")
        node.runner.start(order("forever", name="p2"), (0,))
        second = await node.ended(PlacementId("p2"))
        assert isinstance(second, NotStarted)
        assert re.fullmatch(rf"{folder}/run/\S+: No space left on device", second.reason)
        node.runner.start(order(command=("sh", "-c", "true"), name="p4"), (1,))
        assert isinstance(await node.ended(PlacementId("p4")), NotStarted), "without the plug-in, too"
        assert not node.ups(PlacementId("p4"))
        (folder / "run" / "rest").unlink()
        await node.trained(order("iterations=1", name="p3"))
        assert isinstance(await node.ended(PlacementId("p3")), Completed)
        await node.end()
        assert left_of(node.folders) == []


async def test_an_agent_whose_folder_is_full_begins_no_life_and_names_the_file() -> None:
    with short_folder() as folder, small_disk(folder / "run"):
        fill(folder / "run" / "rest")
        node = RunningNode(folder)
        with pytest.raises(OSError, match=rf"No space left on device: .* -> '{folder}/run/"):
            await node.runner.adopt()


@pytest.mark.parametrize("part", ["", "plugin", "socket", "socket/agent.sock"])
async def test_a_run_folder_that_was_removed_is_no_fault_of_a_job(part: str) -> None:
    with short_folder() as folder:
        node = RunningNode(folder)
        await node.begin()
        await node.trained(order("forever"))
        await node.until(lambda: node.of(Saved))
        removed = node.folders.run / part
        removed.unlink() if removed.is_socket() else shutil.rmtree(removed)
        node.runner.start(order("iterations=1", name="p2"), (1,))
        last = await node.ended(PlacementId("p2"))
        assert isinstance(last, NotStarted)
        assert re.fullmatch(rf"{removed}\S* was removed: restart the agent", last.reason)
        node.runner.stop(P1)
        assert isinstance(await node.ended(), Stopped)
        await node.end()


async def test_a_gpu_that_cannot_be_reached_is_no_slot_of_the_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = found_here(tmp_path / "gpus", monkeypatch, [gpus(1)[0], StubGpu(uuid=uuid(1), lost=True)])
    async with running_node() as node:
        await node.trained(order("iterations=1"))
        last = await node.ended()
        assert isinstance(last, NotStarted)
        assert last.reason.startswith("GPU 1 of this machine cannot be reached")
        slots = tuple(msgspec.structs.replace(one, gpu_type=GpuType("cpu")) for one in order().nodes)
        await node.trained(order("iterations=1", name="p2", nodes=slots))
        assert isinstance(await node.ended(PlacementId("p2")), Completed)
    driver.gpus = gpus(3)
    driver.write()
    async with running_node() as node:
        await node.trained(order("iterations=1"))
        assert await node.ended() == NotStarted(P1, "the node has 4 GPUs, but its machine 3")


async def test_a_jobs_folder_that_is_full_is_no_fault_of_a_job() -> None:
    with short_folder() as folder, small_disk(folder / "jobs"):
        fill(folder / "jobs" / "rest")
        node = RunningNode(folder)
        await node.begin()
        await node.trained(order("raise"))
        last = await node.ended()
        assert isinstance(last, Interrupted)
        assert last.reason.startswith(f"rank 0: no space left in {folder / 'jobs'}")
        await node.end()


def fill(path: Path) -> None:
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)


@pytest.mark.parametrize("step", ["kill", "remove"])
async def test_a_failed_clean_up_does_not_delay_the_end_of_a_worker(
    monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    does = getattr(Launcher, step)

    async def refused(launcher: Launcher) -> None:
        await does(launcher)
        raise PermissionError(errno.EPERM, "not ours")

    monkeypatch.setattr(Launcher, step, refused)
    async with running_node() as node:
        await node.trained(order("iterations=1"))
        await node.trained(order("iterations=1", name="p2"))  # it gets the same GPU
        assert isinstance(await node.ended(), Completed)
        assert isinstance(await node.ended(PlacementId("p2")), Completed)


ENGINE = """#!/bin/sh
case $1 in
  run) test -e {folder}/up && exit 125; echo "Cannot connect to the Docker daemon" >&2; exit 125;;
  *) test -e {folder}/up;;
esac
"""
"""stands where a container engine would: it makes no container, and answers only if there is a file `up`"""


@pytest.mark.parametrize("up", [False, True])
async def test_a_container_engine_that_is_away_is_no_fault_of_a_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, up: bool
) -> None:
    program = tmp_path / "docker"
    program.write_text(ENGINE.format(folder=tmp_path))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    if up:
        (tmp_path / "up").touch()
    async with running_node() as node:
        if not up:
            await node.trained(order(command=("true",), name="p2", image="no/such/image"))
            assert isinstance(await node.ended(PlacementId("p2")), NotStarted)
        await node.trained(order("iterations=1", image="no/such/image"))
        last = await node.ended()
        if up:
            assert isinstance(last, Failed)
            assert last.reason.startswith("rank 0 ended with exit code 125")
            assert last.absent
        else:
            assert last == NotStarted(P1, f"{program} does not answer")
