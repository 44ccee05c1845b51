"""Minimises a smooth convex function over x ≥ 0. Pure.

Quasi-Newton steps (L-BFGS, Nocedal 1980) among the coordinates that may move, cut off at 0 (projected Newton,
Bertsekas 1982).
"""

import math
from collections.abc import Callable

import numpy as np

from shared.domain.arrays import Floats

MEMORY = 10
"""pairs of step and change of slope from which the curvature is estimated"""
FIRST = 0.05
"""how far the first step moves the steepest coordinate, relative to the mean of x"""
SHORTER = 0.4
"""factor by which a step that did not lower the value enough is shortened"""
ENOUGH = 1e-4
"""share of the decrease predicted by the slope that a step must reach"""
FLAT = 1e-12
"""a relative change of slope up to this counts as none"""

_Pair = tuple[Floats, Floats, float, float]
"""a step, the change of slope along it, step · change, and that over change · change"""
Function = Callable[[Floats], tuple[float, Floats]]
"""value and slope"""


def descended(function: Function, x: Floats, evaluations: int) -> Floats:
    """The lowest point found from x, with this number of evaluations at most."""
    value, slope = function(x)
    pairs: list[_Pair] = []
    length = 1.0
    for _ in range(evaluations - 1):
        if length == 1.0:
            direction = _direction(x, slope, pairs)
        at = np.maximum(x - length * direction, 0.0)
        value_at, slope_at = function(at)
        if value_at > value + ENOUGH * float(slope @ (at - x)):
            length *= SHORTER
            continue
        pairs = _remembered(pairs, at - x, slope_at - slope)
        x, value, slope, length = at, value_at, slope_at, 1.0
    return x


def _remembered(pairs: list[_Pair], step: Floats, change: Floats) -> list[_Pair]:
    """The pairs with this step added, unless the slope did not rise along it."""
    along, steepness = float(step @ change), float(change @ change)
    if along <= FLAT * math.sqrt(float(step @ step) * steepness):
        return pairs
    return [*pairs, (step, change, along, along / steepness)][-MEMORY:]


def _direction(x: Floats, slope: Floats, pairs: list[_Pair]) -> Floats:
    """The direction to step against: inverse curvature × slope, for the coordinates that may move."""
    free = (x > 0) | (slope < 0)
    direction = np.where(free, slope, 0.0)
    shares = []
    for step, change, along, _ in reversed(pairs):
        shares.append(float(step @ direction) / along)
        direction -= shares[-1] * change
    direction *= pairs[-1][3] if pairs else _first_length(x, slope)
    for (step, change, along, _), share in zip(pairs, reversed(shares), strict=True):
        direction += (share - float(change @ direction) / along) * step
    return np.where(free, direction, 0.0)


def _first_length(x: Floats, slope: Floats) -> float:
    return FIRST * (float(x.mean()) or 1.0) / max(float(np.abs(slope).max()), FLAT)
