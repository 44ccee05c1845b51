"""What `hopyard bench page` says where there is no browser; what it measures is in `tests/browser`."""

from pathlib import Path

import pytest

from tests.hopyard.cli_line import Hopyard, command_line


@pytest.fixture
def hopyard(capsys: pytest.CaptureFixture[str]) -> Hopyard:
    return command_line(capsys)


def test_a_browser_that_is_not_there_is_one_line(
    hopyard: Hopyard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    ran = hopyard("bench", "page", "--data", str(tmp_path / "data"))
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.splitlines() == [
        "hopyard: chromium is not on the path: apt-get install chromium chromium-driver"
    ]
    assert not (tmp_path / "data").exists()
