"""How long to wait before trying again."""

import random
from collections.abc import Iterator

FIRST_S = 0.05
LONGEST_S = 2.0


def pause_s(attempt: int) -> float:
    """Real seconds before attempt number `attempt` (from 0): doubling, bounded, half of it chance.

    The chance keeps many processes that lost the same server from coming back at the same moment.
    """
    limit = min(LONGEST_S, FIRST_S * 2 ** min(attempt, 16))
    return random.uniform(limit / 2, limit)  # noqa: S311 - no secret


def pauses() -> Iterator[float]:
    attempt = 0
    while True:
        yield pause_s(attempt)
        attempt += 1
