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


def stopped(after_s: float, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", BEGUN, "simulate", "--scenario", "hops-64", *words]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"COLUMNS": "80"}
    ) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        time.sleep(after_s)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=LIMIT_S)
    return subprocess.CompletedProcess(command, process.returncode, out, err)


@pytest.mark.parametrize("after_ms", [0, 10, 20, 35, 50, 80, 120, 200, 350])
def test_a_command_that_has_hardly_begun_ends_in_a_line(after_ms: int) -> None:
    ended = stopped(after_ms / 1000)
    assert (ended.returncode, ended.stderr) == (INTERRUPTED, "hopyard: interrupted\n")


def test_with_json_requested_the_line_is_json() -> None:
    ended = stopped(0.02, "--json")
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
