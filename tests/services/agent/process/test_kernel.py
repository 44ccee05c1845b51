"""Control groups of both versions, identities, and ranks under accounts of their own: on the real kernel."""

import asyncio
import os
import pwd
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import structlog

from services.agent.process.kernel.cgroups import Group, Groups
from services.agent.process.kernel.hierarchies import groups_of, own_folders
from services.agent.process.kernel.identities import alive, identity_of, send
from services.agent.process.kernel.process_scan import ProcessScan
from services.agent.process.kernel.spawning import USER_MIN, NoAccount, ProcessSpec, account_of, start_process
from services.agent.tasks import Completed, Failed
from tests.services.agent.process.process_bench import order, running_node, short_folder

MOUNTS = """\
31 23 0:27 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
32 23 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
33 23 0:29 /docker/abc /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids
34 23 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
35 23 0:31 / /proc rw - proc proc rw
"""
MINE = "9:memory:/job/7\n8:cpu,cpuacct:/\n7:pids:/docker/abc/inner\n0::/user.slice\n"
TREE = "import subprocess, time; subprocess.Popen(['sleep', '99'], start_new_session=True); time.sleep(99)"


def test_our_own_groups_are_found_in_every_hierarchy() -> None:
    found = {name: str(folder) for name, folder in own_folders(MOUNTS, MINE).items()}
    assert found == {
        "memory": "/sys/fs/cgroup/memory/job/7",
        "cpu": "/sys/fs/cgroup/cpu,cpuacct",
        "cpuacct": "/sys/fs/cgroup/cpu,cpuacct",
        "pids": "/sys/fs/cgroup/pids/inner",
        "": "/sys/fs/cgroup/unified/user.slice",
    }


def test_version_2_is_limited_and_counts_in_files_of_its_own(tmp_path: Path) -> None:
    for name in ("memory.max", "memory.swap.max", "cpu.max", "cgroup.procs"):
        (tmp_path / name).touch()
    (tmp_path / "memory.events").write_text("low 0\nhigh 0\nmax 9\noom 2\noom_kill 1\n")
    group = Group({"": tmp_path})
    assert group.set_limits(memory=1e9, cpus=1.5) == ()
    assert (tmp_path / "memory.max").read_text() == "1000000000"
    assert (tmp_path / "memory.swap.max").read_text() == "0"
    assert (tmp_path / "cpu.max").read_text() == "15000 10000"
    assert (group.out_of_memory().kills, group.out_of_memory().at_limit) == (1, 2)
    (tmp_path / "cpu.max").unlink()
    assert group.set_limits(memory=1e9, cpus=1.5) == ("cpus",)


def test_a_small_share_of_a_core_has_a_slice_that_the_kernel_takes(tmp_path: Path) -> None:
    (tmp_path / "cpu.max").touch()
    Group({"": tmp_path}).set_limits(memory=None, cpus=0.05)
    assert (tmp_path / "cpu.max").read_text() == "5000 100000"


HIERARCHIES = {"version 1": ("memory", "cpu", "pids"), "version 2": ("",)}


@pytest.fixture(params=HIERARCHIES)
def groups(request: pytest.FixtureRequest) -> Iterator[Groups]:
    own = {kind: folder for kind, folder in own_folders().items() if kind in HIERARCHIES[request.param]}
    found = groups_of(f"hopyard-test-{os.getpid()}", own)
    if found is None:
        pytest.skip(f"no control groups of {request.param} to be had here")
    yield found
    found.clear(())
    found.remove()
    assert not any(folder.exists() for folder in found.folders.values())


def a_tree(group: Group, folder: Path) -> "subprocess.Popen[bytes]":
    """A process, and its child in a session of its own, both in the group."""
    tree = start_process(
        ProcessSpec(
            command=(sys.executable, "-c", TREE),
            environment=os.environ,
            folder="",
            log=folder / "log",
            groups=group.enter,
        )
    )
    while len(group.pids()) < 2:
        assert tree.poll() is None, (folder / "log").read_text()
    return tree


def test_all_of_a_group_are_killed_and_it_is_removed(groups: Groups, tmp_path: Path) -> None:
    group = groups.make("p1")
    tree = a_tree(group, tmp_path)
    group.kill()
    assert group.pids() == []
    assert tree.wait() == -signal.SIGKILL
    group.remove()
    assert not any(folder.exists() for folder in group.folders.values())


def test_control_groups_without_a_claim_are_ended(groups: Groups, tmp_path: Path) -> None:
    kept, stale = groups.make("p1"), groups.make("p2")
    trees = [a_tree(kept, tmp_path), a_tree(stale, tmp_path)]
    groups.clear({"p1"})
    assert trees[1].wait() == -signal.SIGKILL
    assert len(kept.pids()) == 2
    kept.kill()
    trees[0].wait()


