"""The batch script of an agent as it runs, with stand-ins for Slurm's programs and for the agent."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from hopyard.actions.slurm.script import NOTICE, TRIES, Allocation, batch_script

LIMIT_S = 20.0
LEAVE_S = 4.0
SQUEUE = """\
#!/bin/bash
[[ "$*" == *--user=* ]] && exec cat "${0%/*}/queue"
echo >>"${0%/*}/asks"
(($(wc -l <"${0%/*}/asks") > $(cat "${0%/*}/silences"))) || exit 1
[[ $SQUEUE_STATES ]] || cat "${0%/*}/end"
"""
AGENT = """\
#!/bin/bash
trap 'exit 0' TERM
echo "$*" >"${0%/*}/words"
echo "$HOPYARD_NODE_UNTIL" >"${0%/*}/until.part" && mv "${0%/*}/until.part" "${0%/*}/until"
while sleep 0.1; do :; done
"""
SBATCH = """\
#!/bin/bash
printf '%s\\n' "$@" >"${0%/*}/asked"
echo >>"${0%/*}/tries"
(($(wc -l <"${0%/*}/tries") > $(cat "${0%/*}/refusals"))) && echo 18
"""


class Script:
    """A batch script that runs in a folder until `end`; squeue and sbatch fail so often first.

    The folder is not on its PATH, as that of Slurm's commands need not be.
    """

    def __init__(self, folder: Path, *, silences: int, refusals: int, lasts_s: float) -> None:
        self.folder = folder
        self.end = int(time.time() + lasts_s)
        for name, text in {"squeue": SQUEUE, "sbatch": SBATCH, "agent": AGENT}.items():
            (folder / name).write_text(text)
            (folder / name).chmod(0o700)
        for name, number in {"end": self.end, "silences": silences, "refusals": refusals}.items():
            (folder / name).write_text(f"{number}\n")
        for name in ("wanted", "queue"):
            (folder / name).touch()
        wanted = Allocation(name="lab", partition="gpu", constraint="ib&fast")
        (folder / "agent.sh").write_text(
            batch_script(wanted, folder, python=str(folder / "agent"), leave_s=LEAVE_S, commands=str(folder))
        )
        slurm = {"SLURM_JOB_ID": "17", "SLURMD_NODENAME": "n-1"}
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                ["bash", folder / "agent.sh"],
                env=os.environ | slurm,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def ended(self) -> int:
        return self.process.wait(LIMIT_S)

    def read(self, name: str) -> str:
        return file.read_text() if (file := self.folder / name).exists() else ""


@contextmanager
def running(
    folder: Path, *, silences: int = 0, refusals: int = 0, lasts_s: float = 600.0
) -> Iterator[Script]:
    """Once its agent is there."""
    script = Script(folder, silences=silences, refusals=refusals, lasts_s=lasts_s)
    try:
        until(lambda: script.read("until") != "")
        yield script
    finally:
        with suppress(ProcessLookupError):
            os.killpg(script.process.pid, signal.SIGKILL)
        script.process.wait()


def until(fine: Callable[[], bool]) -> None:
    latest = time.monotonic() + LIMIT_S
    while not fine():
        assert time.monotonic() < latest
        time.sleep(0.05)


def test_the_end_of_a_job_is_known_whatever_squeue_is_to_leave_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SQUEUE_STATES", "PENDING")
    with running(tmp_path) as script:
        assert script.read("until") == f"{script.end}\n"


def test_the_end_of_a_job_is_asked_for_again(tmp_path: Path) -> None:
    with running(tmp_path, silences=2) as script:
        assert script.read("until") == f"{script.end}\n"
        assert "does not say" not in script.log.read_text()


def test_a_job_whose_end_slurm_does_not_say_ends_in_order_after_the_signal(tmp_path: Path) -> None:
    """Slurm signals 1.5 times `leave_before_end_s` before the end, so the agent leaves when it should."""
    with running(tmp_path, silences=99) as script:
        assert script.read("until") == "0\n"
        assert script.read("asks").count("\n") == TRIES
        assert "Slurm does not say when this job ends" in script.log.read_text()
        signalled = time.time()
        script.process.send_signal(signal.SIGUSR1)
        assert script.ended() == 0
        assert 1.0 <= time.time() - signalled < (NOTICE - 1) * LEAVE_S + 3.0
        assert "job 18 goes on after this one" in script.log.read_text()


def test_a_file_of_the_users_folder_is_no_module_of_the_agent(tmp_path: Path) -> None:
    """Slurm runs a script in the folder from which it was submitted."""
    with running(tmp_path) as script:
        assert script.read("words") == "-P -m hopyard.cli agent\n"


def test_a_successor_is_asked_for_until_slurm_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the options of the script in the folder; it is asked for once, and the agent works meanwhile."""
    monkeypatch.setenv("next", "1")
    with running(tmp_path, refusals=2) as script:
        script.process.send_signal(signal.SIGUSR1)
        until(lambda: "job 18 goes on after this one" in script.log.read_text())
        assert script.read("tries").count("\n") == 3
        asked = script.read("asked").splitlines()
        assert {"--partition=gpu", "--constraint=ib&fast", "--dependency=afterany:17"} < set(asked)
        script.process.send_signal(signal.SIGUSR1)
        script.process.send_signal(signal.SIGTERM)
        assert script.ended() == 0
        assert script.read("tries").count("\n") == 3


