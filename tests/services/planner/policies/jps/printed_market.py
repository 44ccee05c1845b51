"""The market of JPS (algorithm 2, lines 2 to 15) as it is printed, which need not end."""

from collections.abc import Sequence

import numpy as np

from shared.domain.arrays import Floats, Ints

Sold = tuple[Ints, Floats]
"""job and price by worker"""


def printed_market(rate: Floats, counts: Sequence[int], *, last: bool, steps: int = 1000) -> Sold | None:
    """`rate` [S, K]; ties go to the highest index if `last`. None: not over in so many steps."""
    price = np.zeros(rate.shape[1])
    for _ in range(steps):
        preferred = [
            _preferred(row - price, count, last=last) for row, count in zip(rate, counts, strict=True)
        ]
        wanting = [[job for job, own in enumerate(preferred) if k in own] for k in range(len(price))]
        contested = [k for k, jobs in enumerate(wanting) if len(jobs) > 1]
        if not contested:
            owner = [jobs[0] if jobs else -1 for jobs in wanting]
            return np.array(owner, dtype=np.int32), price
        worker = contested[-1] if last else contested[0]
        losses = [_loss(rate[job] - price, counts[job], worker) for job in wanting[worker]]
        price[worker] += max(1.0, *losses)  # (22)
    return None


def _preferred(value: Floats, count: int, *, last: bool) -> set[int]:
    index = np.arange(len(value))
    return set(np.lexsort((-index if last else index, -value))[:count].tolist())


def _loss(value: Floats, count: int, worker: int) -> float:
    """V_i − V_i^k."""
    best = np.sort(value)[::-1][:count].sum()
    without = np.sort(np.delete(value, worker))[::-1][:count].sum()
    return float(best - without)
