"""Cliques: configurations of which any two exclude each other, so that a plan holds one at most. Pure.

Two configurations exclude each other if they are of one job, or if some node has no room for both. Facets
(see `facets`) know one node at a time. Gangs over several nodes exclude each other in chains: two have a node
in common on the left, each of them and a third one on the right, and no single node says that only one of
the three can be. Where gangs are large beside the nodes, the bound without cliques is 10 to 50 % above the
best plan.

A clique is found greedily: from a configuration that is partly in use on, by what is in use most.
"""

from collections.abc import Iterator

import numpy as np

from services.planner.solver.own.columns import Columns
from shared.domain.arrays import Flags, Floats, Ints
from shared.domain.sums import plain_sum

MOST = 2_000
"""configurations among which cliques are looked for"""
BROKEN = 1.02
"""what is in use of a clique that is broken"""
PARTLY = 1e-6


def exclusions(columns: Columns, rows: Ints) -> Flags:
    """By pair of configurations: whether they exclude each other. Nothing excludes itself."""
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
    """Cliques of which more than one is in use in x, each once, as ascending positions."""
    order = np.argsort(-x, kind="stable")
    share = x[order].tolist()
    partly = int(np.count_nonzero(x > PARTLY))
    neighbours = _bits(excluded[np.ix_(order, order)])
    known: set[int] = set()
    for begin in range(partly):
        if share[begin] >= 1.0 - PARTLY:
            continue
        clique = _grown(begin, neighbours)
        members = [position for position in _positions(clique) if position < partly]
        if clique not in known and plain_sum([share[position] for position in members]) > BROKEN:
            known.add(clique)
            yield np.sort(order[_positions(clique)]).astype(np.int32)


def _grown(begin: int, neighbours: list[int]) -> int:
    """Greedily, the first positions first: a set as the bits of a number."""
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
