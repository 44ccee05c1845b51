"""Cliques: configurations of which any two exclude each other, so that a plan has at most one. Pure.

Two configurations exclude each other if they are of one job, or if some node has no room for both. A facet
(see `facets`) is about one node. But three gangs over several nodes may exclude each other pairwise on three
different nodes, and then no facet says that only one of the three is possible. Where gangs are large compared
with nodes, the bound without cliques is 10 to 50 % above the best plan.

Cliques are found greedily: each begins with a configuration that is partly in use in the relaxation, and
grows by those that are in use most.
"""

from collections.abc import Iterator

import numpy as np

from services.planner.solver.own.columns import Columns
from shared.domain.arrays import Flags, Floats, Ints
from shared.domain.sums import plain_sum

MOST = 2_000
"""with more configurations than this, no cliques are looked for"""
BROKEN = 1.02
"""a clique is broken if the sum of its x is larger"""
PARTLY = 1e-6
"""x above which a configuration is in use, and 1 − x above which it is in use only partly"""


def exclusions(columns: Columns, rows: Ints) -> Flags:
    """By pair of configurations: whether they exclude each other; false for a configuration and itself."""
    start, node, size = columns.cells(rows)
    owner = np.repeat(np.arange(len(rows)), np.diff(start))
    job = columns.problem.job[rows]
    excluded: Flags = job[:, None] == job[None, :]
    order = np.argsort(node, kind="stable")
    edges = np.searchsorted(node[order], np.arange(len(columns.problem.capacity) + 1)).tolist()
    for at, capacity in enumerate(columns.problem.capacity.tolist()):
        cells = order[edges[at] : edges[at + 1]]
        if len(cells):
            taken = size[cells]
            excluded[np.ix_(owner[cells], owner[cells])] |= taken[:, None] + taken[None, :] > capacity
    np.fill_diagonal(excluded, val=False)
    return excluded


def broken_cliques(excluded: Flags, x: Floats) -> Iterator[Ints]:
    """The broken cliques that are found, each once, as ascending positions in x."""
    order = np.argsort(-x, kind="stable")
    share = x[order].tolist()
    in_use = int(np.count_nonzero(x > PARTLY))
    neighbours = _bits(excluded[np.ix_(order, order)])
    known: set[int] = set()
    for begin in range(in_use):
        if share[begin] >= 1.0 - PARTLY:
            continue
        clique = _grown(begin, neighbours)
        members = [position for position in _positions(clique) if position < in_use]
        if clique not in known and plain_sum([share[position] for position in members]) > BROKEN:
            known.add(clique)
            yield np.sort(order[_positions(clique)]).astype(np.int32)


def _grown(begin: int, neighbours: list[int]) -> int:
    """The clique that grows from `begin`, as the bits of a number; earlier positions are tried first."""
    clique, candidates = 1 << begin, neighbours[begin]
    while candidates:
        first = candidates & -candidates
        clique |= first
        candidates &= neighbours[first.bit_length() - 1]
    return clique


def _bits(flags: Flags) -> list[int]:
    packed = np.packbits(flags, axis=1, bitorder="little")
    return [int.from_bytes(row.tobytes(), "little") for row in packed]


def _positions(bits: int) -> list[int]:
    found = []
    while bits:
        first = bits & -bits
        found.append(first.bit_length() - 1)
        bits ^= first
    return found
