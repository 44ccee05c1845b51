"""JPS (algorithm 3): which categories are looked at, and which of them is taken. Pure."""

import hashlib
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from services.planner.policies.contract.view import View, ViewJob
from shared.domain.arrays import Floats


def rear(count: int, alpha: float) -> int:
    """⌊(1 − α) |Ψ|⌋, at least 1; exact for numbers of any size, α as it is written."""
    return max(int((1 - Fraction(str(alpha))) * count), 1)


def drawn(count: int, *, alpha: float, samples: int, seed: str) -> tuple[int, ...]:
    """Numbers of categories of the rear, ascending, each once; all of it where `samples` are more."""
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
    """Another one at each reset; of the same view the same."""
    return f"{seed}/{','.join(sorted(job.job_id for job in jobs))}/{view.at!r}"


def _below(limit: int, name: str) -> int:
    """A number from 0 to before `limit`, which may be larger than any integer of numpy."""
    size = limit.bit_length() // 8 + 9
    return int.from_bytes(hashlib.shake_128(name.encode()).digest(size), "big") % limit


def best(mean_s: Sequence[float] | Floats, fairness: Sequence[float] | Floats, beta: float) -> int:
    """The position that makes β · min Λ / Λ + (1 − β) · F (34) most; ties: lower Λ, then the first."""
    jct = np.asarray(mean_s, dtype=np.float64)
    score = beta * jct.min() / jct + (1.0 - beta) * np.asarray(fairness, dtype=np.float64)
    return int(np.lexsort((jct, -score))[0])
