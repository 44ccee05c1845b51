"""The learning rate that is ordered keeps the shape of the script's schedule."""

import subprocess

import pytest

from tests.hopjob.agent import SCRIPTS, surroundings
from tests.torch_python import torch_python

pytestmark = pytest.mark.torch


def test_schedules_of_torch_are_scaled_as_a_whole() -> None:
    environment = {key: str(value) for key, value in surroundings().items()}
    ran = subprocess.run(
        [torch_python(), SCRIPTS / "rates.py"], env=environment, capture_output=True, text=True, check=False
    )
    assert ran.stdout == "rates are right\n", ran.stderr
