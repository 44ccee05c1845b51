"""The script for a machine with a GPU goes its way on slots of the CPU; its figures say nothing here."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT
from tests.torch_python import torch_python

pytestmark = pytest.mark.torch

FIGURES = {
    "accuracy": ["estimate", "estimate", "move", "overhead"],
    "slots": ["ranks"] * 4,
    "hygiene": ["rank killed", "agent killed"],
}
"""on a machine without a GPU; with one also what becomes of its memory"""


@pytest.mark.parametrize("phase", FIGURES)
def test_a_phase_comes_to_its_end(phase: str, tmp_path: Path) -> None:
    out = tmp_path / "figures.jsonl"
    words = (phase, "--dry", "--run-s", "6", "--python", str(torch_python()), "--out", str(out))
    command = [sys.executable, "-P", str(ROOT / "tests/gpu/real_path.py"), *words]
    ran = subprocess.run(command, check=False, capture_output=True, text=True, timeout=900)
    assert ran.returncode == 0, ran.stderr[-2_000:]
    figures = [json.loads(line) for line in out.read_text().splitlines()]
    assert [one["what"] for one in figures if one["what"] != "memory given back"] == FIGURES[phase]
    by = {one["what"]: one for one in figures}
    if phase == "slots":
        assert [one["ranks"] for one in figures if one["what"] == "ranks"] == [1, 2, 4, 1]
    if phase == "accuracy":
        assert by["move"]["samples_saved"] == by["move"]["samples_restored"] > 0
    if phase == "hygiene":
        assert by["rank killed"]["samples_from"] > 0
        assert by["agent killed"]["adopted"]
