"""Speeds of GPU types before anything was measured, as HadarE guesses them (eq. 10). Pure.

    X ∝ PMI · pcie_scaling · batch / (model weight · data weight),   PMI = TFLOP/s of tensor cores / √GB

For one job only the first two factors differ between types, and the paper prints no numbers for the others.
So eq. 10 only says how the types compare, and the job's mean speed is that of the estimator. The guess is
poor: an RTX A2000 comes out faster than an RTX 3090.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from schemas.ids import GpuType
from shared.domain.arrays import Flags, Floats


class Board(NamedTuple):
    tflops: float
    """peak TFLOP/s: in half precision on tensor cores if it has any, else in single precision"""
    gigabytes: float
    """GB of memory"""
    pcie: float
    """the paper's pcie_scaling: 1 for PCIe 3.0, and twice as much for each later version"""


BOARDS: Mapping[str, Board] = {
    "gtx-1080-ti": Board(11.34, 11, 1),
    "titan-xp": Board(12.15, 12, 1),
    "titan-rtx": Board(130.5, 24, 1),
    "rtx-3090": Board(71.2, 24, 2),
    "rtx-a2000": Board(63.9, 6, 2),
    "t400": Board(1.09, 2, 1),
    "t400-4gb": Board(1.09, 4, 1),
    "v100": Board(125.0, 16, 1),
    "p100": Board(18.7, 16, 1),
    "k80": Board(4.37, 12, 1),
    "t4": Board(65.0, 16, 1),
    "m60": Board(4.82, 8, 1),
    "a100": Board(312.0, 40, 2),
    "a10": Board(125.0, 24, 2),
    "l4": Board(121.0, 24, 2),
}
"""by GPU type, from the makers' data sheets"""


def index(gpu_type: str) -> float:
    """PMI · pcie_scaling; 0 for a type that is not in the table."""
    board = BOARDS.get(gpu_type)
    return board.tflops / math.sqrt(board.gigabytes) * board.pcie if board else 0.0


def guessed(speed: Floats, guess: Flags, types: Sequence[GpuType]) -> Floats:
    """The speeds (m, n), with those marked in `guess` in proportion to `index`; a job's mean over them stays.

    `types`: of the nodes (n).
    """
    indices = np.array([index(name) for name in types])
    among = guess & (speed > 0) & (indices > 0)
    total = np.where(among, indices, 0.0).sum(axis=1)
    level = np.where(among, speed, 0.0).sum(axis=1) / np.where(total > 0, total, 1.0)
    return np.where(among, level[:, None] * indices, speed)
