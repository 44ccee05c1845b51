"""Groups of GPUs that are alike for every job (HLAS, eq. 4–6). Pure.

    minimise    max over jobs n of (max over u of p[n,u] − min over u of p[n,u])
    p[n,u]    = Σ s[n,m] over the GPUs m of group u
    s[n,·]      speeds of job n, divided by its fastest

GPUs of a type are alike, so a grouping is a table of counts by group and type. First the GPUs are dealt to
the groups in snake order (1 … U, U … 1, and so on). Then single GPUs change groups, or two of different types
are swapped, as long as the objective falls. Without the division by the fastest speed, the fastest model
alone would decide.
"""

from collections.abc import Sequence
from itertools import product

import numpy as np

from schemas.ids import NodeId
from schemas.placement import Configuration
from shared.domain.arrays import Floats, Ints

LESS = 1e-9
"""by how much a step must lower the objective"""
NUMBERS_AT_MOST = 20_000_000
"""numbers that all steps together compute, at most: that takes numpy seconds"""


def grouped(speed: Floats, supply: Ints, groups: int) -> Ints:
    """GPUs by group and type [U, C].

    `speed`: of one GPU, by job and type [S, C]; 0: the job cannot use the type. `supply`: GPUs by type [C].
    """
    counts = dealt(supply, groups)
    fastest = speed.max(axis=1, keepdims=True, initial=0.0)
    known = fastest[:, 0] > 0
    return improved(counts, speed[known] / fastest[known]) if known.any() and groups > 1 else counts


def dealt(supply: Ints, groups: int) -> Ints:
    """GPUs by group and type [U, C], dealt in snake order, type by type."""
    counts = np.zeros((groups, len(supply)), dtype=np.int32)
    for number, kind in enumerate(np.repeat(np.arange(len(supply)), supply).tolist()):
        turn, place = divmod(number, groups)
        counts[place if turn % 2 == 0 else groups - 1 - place, kind] += 1
    return counts


def unevenness(counts: Ints, speed: Floats) -> float:
    """The objective (4)."""
    sums = counts @ speed.T
    return float((sums.max(axis=0) - sums.min(axis=0)).max())


def improved(counts: Ints, speed: Floats) -> Ints:
    """The counts after steps, each of which lowers the objective most; ties: the first groups, then types."""
    counts, kinds = counts.copy(), counts.shape[1]
    gives = [(kind, -1) for kind in range(kinds)]
    gives += [(kind, back) for kind, back in product(range(kinds), repeat=2) if kind != back]
    given = np.array([_unit(kinds, kind) - _unit(kinds, back) for kind, back in gives], dtype=np.int32)
    looked_at = 2 * len(counts) * len(gives) * len(speed)
    for _ in range(NUMBERS_AT_MOST // max(looked_at, 1)):
        step = _best_step(counts, speed, given)
        if step is None:
            break
        giver, taker, number = step
        counts[giver] -= given[number]
        counts[taker] += given[number]
    return counts


def _unit(kinds: int, kind: int) -> Ints:
    unit = np.zeros(kinds, dtype=np.int32)
    unit[kind : kind + 1] = kind >= 0
    return unit


def _best_step(counts: Ints, speed: Floats, given: Ints) -> tuple[int, int, int] | None:
    """The best step as giver, taker and row of `given`; None: no step lowers the objective.

    Only a step that takes from the fastest group of the job with the largest spread, or gives to its slowest
    group, can lower it.
    """
    sums = counts @ speed.T
    spread = sums.max(axis=0) - sums.min(axis=0)
    worst = int(spread.argmax())
    most, least = int(sums[:, worst].argmax()), int(sums[:, worst].argmin())
    pairs = [(most, taker) for taker in range(len(counts)) if taker != most]
    pairs += [(giver, least) for giver in range(len(counts)) if giver not in (most, least)]
    giver, taker = np.array(sorted(pairs), dtype=np.int32).T
    moved = given @ speed.T
    after = _spread_after(sums, giver, taker, moved)
    fits = (counts[giver][:, None] >= given).all(axis=2) & (counts[taker][:, None] >= -given).all(axis=2)
    after[~fits] = np.inf
    at, number = np.unravel_index(int(after.argmin()), after.shape)
    if not after[at, number] < spread[worst] - LESS:
        return None
    return int(giver[at]), int(taker[at]), int(number)


def _spread_after(sums: Floats, giver: Ints, taker: Ints, moved: Floats) -> Floats:
    """The objective [P, G] after `moved` [G, S] goes from giver [P] to taker [P]."""
    less, more = sums[giver][:, None] - moved, sums[taker][:, None] + moved
    high, low = np.maximum(less, more), np.minimum(less, more)
    if len(sums) > len(("giver", "taker")):
        high = np.maximum(high, _extreme_beside(sums, giver, taker)[:, None])
        low = np.minimum(low, -_extreme_beside(-sums, giver, taker)[:, None])
    worst: Floats = (high - low).max(axis=2)
    return worst


def _extreme_beside(sums: Floats, giver: Ints, taker: Ints) -> Floats:
    """By pair and job: the largest sum of any group but giver and taker."""
    order = np.argsort(-sums, axis=0, kind="stable")[:3]
    jobs = np.arange(sums.shape[1])
    taken = (order == giver[:, None, None]) | (order == taker[:, None, None])
    first = taken.argmin(axis=1)
    largest: Floats = sums[order[first, jobs], jobs]
    return largest


def on_nodes(counts: Ints, nodes: Sequence[tuple[NodeId, int, int]]) -> tuple[Configuration, ...]:
    """Each group's GPUs by node, on few nodes. `nodes`: id, type and GPUs; `counts` use all of them."""
    rest: dict[int, list[tuple[NodeId, int]]] = {kind: [] for kind in range(counts.shape[1])}
    for node_id, kind, gpus in reversed(nodes):
        rest[kind].append((node_id, gpus))
    return tuple(_drawn(row, rest) for row in counts.tolist())


def _drawn(row: Sequence[int], rest: dict[int, list[tuple[NodeId, int]]]) -> Configuration:
    place: Configuration = {}
    for kind, count in enumerate(row):
        wanted = count
        while wanted > 0:
            node_id, gpus = rest[kind].pop()
            taken = min(gpus, wanted)
            place[node_id] = place.get(node_id, 0) + taken
            wanted -= taken
            if gpus > taken:
                rest[kind].append((node_id, gpus - taken))
    return place