def test_a_node_whose_agent_was_killed_while_it_looked_for_groups_has_them(groups: Groups) -> None:
    for folder in groups.folders.values():
        (folder / "probe").mkdir()
    own = {kind: folder.parent for kind, folder in groups.folders.items()}
    name = next(iter(groups.folders.values())).name
    assert groups_of(name, own) == groups
    assert not any((folder / "probe").exists() for folder in groups.folders.values())


def test_a_process_that_reuses_a_pid_is_not_signalled() -> None:
    process = subprocess.Popen(["sleep", "99"])
    identity = identity_of(process.pid)
    assert identity is not None
    assert alive(identity)
    for stranger in (
        msgspec.structs.replace(identity, start_time=identity.start_time + 1),
        msgspec.structs.replace(identity, boot_id="another boot"),
    ):
        assert not send(stranger, signal.SIGKILL)
    assert process.poll() is None
    assert send(identity, signal.SIGKILL)
    process.wait()
    assert not alive(identity)
    assert not send(identity, signal.SIGKILL)


def test_a_process_that_may_not_be_signalled_is_logged_once_and_left(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: int, __: int) -> None:
        raise PermissionError

    process = subprocess.Popen(["sleep", "99"])
    identity = identity_of(process.pid)
    assert identity is not None
    with monkeypatch.context() as patched, structlog.testing.capture_logs() as said:
        patched.setattr(signal, "pidfd_send_signal", refused)
        assert [send(identity, signal.SIGKILL) for _ in range(2)] == [False, False]
    assert [line["pid"] for line in said] == [process.pid]
    process.kill()
    process.wait()


def test_without_groups_orphans_are_found_by_a_variable() -> None:
    mark = f"HOPJOB_LAST=/tmp/{os.getpid()}/"
    environment = dict(os.environ) | {"HOPJOB_LAST": f"/tmp/{os.getpid()}/last-0.json"}
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import subprocess; subprocess.Popen(['sleep', '99'], start_new_session=True)",
        ],
        env=environment,
    )
    parent.wait()
    scan = ProcessScan(mark)
    assert len(scan.pids()) == 1
    scan.kill()
    assert scan.pids() == []  # what is dead but not yet reaped has no environment any more


def accounts() -> list[str]:
    """Those that jobs can run as."""
    if os.geteuid() != 0:
        return []
    return [entry.pw_name for entry in pwd.getpwall() if entry.pw_uid >= USER_MIN]


def nobody() -> str:
    """The name of an account that is nobody's in particular."""
    names = accounts()
    if not names:
        pytest.skip("ranks get accounts of their own only from root, and there is no account for one here")
    return names[0]


async def test_a_rank_runs_under_the_account_of_its_submitter() -> None:
    user = nobody()
    with short_folder() as folder:
        await asyncio.to_thread(folder.chmod, 0o755)
        async with running_node(folder) as node:
            command = ("sh", "-c", "id -u && id -G && echo $HOME && touch {checkpoint}/mine")
            await node.trained(order(command=command, user=user))
            assert isinstance(await node.ended(), Completed)
            entry = pwd.getpwnam(user)
            groups = " ".join(map(str, os.getgrouplist(user, entry.pw_gid)))
            assert node.lines() == [str(entry.pw_uid), groups, entry.pw_dir]


@pytest.mark.skipif(os.geteuid() != 0, reason="others than root run all jobs as themselves")
def test_a_user_named_like_a_system_account_gets_no_account() -> None:
    for user in ("daemon", "no-such-account", "0"):
        with pytest.raises(NoAccount, match=user):
            account_of(user)
    with pytest.raises(NoAccount, match="has no user"):
        account_of("")
    assert account_of("root") is None, "whoever has a token of that name"


@pytest.mark.skipif(os.geteuid() != 0, reason="others than root run all jobs as themselves")
@pytest.mark.parametrize(
    ("user", "reason"), [("no-such-account", "no account no-such-account"), ("", "the job has no user")]
)
async def test_a_job_of_an_unknown_user_does_not_run_as_root(user: str, reason: str) -> None:
    with short_folder() as folder, structlog.testing.capture_logs() as said:
        async with running_node(folder) as node:
            await node.trained(order(command=("touch", str(folder / "ran")), user=user))
            ended = await node.ended()
            assert isinstance(ended, Failed)
            assert reason in ended.reason
            assert not (folder / "ran").exists()
    (line,) = (line for line in said if reason in line.get("reason", ""))
    assert (line["event"], "exc_info" in line) == ("a worker cannot be started", False)


@pytest.mark.skipif(os.geteuid() != 0, reason="others than root run all jobs as themselves")
async def test_where_the_setting_says_so_all_run_as_the_agent() -> None:
    with short_folder() as folder:
        async with running_node(folder, job_account="agent") as node:
            await node.trained(order(command=("id", "-u"), user="no-such-account"))
            assert isinstance(await node.ended(), Completed)
            assert node.lines() == ["0"]
