"""Finds a Python interpreter that has torch; the one that runs hopyard need not have it."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from hopyard.failures import Failure, Invalid

LOOK = "import sys, torch; print(*sys.version_info[:2], torch.__version__)"
LOOK_LIMIT_S = 120.0
"""seconds; the first import of torch on a machine can take long"""
LEAST_PYTHON = (3, 9)
LEAST_TORCH = (1, 13)
HOW_TO_INSTALL = (
    "python3 -m venv ~/torch && ~/torch/bin/pip install torch numpy, then --python ~/torch/bin/python"
)


class TorchInterpreter(msgspec.Struct, frozen=True):
    python: Path
    torch: str
    """version of torch"""


def torch_python(named: Path | None, environ: Mapping[str, str] = os.environ) -> TorchInterpreter:
    """The named interpreter; without a name the first candidate that has torch. Raises Failure."""
    if named is not None:
        return _checked(_whole(named))
    for python in dict.fromkeys(map(Path.absolute, _around(environ))):
        try:
            return _checked(python)
        except Failure:
            continue
    raise Failure(f"no Python with torch here: {HOW_TO_INSTALL}")


def _whole(named: Path) -> Path:
    """The path as it is, links not followed: an environment is recognised by the place of the link."""
    path = named.expanduser().absolute()
    if not os.access(path, os.X_OK) or path.is_dir():
        raise Invalid(f"--python {named}: is not an interpreter")
    return path


def _around(environ: Mapping[str, str]) -> Iterator[Path]:
    """Interpreters: of the active environment, the one that runs hopyard, and all on the path."""
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if environ.get(name):
            yield Path(environ[name], "bin", "python")
    yield Path(sys.executable)
    for folder in environ.get("PATH", "").split(os.pathsep):
        if folder:
            yield Path(folder, "python3")


def _checked(python: Path) -> TorchInterpreter:
    """The interpreter, if it has a torch that jobs can use. Raises Failure."""
    try:
        ran = subprocess.run(  # noqa: S603 - an interpreter that the user named, or has on the path
            [python, "-c", LOOK],
            cwd="/",  # the folder here may have files that are named like modules; 3.11 is the first with -P
            capture_output=True,
            text=True,
            timeout=LOOK_LIMIT_S,
            check=False,
        )
    except OSError as error:
        raise Failure(f"{python}: {(error.strerror or str(error)).lower()}") from None
    except subprocess.TimeoutExpired:
        raise Failure(f"{python} has not imported torch within {LOOK_LIMIT_S:g} s") from None
    if ran.returncode:
        last = next(iter(ran.stderr.strip().splitlines()[-1:]), f"exit code {ran.returncode}")
        install = "" if "No module named 'torch'" not in last else f"; {python} -m pip install torch numpy"
        raise Failure(f"{python} cannot import torch: {last}{install}")
    try:
        major, minor, torch = ran.stdout.split()[-3:]
        known = (int(major), int(minor))
    except ValueError:
        raise Failure(f"{python}: does not answer as Python does") from None
    if known < LEAST_PYTHON or _numbers(torch) < LEAST_TORCH:
        raise Failure(f"{python}: Python {major}.{minor} with torch {torch}; jobs need 3.9 and 1.13 at least")
    return TorchInterpreter(python, torch)


def _numbers(version: str) -> tuple[int, ...]:
    parts = version.partition("+")[0].split(".")[:2]
    return tuple(int("".join(filter(str.isdigit, part)) or 0) for part in parts)
