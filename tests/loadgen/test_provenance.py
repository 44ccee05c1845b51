"""A result says by what it was computed, as far as its last digits depend on it."""

import os
import platform
import subprocess
import sys

import numpy as np

from loadgen.provenance import made_by
from loadgen.simulation import simulate
from tests.simulation.storms import SMALL


def test_a_result_names_the_versions_that_made_it() -> None:
    made = simulate(SMALL).result.made_by
    assert made == made_by()
    assert (made["python"], made["numpy"]) == (platform.python_version(), np.__version__)
    assert {"hopyard", "highspy", "ortools"} <= made.keys()


def test_vector_instructions_that_are_not_used_are_not_named() -> None:
    found = np.show_config(mode="dicts")["SIMD Extensions"].get("found", [])
    program = "from loadgen.provenance import made_by; print(made_by()['processor'])"
    without = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"NPY_DISABLE_CPU_FEATURES": " ".join(found)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert made_by()["processor"].split() == [platform.machine(), *found]
    assert without.stdout.split() == [platform.machine()]