def test_a_job_that_gets_no_successor_says_so_and_fails(tmp_path: Path) -> None:
    """Its agent works as long as it would have otherwise."""
    with running(tmp_path, refusals=99, lasts_s=5.0) as script:
        script.process.send_signal(signal.SIGUSR1)
        assert script.ended() == 1
        assert time.time() > script.end - 1.5
        assert script.read("tries").count("\n") > 1
        assert "no job goes on after this one" in script.log.read_text()


@pytest.mark.parametrize("waits", [True, False])
def test_a_job_that_was_requeued_has_one_successor(tmp_path: Path, *, waits: bool) -> None:
    """That of its earlier run still waits for its end; a further one would be an agent too many."""
    with running(tmp_path) as script:
        others = [
            "11|afterany:17(unfulfilled)|/a/agent.sh",
            f"12|afterany:170(unfulfilled)|{tmp_path}/agent.sh",
        ]
        mine = [f"13|afterany:17(unfulfilled)|{tmp_path}/agent.sh"] if waits else []
        (tmp_path / "queue").write_text("\n".join([*others, *mine]))
        script.process.send_signal(signal.SIGUSR1)
        until(lambda: f"job {13 if waits else 18} goes on after this one" in script.log.read_text())
        assert bool(script.read("tries")) != waits


def test_no_successor_is_submitted_before_slurm_says_whether_there_is_one(tmp_path: Path) -> None:
    with running(tmp_path) as script:
        (tmp_path / "queue").rename(tmp_path / "hidden")
        script.process.send_signal(signal.SIGUSR1)
        until(lambda: "No such file" in script.log.read_text())
        assert script.read("tries") == ""
        (tmp_path / "hidden").rename(tmp_path / "queue")
        until(lambda: "job 18 goes on after this one" in script.log.read_text())


@pytest.mark.parametrize("wanted", [True, False])
def test_a_job_that_is_cancelled_asks_for_no_successor_any_more(tmp_path: Path, *, wanted: bool) -> None:
    with running(tmp_path, refusals=99) as script:
        if not wanted:
            (tmp_path / "wanted").unlink()
        script.process.send_signal(signal.SIGUSR1)
        until(lambda: not wanted or script.read("tries") != "")
        script.process.send_signal(signal.SIGTERM)
        assert script.ended() == wanted
        tries = script.read("tries")
        time.sleep(1.5)
        assert script.read("tries") == tries
