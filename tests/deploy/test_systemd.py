"""The unit for systemd is one, as systemd itself reads it."""

import re
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

from hopyard.cli import GROUPS
from schemas.settings import Settings
from shared.runtime.settings import PREFIX
from tests.paths import ROOT

UNIT = ROOT / "deploy/systemd/hopyard-agent.service"
HOPYARD = "/opt/hopyard/bin/hopyard"


def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    assert verified(tmp_path, UNIT.read_text()) == (0, "")
    assert "OOMPolice" in verified(tmp_path, UNIT.read_text().replace("OOMPolicy", "OOMPolice"))[1]


def verified(folder: Path, unit: str) -> tuple[int, str]:
    """What `systemd-analyze verify` says of it, with a program in hopyard's place that is there."""
    copy = folder / UNIT.name
    copy.write_text(unit.replace(HOPYARD, "/bin/true"))
    ran = subprocess.run(
        ["systemd-analyze", "verify", copy], check=False, text=True, capture_output=True, timeout=120
    )
    return ran.returncode, ran.stdout + ran.stderr


def test_the_unit_starts_a_command_with_settings_that_there_are() -> None:
    unit = UNIT.read_text()
    assert f"ExecStart={HOPYARD} agent\n" in unit
    assert "agent" in GROUPS["agent"]
    names = {name.removeprefix(PREFIX).lower() for name in re.findall(r"HOPYARD_\w+", unit)}
    assert names <= {field.name for field in msgspec.structs.fields(Settings)}
