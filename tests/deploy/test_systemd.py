"""The units for systemd are units, as systemd itself reads them."""

import re
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

from schemas.settings import Settings
from shared.runtime.settings import PREFIX
from tests.docs.test_commands import wrong
from tests.paths import ROOT

FOLDER = ROOT / "deploy/systemd"
COMMANDS = {"hopyard-agent.service": "agent", "hopyard-head.service": "up"}
HOPYARD = "/opt/hopyard/bin/hopyard"


def test_every_unit_is_tested() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path, name: str) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    unit = (FOLDER / name).read_text()
    assert verified(tmp_path / name, unit) == (0, "")
    assert "KillMood" in verified(tmp_path / name, unit.replace("KillMode", "KillMood"))[1]


def verified(copy: Path, unit: str) -> tuple[int, str]:
    """What `systemd-analyze verify` says of it, with a program in hopyard's place that is there."""
    copy.write_text(unit.replace(HOPYARD, "/bin/true"))
    ran = subprocess.run(
        ["systemd-analyze", "verify", copy], check=False, text=True, capture_output=True, timeout=120
    )
    return ran.returncode, ran.stdout + ran.stderr


@pytest.mark.parametrize(("name", "command"), COMMANDS.items())
def test_a_unit_starts_a_command_that_exists_with_settings_that_exist(name: str, command: str) -> None:
    unit = (FOLDER / name).read_text()
    (line,) = re.findall(rf"^ExecStart={HOPYARD} (.*)$", unit, re.MULTILINE)
    assert wrong(line.split()) == ""
    assert line.split()[0] == command
    names = {name.removeprefix(PREFIX).lower() for name in re.findall(r"HOPYARD_\w+", unit)}
    assert names <= {field.name for field in msgspec.structs.fields(Settings)}
