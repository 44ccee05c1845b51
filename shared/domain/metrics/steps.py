"""A number that changes at points of time, and its mean between two of them. Pure."""

from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate, pairwise


class Steps:
    def __init__(self, changes: Iterable[tuple[float, int]]) -> None:
        """`changes`: times, and by how much the number grows; it is 0 before the first."""
        steps: dict[float, int] = {}
        for at, more in changes:
            steps[at] = steps.get(at, 0) + more
        self._times = sorted(steps)
        self._levels = [0, *accumulate(steps[at] for at in self._times)]
        lengths = (later - earlier for earlier, later in pairwise(self._times))
        areas = (length * level for length, level in zip(lengths, self._levels[1:], strict=False))
        self._areas = [0.0, *accumulate(areas, initial=0.0)]

    def mean(self, start: float, end: float) -> float:
        """Its mean between two times, exact where it does not change; at a point, the number there."""
        first, last = bisect_right(self._times, start), bisect_right(self._times, end)
        if first == last or end <= start:
            return self._levels[first]
        return (self._area(last, end) - self._area(first, start)) / (end - start)

    def _area(self, index: int, at: float) -> float:
        """The area up to a time after the first `index` changes."""
        return self._areas[index] + (at - self._times[index - 1]) * self._levels[index] if index else 0.0
