"""What an agent that is root does for a job, it does with the rights of the job alone: on the real kernel."""

import asyncio
import os
import pwd
from pathlib import Path

import pytest

from services.agent.tasks import Completed, Failed
from tests.services.agent.process.process_bench import order, running_node, short_folder
from tests.services.agent.process.test_kernel import nobody

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="others than root have no rights to lend")
ENGINE = """#!/bin/sh
[ "$1" = run ] || exit 0
env > {folder}/variables
echo "$@" > {folder}/words
for word in "$@"; do
    case "$word" in --env-file=*) file="${{word#--env-file=}}"; cp -p "$file" {folder}/given;; esac
done
"""
"""stands where an engine would, and writes down how it was started"""


def opened(folder: Path, mode: int = 0o755) -> Path:
    folder.mkdir(exist_ok=True)
    folder.chmod(mode)
    return folder


async def test_the_linker_ignores_a_job_s_variables_before_the_process_is_the_account_s() -> None:
    """It writes down what it does, by such a variable: whose are the files?"""
    user = nobody()
    with short_folder() as folder:
        opened(folder)
        traces = opened(folder / "traces", 0o777)
        async with running_node(folder) as node:
            heeded = {"LD_DEBUG": "files", "LD_DEBUG_OUTPUT": str(traces / "trace")}
            await node.trained(order(command=("sh", "-c", "id -u; true"), user=user, environment=heeded))
            assert isinstance(await node.ended(), Completed)
        uid = pwd.getpwnam(user).pw_uid
        assert {path.stat().st_uid for path in traces.iterdir()} == {uid}, "none at all: no linker of glibc's"


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = opened(tmp_path / "bin") / "docker"
    program.write_text(ENGINE.format(folder=tmp_path))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return tmp_path


async def test_the_engine_of_containers_has_no_variable_of_a_job(
    engine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the agent's, with which an operator chooses the engine, and the job has none of these."""
    monkeypatch.setenv("DOCKER_CONTEXT", "ours")
    with short_folder() as folder:
        opened(folder)
        async with running_node(folder) as node:
            own = {"DOCKER_HOST": "tcp://theirs:1", "KEY": "secret = 'quoted'"}
            job = order(command=("true",), user=nobody(), image="torch:2", environment=own)
            await node.trained(job)
            assert isinstance(await node.ended(), Completed)
    seen = (engine / "variables").read_text()
    assert "theirs" not in seen
    assert "DOCKER_CONTEXT=ours" in seen.splitlines()
    assert "ours" not in (engine / "given").read_text()
    assert "secret" not in seen
    assert "secret" not in (engine / "words").read_text()
    assert {f"{name}={value}" for name, value in own.items()} <= set(
        (engine / "given").read_text().splitlines()
    )
    assert (engine / "given").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("name", ["closed", "is:ro", "is,readonly", "is-not-there"])
async def test_no_container_is_given_a_folder_that_its_account_cannot_get_to(name: str, engine: Path) -> None:
    """Nor one whose name an engine reads as an option."""
    with short_folder() as folder:
        opened(folder)
        if name != "is-not-there":
            opened(folder / name, 0o700 if name == "closed" else 0o755)
        async with running_node(folder) as node:
            job = order(
                command=("true",), user=nobody(), image="torch:2", working_directory=str(folder / name)
            )
            await node.trained(job)
            ended = await node.ended()
            assert isinstance(ended, Failed)
            assert name in ended.reason
    assert not (engine / "words").exists()


@pytest.mark.parametrize("way", ["theirs/way/new", "closed/new/deeper"])
async def test_checkpoint_folders_are_made_only_where_the_account_may(way: str) -> None:
    """Also behind a link that the account has put."""
    user = nobody()
    uid = pwd.getpwnam(user).pw_uid
    with short_folder() as folder:
        opened(folder)
        closed = opened(folder / "closed")
        theirs = opened(folder / "theirs")
        os.chown(theirs, uid, -1)
        (theirs / "way").symlink_to(closed)
        async with running_node(folder) as node:
            await node.trained(order(command=("true",), user=user, checkpoint_folder=str(folder / way)))
            ended = await node.ended()
            assert isinstance(ended, Failed)
            assert "Permission denied" in ended.reason
            assert list(closed.iterdir()) == []

            asked = theirs / "own" / "deep"
            second = order(name="p2", command=("true",), user=user, checkpoint_folder=str(asked))
            await node.trained(second)
            assert isinstance(await node.ended(second.placement_id), Completed)
            assert (asked.stat().st_uid, asked.parent.stat().st_uid) == (uid, uid)


async def test_a_job_s_own_folder_is_its_account_s_and_the_one_of_all_jobs_is_not() -> None:
    user = nobody()
    uid = pwd.getpwnam(user).pw_uid
    before = os.umask(0o077)
    try:
        with short_folder() as folder:
            opened(folder)
            async with running_node(folder) as node:
                started = order(command=("sh", "-c", "touch {checkpoint}/mine"), user=user)
                await node.trained(started)
                assert isinstance(await node.ended(), Completed)
                checkpoints = node.folders.checkpoints(started)
                owners = [path.stat().st_uid for path in (checkpoints, *checkpoints.parents[:2])]
                assert owners == [uid, uid, 0]
    finally:
        os.umask(before)


async def test_a_link_in_place_of_a_job_s_own_folder_is_not_followed() -> None:
    with short_folder() as folder:
        opened(folder)
        closed = opened(folder / "closed", 0o700)
        async with running_node(folder) as node:
            started = order(command=("true",), user=nobody())
            jobs = opened(node.folders.jobs)
            await asyncio.to_thread((jobs / started.job_id).symlink_to, closed)
            await node.trained(started)
            assert isinstance(await node.ended(), Failed)
            assert (closed.stat().st_uid, list(closed.iterdir())) == (0, [])
