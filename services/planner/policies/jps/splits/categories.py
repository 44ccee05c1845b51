"""Categories (JPS, algorithm 1): how many GPUs each job gets, in the paper's order, by number. Pure.

A category (K_1 … K_S) has K_i in the demand of job i. It uses every GPU, or if demands do not allow that, as
many as they allow. Categories are in lexicographic order of (K_S, …, K_2): the last job's count changes
slowest. There may be very many, so they are not listed; `at` computes the n-th one from

    ways[i][m] = number of ways for the first i jobs to use exactly m GPUs

For demands of any number of GPUs these are binomials, C(m − 1, i − 1).
"""

from collections.abc import Sequence
from itertools import accumulate


class Categories:
    """The categories of jobs with these `demands`, each ascending, on `gpus` GPUs.

    The smallest counts of all demands together are at most `gpus`.
    """

    def __init__(self, demands: Sequence[Sequence[int]], gpus: int) -> None:
        least = [demand[0] for demand in demands]
        spare = gpus - sum(least)
        assert spare >= 0, "the smallest demands have room"
        self._least = least
        self._more = [
            [count - demand[0] for count in demand if count - demand[0] <= spare] for demand in demands
        ]
        self._ways = [[1] + [0] * spare]
        """ways[i][m] of the module, where m counts only GPUs above the smallest demands"""
        for more in self._more:
            self._ways.append(_with_another(self._ways[-1], more))
        self._spare = max(used for used, ways in enumerate(self._ways[-1]) if ways)
        self.gpus = sum(least) + self._spare
        """GPUs that every category uses"""

    @property
    def count(self) -> int:
        return self._ways[-1][self._spare]

    def at(self, number: int) -> tuple[int, ...]:
        """The category of this number, from 0; the paper counts from 1."""
        assert 0 <= number < self.count, "a category that there is"
        left, found = self._spare, []
        for job in range(len(self._more) - 1, -1, -1):
            before = self._ways[job]
            for more in self._more[job]:
                ways = before[left - more] if more <= left else 0
                if number < ways:
                    break
                number -= ways
            found.append(self._least[job] + more)
            left -= more
        return tuple(reversed(found))


def _with_another(ways: Sequence[int], more: Sequence[int]) -> list[int]:
    """The next row of ways. `more`: what one more job may use above its smallest demand, from 0 on."""
    width = len(more)
    if more[-1] == width - 1:  # every count in between: a difference of sums
        sums = [0, *accumulate(ways)]
        return [sums[used + 1] - sums[max(used + 1 - width, 0)] for used in range(len(ways))]
    found = [0] * len(ways)
    for own in more:
        for used in range(own, len(ways)):
            found[used] += ways[used - own]
    return found
