"""Batches are moved to a rank's device, of whatever kind they are."""

import subprocess

import pytest

from tests.hopjob.agent import SCRIPTS, surroundings
from tests.torch_python import torch_python

pytestmark = pytest.mark.torch


def test_batches_of_many_kinds_are_moved() -> None:
    environment = {key: str(value) for key, value in surroundings().items()}
    command = [torch_python(), SCRIPTS / "moves.py"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, "all are there\n"), ran.stderr
