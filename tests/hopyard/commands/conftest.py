"""A command line, an API with canned answers, and nothing of this machine in between."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hopyard.cli_builders import JOB_YAML
from tests.hopyard.cli_line import Hopyard, command_line
from tests.hopyard.cli_server import CannedApi, canned_api


@pytest.fixture
def api() -> Iterator[CannedApi]:
    with canned_api() as server:
        yield server


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))  # where the stacks of this user are listed
    for name in ("HOPYARD_API_URL", "HOPYARD_API_TOKEN", "HOPYARD_SETTINGS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def hopyard(capsys: pytest.CaptureFixture[str]) -> Hopyard:
    return command_line(capsys)


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(JOB_YAML)
    return path
