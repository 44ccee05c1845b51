"""The facets of a node: inequalities that hold for whole gangs and not for fractions of them. Pure.

A node with C GPUs has room for gangs of sizes g₁, g₂, … with Σ g ≤ C. This inequality also allows fractions,
such as 8/5 of a gang of 5 GPUs on a node with 8. A function f of the size that is superadditive, f(g) + f(h)
≤ f(g + h), with f(C) = 1, gives Σ f(g) ≤ 1 for every set of whole gangs. The extreme ones of these functions
with f(g) + f(C − g) = 1 are the facets of the integer knapsack, which no other inequalities imply (Aráoz,
Evans, Gomory, Johnson 2003); f(g) = g / C is the capacity itself. A node with eight GPUs has four others. One
is f = 0, 0, 0, ½, 1, 1, 1, 1 for g = 1 … 8: at most one gang has more than four GPUs.
"""

from functools import cache
from itertools import combinations

import numpy as np

from shared.domain.arrays import Floats

ENUMERATED = 8
"""GPUs of a node up to which all facets are computed; above it, a family of valid functions is used"""
FAMILY = (1, 2, 3)
"""k of the functions u⁽ᵏ⁾ in that family, see `_dual_feasible`"""
EXACT = 1e-9
"""a difference up to this is rounding"""


@cache
def facets(gpus: int) -> Floats:
    """The facets beside the capacity, a row each: f(0) … f(`gpus`), with f(0) = 0 and f(`gpus`) = 1."""
    found = _extreme(gpus) if gpus <= ENUMERATED else [_dual_feasible(gpus, k) for k in FAMILY]
    share = np.arange(gpus + 1) / max(gpus, 1)
    others = [row for row in found if np.abs(row - share).max() > EXACT]
    return np.array(others).reshape(len(others), gpus + 1)


def _extreme(gpus: int) -> list[Floats]:
    """The vertices of the polytope of functions: f superadditive, f ≥ 0, f(g) + f(C − g) = 1.

    The free values of f are f(1) … f(⌈C/2⌉ − 1); the others follow from them.
    """
    free = (gpus - 1) // 2
    if free < 1:
        return []
    terms = np.array([_term(size, gpus, free) for size in range(gpus + 1)])
    rows = _inequalities(terms, free)
    matrix, least = rows[:, :free], -rows[:, free]
    found = set()
    for tight in combinations(range(len(rows)), free):
        square = matrix[list(tight)]
        if abs(np.linalg.det(square)) > EXACT:
            values = np.linalg.solve(square, least[list(tight)])
            if (matrix @ values >= least - EXACT).all():
                found.add(tuple(np.round(values, 9)))
    return [terms @ np.array([*values, 1.0]) for values in sorted(found)]


def _term(size: int, gpus: int, free: int) -> Floats:
    """f(`size`) as a linear expression in the free values and 1."""
    term = np.zeros(free + 1)
    if 0 < size <= free:
        term[size - 1] = 1.0
    elif 2 * size == gpus:
        term[free] = 0.5
    elif size:
        term[free] = 1.0
        term[: free + 1] -= _term(gpus - size, gpus, free)
    return term


def _inequalities(terms: Floats, free: int) -> Floats:
    """The inequalities as rows a with a · (free values, 1) ≥ 0, each once."""
    gpus = len(terms) - 1
    pairs = [(g, h) for g in range(1, gpus) for h in range(g, gpus - g + 1)]
    rows = [*terms[1:gpus], *(terms[g + h] - terms[g] - terms[h] for g, h in pairs)]
    return np.array(sorted({tuple(row) for row in rows if np.abs(row[:free]).any()}))


def _dual_feasible(gpus: int, k: int) -> Floats:
    """With x = g / C: x if (k + 1) x is whole, else ⌊(k + 1) x⌋ / k (u⁽ᵏ⁾ of Fekete and Schepers 2001)."""
    size = np.arange(gpus + 1)
    whole = (k + 1) * size % gpus == 0
    return np.where(whole, size / gpus, (k + 1) * size // gpus / k)
