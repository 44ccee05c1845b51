"""The exact optimum, for few types: the GPUs by type of each job for which Σ Λ is least. Pure.

GPUs of a type are alike, and a job's completion time depends only on its own GPUs. So the least Σ Λ of the
first i jobs on m GPUs (m and x are numbers of GPUs by type) is

    f_i(m) = min over x of f_{i−1}(m − x) + Λ_i(x)
"""

from collections.abc import Sequence

import numpy as np

from shared.domain.arrays import Floats, Ints


def vectors(supply: Sequence[int]) -> Ints:
    """All GPU counts by type up to `supply` [V, C], in lexicographic order."""
    grids = np.indices([gpus + 1 for gpus in supply]).reshape(len(supply), -1)
    return grids.T.astype(np.int32)


def optimum(jct: Sequence[Floats], supply: Sequence[int], *, idle: bool) -> Ints | None:
    """By job, the row of `vectors` with its GPUs [S]; None: there is no way to serve all jobs.

    `jct`: by job, seconds by row of `vectors`, inf where it cannot run. `idle`: GPUs may stay idle if that is
    better; else as many as possible are used.
    """
    shape = tuple(gpus + 1 for gpus in supply)
    total = np.full(shape, np.inf)
    total[(0,) * len(shape)] = 0.0
    picks: list[Ints] = []
    for own in jct:
        total, pick = _with_another(total, own.reshape(shape))
        picks.append(pick)
    end = _end(total, idle=idle)
    return None if end is None else _traced(picks, end)


def _with_another(total: Floats, own: Floats) -> tuple[Floats, Ints]:
    """f_i from f_{i−1} and Λ_i, and by m the row x of `vectors` that attains it."""
    found, pick = np.full_like(total, np.inf), np.zeros(total.shape, dtype=np.int32)
    for row in np.flatnonzero(np.isfinite(own)).tolist():
        at = np.unravel_index(row, own.shape)
        to = tuple(slice(int(gpus), None) for gpus in at)
        rest = tuple(slice(None, size - int(gpus)) for gpus, size in zip(at, own.shape, strict=True))
        sums = total[rest] + own[at]
        better = sums < found[to]
        found[to][better] = sums[better]
        pick[to][better] = row
    return found, pick


def _end(total: Floats, *, idle: bool) -> tuple[int, ...] | None:
    reached = np.isfinite(total)
    if not reached.any():
        return None
    used = np.indices(total.shape).sum(axis=0)
    allowed = reached if idle else reached & (used == used[reached].max())
    where = np.argmin(np.where(allowed, total, np.inf))
    return tuple(int(one) for one in np.unravel_index(where, total.shape))


def _traced(picks: Sequence[Ints], end: tuple[int, ...]) -> Ints:
    found = []
    for pick in reversed(picks):
        row = int(pick[end])
        found.append(row)
        end = tuple(have - int(one) for have, one in zip(end, np.unravel_index(row, pick.shape), strict=True))
    return np.array(found[::-1], dtype=np.int32)
