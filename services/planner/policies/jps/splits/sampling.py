"""JPS (algorithm 3): which categories are looked at, and which one is taken. Pure."""

import hashlib
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from services.planner.policies.contract.view import View, ViewJob
from shared.domain.arrays import Floats


def rear(count: int, alpha: float) -> int:
    """How many categories, the last ones, may be looked at: ⌊(1 − α) |Ψ|⌋, at least 1.

    Exact for any `count`, with α taken as its decimal digits.
    """
    return max(int((1 - Fraction(str(alpha))) * count), 1)


def drawn(count: int, *, alpha: float, samples: int, seed: str) -> tuple[int, ...]:
    """Different numbers of categories of the `rear`, ascending: `samples` of them, or all of the rear."""
    rest = rear(count, alpha)
    if rest <= samples:
        return tuple(range(count - rest, count))
    chosen: set[int] = set()
    draw = 0
    while len(chosen) < samples:
        chosen.add(_below(rest, f"{seed}/{draw}"))
        draw += 1
    return tuple(sorted(count - rest + number for number in chosen))


def seeded(view: View, jobs: Sequence[ViewJob], seed: int) -> str:
    """A seed for a view: another one at each reset, the same for the same view."""
    return f"{seed}/{','.join(sorted(job.job_id for job in jobs))}/{view.at!r}"


def _below(limit: int, name: str) -> int:
    """A random number 0 ≤ n < `limit`, drawn from the hash of `name`. `limit` may exceed numpy's integers."""
    size = limit.bit_length() // 8 + 9
    return int.from_bytes(hashlib.shake_128(name.encode()).digest(size), "big") % limit


def best(mean_s: Sequence[float] | Floats, fairness: Sequence[float] | Floats, beta: float) -> int:
    """The position with the largest β · min Λ / Λ + (1 − β) · F (34); ties: lower Λ, then the first."""
    jct = np.asarray(mean_s, dtype=np.float64)
    score = beta * jct.min() / jct + (1.0 - beta) * np.asarray(fairness, dtype=np.float64)
    return int(np.lexsort((jct, -score))[0])
