import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.services.agent.gpus.driver import StubDriver, StubGpu, library

DriverOf = Callable[[Sequence[StubGpu]], StubDriver]


@pytest.fixture
def driver_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DriverOf:
    """Has this process find a driver with these GPUs: of one name the first library that is loaded wins."""
    ctypes.CDLL(str(library()), mode=ctypes.RTLD_GLOBAL)
    file = tmp_path / "gpus"
    monkeypatch.setenv("NVML_STUB", str(file))
    return lambda found: StubDriver(file, found)
