"""What was observed, as columns: one row a workload, place and size, found by a whole number. Pure.

Rows are sorted by that number, so that a hundred thousand of them are found in one binary search each and
none is an object. Sums are kept and not observations: an observation of `seconds` at cluster time t weighs

    w = seconds · 2^(−(seen_at − t) / half-life)

with `seen_at` the newest of its row; when a newer one comes, what is there fades by the same rule. Weights
are computed one by one in plain floats: numpy's powers differ in the last digit from machine to machine.
"""

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from shared.domain.iteration import Column

Whole = npt.NDArray[np.int64]

COUNT, SECONDS, WEIGHT, FIRST, SECOND, SEEN_AT = range(6)
"""columns: observations, their seconds, Σ w, Σ w·x, Σ w·x² (x in samples/s per GPU), time of the newest"""

PLACE_BITS, SIZE_BITS = 23, 19
"""8 million servers and types, half a million GPUs; 20 bits are left for a million workloads"""


class Observations(msgspec.Struct, frozen=True):
    """Observations to be added, in their order."""

    key: Whole
    at: Sequence[float]
    seconds: Column
    throughput: Column


class Codes:
    """Names by number, in the order in which they came."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}

    def of(self, names: Iterable[str]) -> Whole:
        codes = self._codes
        return np.array([codes.setdefault(name, len(codes)) for name in names], dtype=np.int64)


def keys_of(workload: Whole, place: Whole, distributed: npt.NDArray[np.bool_], size: Whole) -> Whole:
    key = (workload << (PLACE_BITS + 1 + SIZE_BITS)) | (place << (1 + SIZE_BITS))
    return key | (distributed.astype(np.int64) << SIZE_BITS) | size


def workload_in(key: Whole) -> Whole:
    """The workload's code."""
    return key >> (PLACE_BITS + 1 + SIZE_BITS)


def fading(later: float, earlier: float, half_life_s: float) -> float:
    """How much an observation counts once time has gone on: 2^(−Δt / half-life)."""
    return float(2.0 ** (-max(later - earlier, 0.0) / half_life_s))


class Table:
    def __init__(self) -> None:
        self.keys: Whole = np.empty(0, dtype=np.int64)
        """ascending"""
        self.sums: Column = np.empty((0, 6))
        """one row a key"""

    def find(self, keys: Whole) -> Column:
        """The sums, a row a key; zeros where nothing was observed."""
        if not len(self.keys):
            return np.zeros((len(keys), 6))
        row = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where((self.keys[row] == keys)[:, None], self.sums[row], 0.0)

    def put(self, keys: Whole, sums: Column) -> None:
        """Enter rows that are not there yet."""
        order = np.argsort(keys)
        before = np.searchsorted(self.keys, keys[order])
        self.keys = np.insert(self.keys, before, keys[order])
        self.sums = np.insert(self.sums, before, sums[order], axis=0)

    def drop(self, workloads: Whole) -> None:
        keep = ~np.isin(workload_in(self.keys), workloads)
        self.keys, self.sums = self.keys[keep], self.sums[keep]

    def add(self, seen: Observations, half_life_s: float) -> Whole:
        """Fold observations in; the keys of the rows that changed."""
        touched, group = np.unique(seen.key, return_inverse=True)
        new = touched[~np.isin(touched, self.keys)]
        if len(new):
            self.put(new, np.zeros((len(new), 6)))
        rows = np.searchsorted(self.keys, touched)
        sums = self.sums[rows]
        at = np.array(seen.at, dtype=np.float64)
        newest = np.where(sums[:, COUNT] > 0, sums[:, SEEN_AT], -np.inf)
        np.maximum.at(newest, group, at)
        faded = _fadings(newest, sums[:, SEEN_AT], half_life_s)
        weight = seen.seconds * _fadings(newest[group], at, half_life_s)
        sums[:, WEIGHT : SECOND + 1] *= faded[:, None]
        sums[:, SEEN_AT] = newest
        first = weight * seen.throughput
        more = (np.ones_like(weight), seen.seconds, weight, first, first * seen.throughput)
        for column, values in enumerate(more):
            np.add.at(sums[:, column], group, values)
        self.sums[rows] = sums
        return touched


def _fadings(later: Column, earlier: Column, half_life_s: float) -> Column:
    pairs = zip(later.tolist(), earlier.tolist(), strict=True)
    return np.array([fading(new, old, half_life_s) for new, old in pairs], dtype=np.float64)
