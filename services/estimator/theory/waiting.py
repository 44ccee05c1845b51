"""How long the slowest of N processes takes to load its data: where T_w comes from. Pure.

The paper says that T_w follows the same two conditions as T_d. It leaves open how a profile of one GPU,
where no process waits for another, shows it. Our model: the T_d of N processes are N independent draws from
the fitted mixture, all wait for the largest, M_N, and loading below `floor` is hidden (pattern 1 hides it
behind backward and update; pattern 2 hides nothing, floor 0). With the mixture's distribution function
F(y) = Σ p_k · Φ((y − μ_k) / σ_k):

    E[max(M_N, floor)] = floor + ∫_floor^∞ (1 − F(y)^N) dy
    T_w                = E[max(M_N, floor)] − Σ p_k · max(μ_k, floor)

The integral is taken panel by panel, with Gauss–Legendre nodes. Panels lie between marks around every
μ_k, up to 7σ_k away: there F^N rises, the steeper and the further right, the more processes there are;
beyond the marks it is constant. Sums, products and a table give equal results on every machine.
"""

import math

import numpy as np
import numpy.typing as npt

from shared.domain.iteration import Column

MARKS = (-7.0, -3.0, -1.0, 0.5, 2.0, 3.5, 5.0, 7.0)
"""where panels begin and end, in standard deviations from a component's mean"""
NODES = 5
"""quadrature nodes in each panel"""
_STEPS_PER_UNIT = 1024
_LIMIT = 8

_grid = np.arange(-_LIMIT * _STEPS_PER_UNIT, _LIMIT * _STEPS_PER_UNIT + 1) / _STEPS_PER_UNIT
_phi = np.array([0.5 * math.erfc(-z / math.sqrt(2.0)) for z in _grid.tolist()])
_points, _weights = np.polynomial.legendre.leggauss(NODES)


def slowest_s(
    *, probability: Column, mean_s: Column, std_s: Column, processes: npt.NDArray[np.int64], floor_s: Column
) -> Column:
    """E[max(M_N, floor)], seconds.

    `probability`, `mean_s` and `std_s` have shape (rows, components); a component of probability 0 counts
    for nothing. `processes` (N) and `floor_s` have shape (rows,).
    """
    edges = _edges(mean_s, std_s, floor_s)
    half = np.diff(edges, axis=1)[..., None] / 2.0
    times = edges[:, :-1, None] + half * (_points + 1.0)
    reached = np.zeros_like(times)
    for component in range(mean_s.shape[1]):
        z = (times - mean_s[:, component, None, None]) / np.maximum(std_s[:, component, None, None], 1e-12)
        reached += probability[:, component, None, None] * np.interp(z, _grid, _phi)
    beyond = 1.0 - _power(np.minimum(reached, 1.0), processes[:, None, None])
    return np.asarray(floor_s + (beyond * _weights * half).sum(axis=(1, 2)), dtype=np.float64)


def _edges(mean_s: Column, std_s: Column, floor_s: Column) -> Column:
    """Where panels begin and end, ascending, none below the floor: shape (rows, components · marks + 1)."""
    around = (mean_s[..., None] + std_s[..., None] * np.array(MARKS)).reshape(len(floor_s), -1)
    marks = np.concatenate([floor_s[:, None], around], axis=1)
    return np.asarray(np.sort(np.maximum(marks, floor_s[:, None]), axis=1), dtype=np.float64)


def _power(base: Column, exponent: npt.NDArray[np.int64]) -> Column:
    """Whole powers by repeated squaring."""
    result = np.ones_like(base)
    while exponent.any():
        result = np.where(exponent & 1, result * base, result)
        base = base * base
        exponent = exponent >> 1
    return result
