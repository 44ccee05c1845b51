"""The interpreter that real jobs of the tests run in: one that has torch, and need not have hopyard."""

import os
from pathlib import Path

import pytest

VARIABLE = "TORCH_PYTHON"
PLACE = Path(__file__).parents[1] / ".torch" / "bin" / "python"


def torch_python() -> Path:
    """Skips the test where there is none."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named)
    if not PLACE.exists():
        pytest.skip(f"no interpreter with torch: {VARIABLE} names none, and there is no {PLACE}")
    return PLACE
