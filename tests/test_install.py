"""A plain install, in an environment of its own: the wheel and its dependencies, without extras or tools."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from hopyard.cli import GROUPS
from tests.paths import ROOT

UV = os.environ.get("UV") or shutil.which("uv") or shutil.which("uv", path=str(ROOT / ".uv" / "bin"))
LIMIT_S = 300.0
COMMANDS = [command for commands in GROUPS.values() for command in commands]
EVERY_HELP = """
import sys
from hopyard.cli import main
for command in sys.argv[1:]:
    try:
        main([command, "--help"])
    except SystemExit as ended:
        assert ended.code == 0, command
"""

pytestmark = pytest.mark.skipif(UV is None, reason="needs uv, which `uv run pytest` has")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The environment's folder. What it needs is where uv found it for the one that runs the tests."""
    path = tmp_path_factory.mktemp("plain")
    words = [str(UV), "sync", "--quiet", "--frozen", "--no-dev", "--no-editable", "--no-compile-bytecode"]
    words += ["--refresh-package", "hopyard"]  # a wheel that uv keeps may be of code before the last changes
    environ = os.environ | {"UV_PROJECT_ENVIRONMENT": str(path)}
    kept = subprocess.run([*words, "--offline"], cwd=ROOT, env=environ, timeout=LIMIT_S, check=False)
    if kept.returncode != 0:
        subprocess.run(words, cwd=ROOT, env=environ, timeout=LIMIT_S, check=True)
    return path


def ran(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A program of the environment, far from the checkout."""
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(folder)}
    program = [str(folder / "bin" / words[0]), *words[1:]]
    return subprocess.run(
        program, cwd=folder, env=environ, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )


def test_the_wheel_is_installed_without_development_tools(folder: Path) -> None:
    """Else what follows would say nothing."""
    found = ran(folder, "python", "-c", "import hopyard; print(hopyard.__path__[0])").stdout
    assert found.startswith(str(folder))
    for absent in ("pytest", "matplotlib"):
        assert ran(folder, "python", "-c", f"import {absent}").returncode == 1


def test_every_command_has_its_help(folder: Path) -> None:
    done = ran(folder, "python", "-c", EVERY_HELP, *COMMANDS)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("Usage: hopyard") == len(COMMANDS)


def test_a_scenario_is_simulated(folder: Path) -> None:
    done = ran(folder, "hopyard", "simulate", "--scenario", "tiny", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["jobs"] == {"submitted": 8, "completed": 8}


def test_a_missing_library_is_reported_in_one_line(folder: Path) -> None:
    done = ran(folder, "hopyard", "compare", "--scenario", "tiny")
    assert (done.returncode, done.stdout) == (1, "")
    said, _, command = done.stderr.partition(" (extra lab): ")
    assert said == "hopyard: matplotlib is not installed"
    assert f"{folder}/bin/python" in command
    assert command.endswith(" markdown-it-py matplotlib\n")
