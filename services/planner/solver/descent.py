"""The least of a smooth convex function over x ≥ 0. Pure.

Quasi-Newton steps (L-BFGS, Nocedal 1980) among the coordinates that may move, cut off at 0 (projected Newton,
Bertsekas 1982).
"""

from collections.abc import Callable

import numpy as np

from services.planner.problem import Floats

MEMORY = 10
"""pairs of steps and changes of slope that the curvature is known by"""
FIRST = 0.05
"""of the mean of x: how far the first step moves the steepest coordinate"""
SHORTER = 0.4
"""of a step that led upwards"""
ENOUGH = 1e-4
"""of the decrease that the slope promises"""
FLAT = 1e-12

Function = Callable[[Floats], tuple[float, Floats]]
"""value and slope"""


def descended(function: Function, x: Floats, evaluations: int) -> Floats:
    """The lowest point found from x within so many evaluations."""
    value, slope = function(x)
    pairs: list[tuple[Floats, Floats]] = []
    length = 1.0
    for _ in range(evaluations - 1):
        if length == 1.0:
            direction = _direction(x, slope, pairs)
        at = np.maximum(x - length * direction, 0.0)
        value_at, slope_at = function(at)
        if value_at > value + ENOUGH * float(slope @ (at - x)):
            length *= SHORTER
            continue
        pairs = [*pairs, (at - x, slope_at - slope)][-MEMORY:]
        x, value, slope, length = at, value_at, slope_at, 1.0
    return x


def _direction(x: Floats, slope: Floats, pairs: list[tuple[Floats, Floats]]) -> Floats:
    """To step against: inverse curvature × slope, among the coordinates that may move."""
    free = (x > 0) | (slope < 0)
    pairs = [(step, change) for step, change in pairs if step @ change > FLAT * _norm(step) * _norm(change)]
    direction = np.where(free, slope, 0.0)
    along = []
    for step, change in reversed(pairs):
        along.append(float(step @ direction) / float(step @ change))
        direction = direction - along[-1] * change
    direction *= _length(x, slope, pairs)
    for (step, change), share in zip(pairs, reversed(along), strict=True):
        direction = direction + (share - float(change @ direction) / float(step @ change)) * step
    return np.where(free, direction, 0.0)


def _length(x: Floats, slope: Floats, pairs: list[tuple[Floats, Floats]]) -> float:
    if not pairs:
        return FIRST * (float(x.mean()) or 1.0) / max(float(np.abs(slope).max()), FLAT)
    step, change = pairs[-1]
    return float(step @ change) / float(change @ change)


def _norm(x: Floats) -> float:
    return float(np.linalg.norm(x))
