"""A command that is stopped leaves nothing unfinished behind."""

import asyncio
import contextlib
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Iterator
from pathlib import Path

import pytest

from hopyard import cli
from hopyard.actions.restore import restore
from hopyard.failures import Failure
from hopyard.local import backup_file
from shared.runtime.bus.jetstream.streams import STATE_STREAM
from tests.hopyard.cli_line import command_line
from tests.hopyard.local.test_backup_file import STORE, manifest
from tests.hopyard.stopping import NUMBER, Stopping
from tests.paths import ROOT

LIMIT_S = 300.0
HOPYARD = (sys.executable, "-m", "hopyard.cli")


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    parts, file = tmp_path / "parts", tmp_path / "backup.tar"
    parts.mkdir()
    (parts / "store.ndjson").write_bytes(STORE)
    backup_file.write(file, manifest(parts), parts)
    return file


@pytest.fixture(autouse=True)
def _hang_ups_are_heard() -> Iterator[None]:
    """Also where the tests run under `nohup`, which commands inherit, and obey."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
async def test_a_stopped_restore_leaves_no_folder(backup: Path, number: signal.Signals) -> None:
    async with asyncio.timeout(LIMIT_S):
        while (code := await stopped_restore(backup, number)) is None:
            pass
    assert code == 128 + number
    assert not [path for path in backup.parent.iterdir() if "new" in path.name]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
async def test_a_simulation_that_is_stopped_within_a_policy_ends_without_a_result(
    number: signal.Signals, tmp_path: Path
) -> None:
    """A policy that ends itself is a policy that failed, and the run goes on: a signal is no such end."""
    simulation = ("simulate", "--scenario", "tiny", "--policy", f"{Stopping.__module__}:{Stopping.__name__}")
    process = await asyncio.create_subprocess_exec(
        *(*HOPYARD, *simulation),
        env={**os.environ, NUMBER: str(int(number)), "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        stdout=PIPE,
        stderr=PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), LIMIT_S)
    assert (process.returncode, out) == (128 + number, b"")
    assert err.splitlines()[-1] == b"hopyard: interrupted"


def test_a_backup_without_the_stream_of_states_is_refused_and_leaves_no_folder(backup: Path) -> None:
    with pytest.raises(Failure, match=f"there is no stream {STATE_STREAM}"):
        restore(backup, backup.parent / "new")
    assert not [path for path in backup.parent.iterdir() if "new" in path.name]


def test_a_restore_stopped_while_making_its_folder_leaves_none(
    backup: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = os.mkdir

    def made_and_stopped(path: str | Path, mode: int = 0o777) -> None:
        make(path, mode)
        if Path(path).name.startswith(".new-"):
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "mkdir", made_and_stopped)
    with pytest.raises(KeyboardInterrupt):
        restore(backup, backup.parent / "new")
    assert not [path for path in backup.parent.iterdir() if "new" in path.name]


async def stopped_restore(backup: Path, number: signal.Signals) -> int | None:
    """How it ended that was sent a signal while it wrote; None: it was over before."""
    command = (*HOPYARD, "restore", str(backup), "--data", str(backup.parent / "new"))
    process = await asyncio.create_subprocess_exec(*command, stdout=DEVNULL, stderr=DEVNULL)
    while process.returncode is None and not list(backup.parent.glob(".new-*")):
        await asyncio.sleep(0.01)
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        process.send_signal(signal.SIGSTOP)
        await asyncio.to_thread(os.waitid, os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    writes = bool(list(backup.parent.glob(".new-*")))
    with contextlib.suppress(ProcessLookupError):
        if writes:
            process.send_signal(number)
        process.send_signal(signal.SIGCONT)
    code = await process.wait()
    return code if writes else None


@pytest.mark.parametrize("words", [["ps"], ["ps", "--json"]])
def test_a_command_that_is_stopped_while_it_is_imported_says_so_in_a_line(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a machine that is busy the imports take a second, and Ctrl-C showed where they were."""

    def stopped(_: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "import_module", stopped)
    ran = command_line(capsys)(*words)
    assert ran.code == 130
    assert "interrupted" in ran.err
    assert ran.err.count("\n") == 1
