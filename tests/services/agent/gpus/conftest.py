from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.services.agent.gpus.driver import StubDriver, StubGpu, found_here

DriverOf = Callable[[Sequence[StubGpu]], StubDriver]


@pytest.fixture
def driver_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DriverOf:
    return lambda found: found_here(tmp_path / "gpus", monkeypatch, found)
