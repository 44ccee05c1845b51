"""What a result was computed with. Where all entries are equal, a simulation is the same to the last bit."""

import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version

import numpy as np

PARTS = ("hopyard", "numpy", "highspy", "ortools")
"""packages whose versions may change a run"""


@cache
def made_by() -> dict[str, str]:
    """Version by part, and the vector instructions that numpy found beyond those of every x86-64 or ARM."""
    simd = np.show_config(mode="dicts")["SIMD Extensions"]
    return {
        **{part: number for part in PARTS if (number := _version(part))},
        "python": platform.python_version(),
        "processor": f"{platform.machine()} {' '.join(simd.get('found', []))}".rstrip(),
    }


def _version(part: str) -> str:
    try:
        return version(part)
    except PackageNotFoundError:
        return ""
