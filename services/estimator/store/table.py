"""What was observed, as columns: one row a workload, place and size, found by a whole number. Pure.

A number leads to a row of one array, so that a hundred thousand of them are not objects. Sums are kept and
not observations: an observation of `seconds` at cluster time t weighs

    w = seconds · 2^(−(seen_at − t) / half-life)

with `seen_at` the newest of its row; when a newer one comes, what is there fades by the same rule. What is
later than the time of an addition, as from a clock that is ahead or from another cluster, counts as new then:
otherwise all that comes after it would weigh nothing. Weights are computed one by one in plain floats:
numpy's powers differ in the last digit from machine to machine.
"""

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from shared.domain.iteration import Column

Whole = npt.NDArray[np.int64]

COUNT, SECONDS, WEIGHT, FIRST, SECOND, SEEN_AT = range(6)
"""columns: observations, their seconds, Σ w, Σ w·x, Σ w·x² (x in samples/s per GPU), time of the newest"""

FOREVER = float("inf")

PLACE_BITS, SIZE_BITS = 19, 25
"""half a million servers and types, 4,095 nodes; 18 bits are left for a quarter of a million workloads"""

MARKS = 16
"""marks per row: the more there are, the fewer absent keys share the mark of a present one"""


class Observations(msgspec.Struct, frozen=True):
    """Observations to be added, in their order."""

    key: Whole
    at: Sequence[float]
    seconds: Sequence[float]
    throughput: Sequence[float]


class Codes:
    """Names by number. A name gets the first number that is free."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}
        self._free: list[int] = []
        """numbers of names that were dropped"""

    def of(self, names: Iterable[str]) -> Whole:
        codes = self._codes
        found = [codes[name] if name in codes else self._new(name) for name in names]
        return np.array(found, dtype=np.int64)

    def _new(self, name: str) -> int:
        code = self._codes[name] = self._free.pop() if self._free else len(self._codes)
        return code

    def drop(self, names: Iterable[str]) -> None:
        self._free += [self._codes.pop(name) for name in names if name in self._codes]


def keys_of(workload: Whole, place: Whole, distributed: npt.NDArray[np.bool_], size: Whole) -> Whole:
    key = (workload << (PLACE_BITS + 1 + SIZE_BITS)) | (place << (1 + SIZE_BITS))
    return key | (distributed.astype(np.int64) << SIZE_BITS) | size


def workload_in(key: int) -> int:
    """The workload's code."""
    return key >> (PLACE_BITS + 1 + SIZE_BITS)


def fading(later: float, earlier: float, half_life_s: float) -> float:
    """How much an observation counts once time has gone on: 2^(−Δt / half-life)."""
    return float(2.0 ** (-max(later - earlier, 0.0) / half_life_s))


class Table:
    def __init__(self) -> None:
        self._row: dict[int, int] = {}
        """row by key"""
        self._sums: Column = np.zeros((64, 6))
        """row 0 is of no key and stays zero; beyond those of all keys there is room for more"""
        self._likely = np.zeros(MARKS * len(self._sums), dtype=np.bool_)
        """by mark: whether any key has it; most absent keys have a mark that no key has"""

    def find(self, keys: Whole) -> Column:
        """The sums, a row a key; zeros where nothing was observed."""
        return self.at(self.rows(keys))

    def rows(self, keys: Whole) -> Whole:
        """Positions of the keys' rows, valid until a row is dropped; 0: not there yet."""
        row, found = self._row, np.zeros(len(keys), dtype=np.int64)
        likely = self._likely.take(_marks(keys, len(self._likely))).nonzero()[0]
        found[likely] = [row.get(key, 0) for key in keys[likely].tolist()]
        return found

    def at(self, rows: Whole) -> Column:
        return self._sums.take(rows, axis=0)

    def put(self, keys: Whole, sums: Column) -> None:
        """Enter rows that are not there yet."""
        for key in keys.tolist():
            self._enter(key)
        self._sums[len(self._row) + 1 - len(keys) : len(self._row) + 1] = sums

    def drop(self, workloads: Whole) -> None:
        dropped = set(workloads.tolist())
        keys = [key for key in self._row if workload_in(key) not in dropped]
        sums = self.find(np.array(keys, dtype=np.int64))
        self._row = {key: row for row, key in enumerate(keys, start=1)}
        self._sums = np.concatenate([np.zeros((1, 6)), sums])
        self._mark()

    def add(self, seen: Observations, half_life_s: float, now: float = FOREVER) -> None:
        """Fold observations in, at the time `now`."""
        of_key: dict[int, list[tuple[float, float, float]]] = {}
        observed = zip(seen.at, seen.seconds, seen.throughput, strict=True)
        for key, one in zip(seen.key.tolist(), observed, strict=True):
            of_key.setdefault(key, []).append(one)
        rows = [self._row.get(key) or self._enter(key) for key in of_key]
        before = self._sums[rows].tolist()
        pairs = zip(before, of_key.values(), strict=True)
        self._sums[rows] = [_folded(sums, new, half_life_s, now) for sums, new in pairs]

    def _enter(self, key: int) -> int:
        row = self._row[key] = len(self._row) + 1
        if row == len(self._sums):
            self._sums = np.concatenate([self._sums, np.zeros_like(self._sums)])
            self._mark()
        else:
            self._likely[_marks(np.array([key]), len(self._likely))] = True
        return row

    def _mark(self) -> None:
        size = 1 << (MARKS * len(self._sums) - 1).bit_length()
        self._likely = np.zeros(size, dtype=np.bool_)
        self._likely[_marks(np.array(list(self._row), dtype=np.int64), size)] = True


def _marks(keys: Whole, size: int) -> Whole:
    """The mark of each key, below `size`, which is a power of two (Fibonacci hashing)."""
    bits = size.bit_length() - 1
    spread = keys.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return np.asarray(spread >> np.uint64(64 - bits), dtype=np.int64)


def _folded(
    sums: Sequence[float], observed: Sequence[tuple[float, float, float]], half_life_s: float, now: float
) -> tuple[float, ...]:
    """A row with more observations: their time, seconds and samples/s."""
    count, seconds, weight, first, second, seen_at = sums
    newest = max(at for at, _, _ in observed)
    if count:
        newest = max(seen_at, newest)
    newest = min(newest, now)
    faded = fading(newest, seen_at, half_life_s)
    weight, first, second = weight * faded, first * faded, second * faded
    for at, lasted_s, throughput in observed:
        own = lasted_s * fading(newest, at, half_life_s)
        moment = own * throughput
        count += 1.0
        seconds += lasted_s
        weight += own
        first += moment
        second += moment * throughput
    return count, seconds, weight, first, second, newest
