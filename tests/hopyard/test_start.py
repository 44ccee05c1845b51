"""Ctrl-C at the first instants of a command: one line, and the exit code of what was interrupted."""

import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import msgspec
import pytest

from hopyard import start
from hopyard.failures import INTERRUPTED
from hopyard.show.terminal import complaint

LIMIT_S = 60.0
BEGUN = """
import os, sys

class Begun:
    def find_spec(self, name, *_):
        if name == "hopyard.cli":
            os.write(1, b".")

sys.meta_path.insert(0, Begun())
from hopyard.start import main
main()
"""
"""as the script that is installed, but that it says when it begins to import the command line"""


SIMULATE = ("simulate", "--scenario", "hops-64")


def stopped(
    after_s: float, *words: str, by: signal.Signals = signal.SIGINT
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", BEGUN, *words]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"COLUMNS": "80"}
    ) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        time.sleep(after_s)
        process.send_signal(by)
        out, err = process.communicate(timeout=LIMIT_S)
    return subprocess.CompletedProcess(command, process.returncode, out, err)


@pytest.mark.parametrize("after_ms", [0, 10, 20, 35, 50, 80, 120, 200, 350])
def test_a_command_that_has_hardly_begun_ends_in_a_line(after_ms: int) -> None:
    ended = stopped(after_ms / 1000, *SIMULATE)
    assert (ended.returncode, ended.stderr) == (INTERRUPTED, "hopyard: interrupted\n")


def test_sigterm_has_its_own_code() -> None:
    ended = stopped(0.02, *SIMULATE, by=signal.SIGTERM)
    assert (ended.returncode, ended.stderr) == (128 + signal.SIGTERM, "hopyard: interrupted\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("after_ms", [10, 50, 200, 700])
def test_a_command_that_runs_until_it_is_stopped_ends_well(number: signal.Signals, after_ms: int) -> None:
    """Also at once, and while an agent waits for NATS."""
    ended = stopped(after_ms / 1000, "agent", "--join", "nats://127.0.0.1:1", "--gpus", "cpu:1", by=number)
    assert ended.returncode == 0
    assert ended.stderr.endswith("stopped\n")


def test_a_signal_just_before_the_command_line_takes_it_ends_in_a_line() -> None:
    """While `cli.main` begins, and has not set its own handler."""
    late = """
import os, signal
from hopyard import cli, start
cli.main = lambda: os.kill(os.getpid(), signal.SIGTERM)
start.main()
"""
    ended = subprocess.run(
        [sys.executable, "-c", late], capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert (ended.returncode, ended.stderr) == (128 + signal.SIGTERM, "hopyard: interrupted\n")


def test_with_json_requested_the_line_is_json() -> None:
    ended = stopped(0.02, *SIMULATE, "--json")
    assert ended.returncode == INTERRUPTED
    assert msgspec.json.decode(ended.stderr) == {
        "error": msgspec.to_builtins(complaint("interrupted", INTERRUPTED))
    }


def test_the_start_module_is_the_installed_entry_point() -> None:
    project = tomllib.loads((Path(start.__file__).parents[1] / "pyproject.toml").read_text())
    assert project["project"]["scripts"]["hopyard"] == f"{start.__name__}:{start.main.__name__}"


def test_a_command_that_ignores_it_goes_on() -> None:
    ignoring = f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n{BEGUN}"
    with subprocess.Popen([sys.executable, "-c", ignoring, "version"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0
