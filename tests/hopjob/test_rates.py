"""The learning rate that is ordered keeps the shape of the script's schedule."""

import subprocess

import pytest

from tests.hopjob.agent import SCRIPTS, surroundings
from tests.torch_python import torch_python

pytestmark = pytest.mark.torch


def test_schedules_of_torch_are_scaled_as_a_whole() -> None:
    assert printed("rates.py") == "rates are right\n"


def test_a_checkpoint_with_numpy_values_of_a_schedule_can_be_read() -> None:
    """A job went on from no such checkpoint: it failed at its first restart."""
    assert printed("numpy_schedule.py") == "all is read\n"


def printed(script: str) -> str:
    environment = {key: str(value) for key, value in surroundings().items()}
    ran = subprocess.run(
        [torch_python(), SCRIPTS / script], env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout
