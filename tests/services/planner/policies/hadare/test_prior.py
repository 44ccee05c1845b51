"""Guesses of eq. 10 where nothing was measured."""

import numpy as np
import pytest

from loadgen.catalogue.specs import shipped
from schemas.ids import GpuType
from services.planner.policies.hadare.prior import BOARDS, guessed, index

TYPES = [GpuType(name) for name in ("rtx-3090", "rtx-a2000", "t4", "no-such-type")]


@pytest.mark.parametrize("name", sorted(BOARDS))
def test_boards_are_those_of_the_catalogue(name: str) -> None:
    gpu, board = shipped().gpu_of(GpuType(name)), BOARDS[name]
    assert board.tflops == pytest.approx((gpu.fp16 or gpu.fp32) / 1e12, rel=0.01)
    assert board.gigabytes == pytest.approx(gpu.memory / 2**30, rel=0.03)


def test_the_pmi_ranks_an_a2000_above_a_3090() -> None:
    """26.1 to 14.5, both in slots of PCIe 4.0."""
    assert index("rtx-a2000") / 2 == pytest.approx(26.1, abs=0.05)
    assert index("rtx-3090") / 2 == pytest.approx(14.5, abs=0.05)


def test_only_speeds_that_were_not_measured_are_guessed() -> None:
    speed = np.array([[9.0, 3.0, 2.0, 1.0], [9.0, 3.0, 2.0, 1.0], [0.0, 3.0, 2.0, 1.0]])
    guess = np.array([[True] * 4, [False] * 4, [True, True, False, True]])
    found = guessed(speed, guess, TYPES)
    assert found[1].tolist() == speed[1].tolist()
    assert found[0, 3] == 1.0, "a type that is not in the table keeps its estimate"
    assert found[0, :3].sum() == pytest.approx(14.0), "the level is the estimator's"
    assert found[0, 1] > found[0, 0] > found[0, 2] * 0.8
    assert found[0, 0] / found[0, 1] == pytest.approx(index("rtx-3090") / index("rtx-a2000"))
    assert found[2].tolist() == pytest.approx([0.0, 3.0, 2.0, 1.0]), "one type alone compares with none"
