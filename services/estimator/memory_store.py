"""The store in memory: all of the reckoning, none of the keeping. For tests, and beneath the DuckDB store."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np

from schemas.events import TimeModules
from schemas.ids import Fingerprint, GpuType
from schemas.jobs import Workload
from schemas.samples import ThroughputObserved
from services.estimator.store import Evidence, Keys, Theory, fading, places, table_of

Place = tuple[str, str, bool, int]
"""layer, place, distributed, size: one row of a workload's tables"""


class Sums(msgspec.Struct):
    """What is kept of the observations in one row."""

    count: int = 0
    seconds: float = 0.0
    weight: float = 0.0
    """Σ w, w = seconds · 2^(−age / half-life)"""
    first: float = 0.0
    """Σ w · throughput"""
    second: float = 0.0
    """Σ w · throughput²"""
    seen_at: float = 0.0
    """cluster time from which ages are counted: the newest observation"""


NOTHING = Sums()


class MemoryStore:
    def __init__(self, half_life_s: float) -> None:
        self.sums: dict[Fingerprint, dict[Place, Sums]] = {}
        self.theories: dict[Fingerprint, Theory] = {}
        self._half_life_s = half_life_s

    def add(self, observations: Sequence[ThroughputObserved]) -> None:
        for seen in observations:
            rows = self.sums.setdefault(seen.fingerprint, {})
            for layer, place in places(seen):
                row = (layer, place, *table_of(seen))
                self._fold(rows.setdefault(row, Sums(seen_at=seen.at)), seen)

    def find(self, keys: Keys) -> Evidence:
        rows = zip(keys.fingerprint, keys.place, keys.distributed.tolist(), keys.size.tolist(), strict=True)
        nowhere: dict[Place, Sums] = {}
        found = [
            self.sums.get(fingerprint, nowhere).get((keys.layer, *row), NOTHING) for fingerprint, *row in rows
        ]
        columns = [(sums.seconds, sums.weight or np.nan, sums.first, sums.second) for sums in found]
        seconds, weight, first, second = np.array(columns, dtype=np.float64).reshape(-1, 4).T
        mean = first / weight
        return Evidence(
            count=np.array([sums.count for sums in found], dtype=np.int64),
            seconds=seconds,
            mean=mean,
            variance=np.maximum(second / weight - mean**2, 0.0),
        )

    def keep(self, workload: Workload, modules: Mapping[GpuType, TimeModules]) -> None:
        before = self.theories.get(workload.fingerprint)
        known = before.modules if before else {}
        self.theories[workload.fingerprint] = Theory(workload.batch_size, {**known, **modules})

    def theory(self, fingerprints: Iterable[Fingerprint]) -> dict[Fingerprint, Theory]:
        return {one: self.theories[one] for one in fingerprints if one in self.theories}

    def close(self) -> None:
        """Nothing is held."""

    def _fold(self, sums: Sums, seen: ThroughputObserved) -> None:
        at = max(sums.seen_at, seen.at)
        faded = fading(at, sums.seen_at, self._half_life_s)
        weight = seen.seconds * fading(at, seen.at, self._half_life_s)
        sums.count += 1
        sums.seconds += seen.seconds
        sums.weight = sums.weight * faded + weight
        sums.first = sums.first * faded + weight * seen.throughput
        sums.second = sums.second * faded + weight * seen.throughput**2
        sums.seen_at = at
