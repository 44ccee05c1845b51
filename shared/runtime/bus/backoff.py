"""How long to wait before trying again."""

import random
from collections.abc import Iterator

FIRST_S = 0.05
LONGEST_S = 2.0
CLUSTER_LONGEST_S = 0.25
"""the longest pause in a cluster of servers, where another takes over within seconds"""


def pause_s(attempt: int, longest_s: float = LONGEST_S) -> float:
    """Real seconds before attempt number `attempt` (from 0): doubling, bounded, half of it random.

    Because of the random half, processes that lost the same server do not come back at the same moment.
    """
    limit = min(longest_s, FIRST_S * 2 ** min(attempt, 16))
    return random.uniform(limit / 2, limit)  # noqa: S311 - no secret


def pauses(longest_s: float = LONGEST_S) -> Iterator[float]:
    """Real seconds to wait before each further attempt, without end."""
    attempt = 0
    while True:
        yield pause_s(attempt, longest_s)
        attempt += 1
