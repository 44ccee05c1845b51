"""Jobs of several accounts on one node: what each can see of the others, and do to them."""

import asyncio
import json
import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.agent.process.folders import Folders
from services.agent.process.kernel.spawning import USER_MIN
from services.agent.tasks import Completed, Stopped
from tests.services.agent.process.process_bench import P1, RunningNode, order, running_node, short_folder

ANOTHER = 54_321
"""a user's number that no job has"""
NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="one account has nothing to do with another's jobs")
LIAR = """
import json, socket, sys
line = socket.socket(socket.AF_UNIX)
line.connect(sys.argv[1])
hello = {"hello": {"placement": "p1", "rank": 0, "pid": 1, "attached": True, "samples": 0.0}}
try:
    for word in (hello, {"completed": {"samples": 1e9}}):
        line.sendall(json.dumps(word).encode() + b"\\n")
    print(line.recv(1))
except OSError:  # it hung up before it had read all
    print(b"")
"""


@pytest.fixture(autouse=True)
def _others_may_read() -> Iterator[None]:
    """Unless somebody takes care."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def user() -> str:
    names = [entry.pw_name for entry in pwd.getpwall() if entry.pw_uid >= USER_MIN]
    if not names:
        pytest.skip("there is no account for a job here")
    return names[0]


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def passed(folder: Path) -> None:
    folder.chmod(0o755)


@NEEDS_ROOT
@pytest.mark.parametrize("grouped", [True, False])
async def test_another_account_cannot_report_for_a_rank(
    *, grouped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though it gives itself the variables of one."""
    if not grouped:
        monkeypatch.setattr("services.agent.process.runner.groups_of", lambda _: None)
    with short_folder() as folder:
        passed(folder)
        async with running_node(folder) as node:
            await node.trained(order("forever"))
            answer = await asyncio.to_thread(lie, node.folders, ANOTHER)
            assert answer == b"b''\n"
            assert node.last() is None
            node.runner.stop(P1)
            assert isinstance(await node.ended(), Stopped)


def lie(folders: Folders, uid: int) -> bytes:
    """What a process of the account gets to hear that says it is the rank, and done."""
    return subprocess.run(
        [
            shutil.which("python3", path="/usr/bin:/usr/local/bin") or sys.executable,
            "-c",
            LIAR,
            folders.socket,
        ],
        env={"HOPJOB_LAST": f"{folders.worker(P1)}/last/0.json"},
        cwd="/",
        user=uid,
        group=uid,
        extra_groups=[],
        stdout=subprocess.PIPE,
        check=True,
        timeout=60,
    ).stdout


@NEEDS_ROOT
async def test_a_job_s_account_can_change_no_file_that_the_agent_relies_on() -> None:
    uid = pwd.getpwnam(user()).pw_uid
    with short_folder() as folder:
        passed(folder)
        async with running_node(folder) as node:
            line = (
                "cd $(dirname $HOPJOB_LAST); touch there && mv there here && rm here || exit 1;"
                "cat ../claim.json && exit 2; touch ../mine && exit 3; ls ../.. && exit 4;"
                "rm -f ../rank-0.log && exit 5;"
                "echo seen; sleep 1000"
            )
            await node.trained(
                order(command=("bash", "-c", line), user=user(), environment={"KEY": "secret"})
            )
            await node.until(lambda: node.last() or "seen" in node.lines())
            assert node.last() is None
            worker = node.folders.worker(P1)
            owners = {path.name: (path.stat().st_uid, mode(path)) for path in worker.iterdir()}
            assert owners.pop("rank-0.position", (0, 0o644)) == (0, 0o644)
            assert owners == {
                "claim.json": (0, 0o600),
                "rank-0.log": (uid, 0o600),
                "last": (uid, 0o700),
            }
            assert (mode(worker), mode(node.folders.workers)) == (0o711, 0o711)
            assert not node.folders.interpreter.exists()
            node.runner.stop(P1)
            await node.ended()


async def test_files_of_jobs_on_a_node_are_readable_by_their_owner_only() -> None:
    async with running_node() as node:
        await node.trained(order("forever", environment={"KEY": "secret"}))
        worker = node.folders.worker(P1)
        assert mode(node.folders.workers) == (0o711 if os.geteuid() == 0 else 0o700)
        assert mode(worker) == 0o700
        assert {path.name: mode(path) for path in (worker / "claim.json", worker / "rank-0.log")} == {
            "claim.json": 0o600,
            "rank-0.log": 0o600,
        }
        node.runner.stop(P1)
        assert isinstance(await node.ended(), Stopped)


async def test_the_last_word_is_no_way_to_have_a_file_read(tmp_path: Path) -> None:
    """A link is not followed, and nobody waits at a pipe."""
    said = tmp_path / "said"
    said.write_text(json.dumps({"completed": {"samples": 5.0}}))
    for line in (f"ln -s {said} $HOPJOB_LAST", "mkfifo $HOPJOB_LAST"):
        async with running_node() as node:
            await node.trained(order(command=("bash", "-c", f"{line}; exit 3")))
            last = await node.ended()
            assert not isinstance(last, Completed)


@pytest.mark.parametrize("word", [sys.executable, "bin/python3", "python3"])
async def test_the_interpreter_of_a_job_is_known_by_its_whole_path(word: str, tmp_path: Path) -> None:
    inside = tmp_path / "bin" / "python3"
    inside.parent.mkdir()
    inside.symlink_to(sys.executable)
    async with running_node() as node:
        command = (word, "script.py", "iterations=1")
        path = {"PATH": f"{inside.parent}:{os.environ['PATH']}"}
        await node.trained(order(command=command, working_directory=str(tmp_path), environment=path))
        assert isinstance(await node.ended(), Completed)
        expected = sys.executable if word == sys.executable else str(inside)
        assert node.folders.interpreter.read_text() == expected


async def test_an_agent_that_ends_gives_its_jobs_their_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it is: here one that takes longer than what every job gets at least."""
    monkeypatch.setattr("services.agent.process.runner.END_LIMIT_S", 0.01)
    with short_folder() as folder:
        node = RunningNode(folder)
        await node.begin()
        line = "trap 'sleep 2; echo saved; exit 0' TERM; echo ready; while :; do sleep 0.1; done"
        await node.trained(order(command=("bash", "-c", line), grace_s=40.0))
        await node.until(lambda: "ready" in node.lines())
        await node.end()
        assert node.lines()[-1] == "saved"
