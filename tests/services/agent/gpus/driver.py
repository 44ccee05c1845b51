"""A stand-in for NVIDIA's driver: a real shared library, built here, that nvidia-ml-py loads as the driver's.

What it answers is written into a file, and can change while a process runs.
"""

import ctypes
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import msgspec
import pytest

SONAME = "libnvidia-ml.so.1"
GIB = 2**30


class StubGpu(msgspec.Struct, kw_only=True):
    uuid: str
    name: str = "Tesla V100-SXM2-16GB"
    memory: int = 16 * GIB
    used: int = 0
    utilisation: int = 0
    remap_pending: bool = False
    remap_failed: bool = False
    mig: bool = False
    lost: bool = False
    processes: Sequence[int] = ()

    def line(self) -> str:
        flags = (self.remap_pending, self.remap_failed, self.mig, self.lost)
        numbers = (self.memory, self.used, self.utilisation, *map(int, flags))
        pids = ",".join(map(str, self.processes))
        return "|".join([self.uuid, self.name, *map(str, numbers), pids])


class StubDriver:
    """`gpus` and `xids` (UUID and number, oldest first) are in force once `write` was called."""

    def __init__(self, file: Path, gpus: Sequence[StubGpu]) -> None:
        self.file = file
        self.gpus = list(gpus)
        self.xids: list[tuple[str, int]] = []
        self.write()

    def write(self) -> None:
        errors = [f"{uuid}|{code}" for uuid, code in self.xids]
        draft = self.file.with_suffix(".draft")
        draft.write_text("\n".join([*(gpu.line() for gpu in self.gpus), "events", *errors]) + "\n")
        draft.replace(self.file)

    @property
    def environ(self) -> dict[str, str]:
        """For a process that shall find the stand-in."""
        return {"LD_LIBRARY_PATH": str(library().parent), "NVML_STUB": str(self.file)}


def uuid(number: int) -> str:
    return f"GPU-{number:08x}-0000-4000-8000-000000000000"


def gpus(count: int) -> list[StubGpu]:
    return [StubGpu(uuid=uuid(number)) for number in range(count)]


@cache
def library() -> Path:
    """The stand-in as a file of the driver's name; skips where there is no compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler, so no stand-in for the driver's library")
    folder = Path(mkdtemp(prefix="nvml-stub-"))
    source = Path(__file__).with_name("nvml_stub.c")
    built = folder / SONAME
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-Wall", "-Werror", f"-Wl,-soname,{SONAME}", source, "-o", built],
        check=True,
    )
    return built


def found_here(file: Path, monkeypatch: pytest.MonkeyPatch, found: Sequence[StubGpu]) -> StubDriver:
    """Has this process find a driver with these GPUs: of one name the first library that is loaded wins."""
    ctypes.CDLL(str(library()), mode=ctypes.RTLD_GLOBAL)
    monkeypatch.setenv("NVML_STUB", str(file))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return StubDriver(file, found)
