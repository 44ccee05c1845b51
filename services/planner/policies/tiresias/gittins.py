"""The Gittins index of a job by the service it has attained, from the services of other jobs. Pure.

With X the whole service of a job, a its attained service and Δ the quantum (Tiresias, section 3.3):

    G(a) = P(X − a ≤ Δ | X > a) / E[min(X − a, Δ) | X > a]

A job of larger index is more urgent: it is likely to end soon, for little service.
"""

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np

from shared.domain.arrays import Floats


class Gittins:
    """The index by attained service, from samples of X in the same unit. Without samples it is 0."""

    def __init__(self, samples: Sequence[float], quantum: float) -> None:
        self._samples: Floats = np.sort(np.array(samples, dtype=np.float64))
        self._sums: Floats = np.concatenate(([0.0], np.cumsum(self._samples)))
        self._quantum = quantum

    def index(self, attained: float) -> float:
        """G(attained); 0 beyond the largest sample."""
        first, ending, rest = self._split(attained)
        if not ending:
            return 0.0
        service = self._sums[first + ending] - self._sums[first] - ending * attained + rest * self._quantum
        return float(ending / service)

    def _split(self, attained: float) -> tuple[int, int, int]:
        """Where samples above `attained` begin; how many of them end within Δ; how many later."""
        first = int(np.searchsorted(self._samples, attained, side="right"))
        last = int(np.searchsorted(self._samples, attained + self._quantum, side="right"))
        return first, last - first, len(self._samples) - last


class AuthorsGittins(Gittins):
    """The index by the authors' simulator, for samples in whole units.

    It differs from the paper's:

    - E is of X, not of X − a;
    - between two samples it is constant, with its value one unit below the larger one;
    - results are rounded;
    - within a quantum of the largest sample, that sample counts as not ending.
    """

    def __init__(self, samples: Sequence[float], quantum: float) -> None:
        super().__init__(samples, quantum)
        self._known = [float(sample) for sample in self._samples]
        self._indices = [self._index(sample - 1) for sample in self._known]

    def index(self, attained: float) -> float:
        place = bisect_right(self._known, attained)
        return self._indices[place] if place < len(self._known) else 0.0

    def _index(self, attained: float) -> float:
        count = len(self._known)
        first = bisect_right(self._known, attained)
        after = attained + self._quantum
        last = count - 1 if after > self._known[-1] - 1 else bisect_right(self._known, after)
        left = count - first
        p = round((last - first) / left, 5)
        service = float(self._sums[last] - self._sums[first]) + self._quantum * (count - last)
        return round(p * 1_000_000 / round(service / left, 5), 4)
