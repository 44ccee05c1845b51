"""The store in memory: it computes everything and writes nothing. For simulations, and beneath DuckDB."""

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from heapq import nlargest
from itertools import islice
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from schemas.accuracy import Execution
from schemas.ids import Fingerprint, GpuType, PlacementId
from schemas.jobs import Workload
from schemas.measurements import TimeModules
from schemas.samples import ThroughputObserved
from services.estimator.store.contract import (
    RUNNING,
    Bandwidth,
    Correction,
    Evidence,
    Keys,
    Loading,
    Revision,
    Running,
    Shape,
    ShapeMeans,
    Theory,
    identity_of,
    places,
    shape_in,
    shows_wait,
    table_of,
)
from services.estimator.store.table import (
    COUNT,
    FIRST,
    FOREVER,
    SECOND,
    SECONDS,
    SEEN_AT,
    WEIGHT,
    Codes,
    Observations,
    Table,
    Whole,
    keys_of,
)
from shared.domain.iteration import Column

SEEN_KEPT = 100_000
"""observations, the newest, that can be exported; their sums are kept whatever comes"""
LISTS_CODED = 64
"""lists of places whose codes are kept"""

KeyRow = tuple[str, str, str, bool, int]
"""fingerprint, layer, place, distributed, size"""


class Pools(NamedTuple):
    """As `Running`."""

    latest: deque[ThroughputObserved]
    gangs: deque[ThroughputObserved]


class MemoryStore:
    def __init__(self, half_life_s: float, *, counts: bool = True) -> None:
        """`counts`: see `table_of`."""
        self.table = Table()
        self.counts = counts
        self.observed_at: dict[Fingerprint, float] = {}
        """when the newest observation of each workload was made"""
        self.theories: dict[Fingerprint, Theory] = {}
        self._pools: dict[Fingerprint, dict[GpuType, Pools]] = {}
        self.half_life_s = half_life_s
        self._workloads, self._places = Codes(), Codes()
        self._coded: dict[tuple[str, tuple[str, ...]], Whole] = {}
        """codes of the places, by layer and list of places"""
        self._shapes: dict[Fingerprint, dict[Shape, int]] = {}
        """shapes by workload, with their keys in the table"""
        self._in_order: dict[Fingerprint, tuple[tuple[Shape, ...], Whole]] = {}
        """shapes by workload in order, with their rows in the table"""
        self._changes = self._calibrated = self._forgot = 0
        self._loaded: dict[Fingerprint, int] = {}
        """the count of changes when a workload was read from a file"""
        self._changed: dict[Fingerprint, int] = {}
        """the count of changes after the last one of each workload"""
        self._evidence_changed: dict[Fingerprint, dict[GpuType, int]] = {}
        """the count of changes after the last one of a workload's evidence on each type"""
        self._theory_changed: dict[Fingerprint, dict[GpuType, int]] = {}
        self._bandwidths: dict[GpuType, Bandwidth] = {}
        self._log: dict[PlacementId, Execution] = {}
        self._seen: deque[ThroughputObserved] = deque(maxlen=SEEN_KEPT)
        self._came = 0
        """observations, those included that are not among `_seen` any more"""

    # ---- evidence

    def add(
        self, observations: Sequence[ThroughputObserved], now: float = FOREVER, earlier_s: float = 0.0
    ) -> None:
        self.fold(observations, now, earlier_s)
        self._seen += observations
        self._came += len(observations)
        for seen in observations:
            if seen.data_s:
                types = self._pools.setdefault(seen.fingerprint, {})
                pools = types.setdefault(seen.gpu_type, Pools(deque(maxlen=RUNNING), deque(maxlen=RUNNING)))
                pools.latest.append(seen)
                if shows_wait(seen):
                    pools.gangs.append(seen)

    def fold(self, observations: Sequence[ThroughputObserved], now: float, earlier_s: float) -> None:
        """Add observations to the sums without keeping them."""
        if not observations:
            return
        twice = [seen for seen in observations for _ in range(2)]
        names = [row for seen in observations for row in rows_of(seen, counts=self.counts)]
        keys = self.keys(names)
        for seen in observations:
            at = seen.at - earlier_s
            before = self.observed_at.get(seen.fingerprint, at)
            self.observed_at[seen.fingerprint] = min(max(before, at), now)
        self._note(names, keys)
        rows = Observations(
            key=keys,
            at=[seen.at - earlier_s for seen in twice],
            seconds=[seen.seconds for seen in twice],
            throughput=[seen.throughput for seen in twice],
        )
        self.table.add(rows, self.half_life_s, now)

    def enter(
        self,
        fingerprints: Sequence[str],
        places: Sequence[tuple[str, str]],
        distributed: npt.NDArray[np.bool_],
        size: Whole,
        sums: Column,
    ) -> None:
        """Enter rows of sums unchanged; `places`: layer and place."""
        workload = self._workloads.of(fingerprints)
        place = self._places.of(f"{layer}/{name}" for layer, name in places)
        keys = keys_of(workload, place, distributed, size)
        self.table.put(keys, sums)
        columns = fingerprints, places, distributed.tolist(), size.tolist()
        self._note(
            [(one, *where, spread, own) for one, where, spread, own in zip(*columns, strict=True)], keys
        )

    def _note(self, rows: Iterable[KeyRow], keys: Whole) -> None:
        for (name, layer, place, distributed, size), key in zip(rows, keys.tolist(), strict=True):
            if layer != "type":
                continue
            fingerprint, gpu_type = Fingerprint(name), GpuType(place)
            self._evidence_changed.setdefault(fingerprint, {})[gpu_type] = self._change(fingerprint)
            shape = shape_in(gpu_type, size, distributed=distributed)
            known = self._shapes.setdefault(fingerprint, {})
            if shape is not None and shape not in known:
                known[shape] = key
                self._in_order.pop(fingerprint, None)

    def _change(self, fingerprint: Fingerprint) -> int:
        self._changes += 1
        self._changed[fingerprint] = self._changes
        return self._changes

    def shape_means(self, fingerprint: Fingerprint) -> ShapeMeans:
        if fingerprint not in self._in_order:
            known = self._shapes.get(fingerprint, {})
            shapes = tuple(sorted(known))
            keys = np.array([known[one] for one in shapes], dtype=np.int64)
            self._in_order[fingerprint] = shapes, self.table.rows(keys)
        shapes, rows = self._in_order[fingerprint]
        sums = self.table.at(rows)
        return ShapeMeans(shapes, sums[:, FIRST] / sums[:, WEIGHT])

    def latest(self, limit: int) -> list[Fingerprint]:
        newest = nlargest(limit, self.observed_at.items(), key=lambda one: (one[1], one[0]))
        return [fingerprint for fingerprint, _ in newest]

    def revision(self, fingerprint: Fingerprint, gpu_types: Collection[GpuType]) -> Revision:
        evidence = self._evidence_changed.get(fingerprint, {})
        theory = self._theory_changed.get(fingerprint, {})
        least = self._loaded.get(fingerprint, self._forgot)
        return Revision(
            max([evidence.get(one, 0) for one in gpu_types] + [least]),
            max([theory.get(one, 0) for one in gpu_types] + [least, self._calibrated]),
        )

    def changes(self, of: Fingerprint | None = None) -> int:
        return self._changes if of is None else max(self._changed.get(of, self._forgot), self._calibrated)

    def load(self, fingerprints: Iterable[Fingerprint]) -> None:
        """Note that what the store has of these workloads is read from a file now."""
        for one in fingerprints:
            self._loaded[one] = self._change(one)

    def find(self, keys: Keys) -> Evidence:
        workload = self._workloads.of(keys.fingerprints)[keys.workload]
        place = self._place_codes(keys.layer, tuple(keys.places))[keys.place]
        rows = self.table.rows(keys_of(workload, place, keys.distributed, keys.size))
        seen = rows.nonzero()[0]  # most of a large question has never run
        sums = self.table.at(rows[seen])
        mean = sums[:, FIRST] / sums[:, WEIGHT]
        found = Evidence(
            count=np.zeros(len(rows), dtype=np.int64),
            seconds=np.zeros(len(rows)),
            weight=np.zeros(len(rows)),
            seen_at=np.zeros(len(rows)),
            mean=np.full(len(rows), np.nan),
            variance=np.full(len(rows), np.nan),
        )
        found.count[seen] = sums[:, COUNT]
        found.seconds[seen] = sums[:, SECONDS]
        found.weight[seen] = sums[:, WEIGHT]
        found.seen_at[seen] = sums[:, SEEN_AT]
        found.mean[seen] = mean
        found.variance[seen] = np.maximum(sums[:, SECOND] / sums[:, WEIGHT] - mean**2, 0.0)
        return found

    def _place_codes(self, layer: str, places: tuple[str, ...]) -> Whole:
        """The codes of a list of places; the questions of one cluster all bring the same list."""
        if (layer, places) not in self._coded:
            if len(self._coded) == LISTS_CODED:
                self._coded.clear()
            self._coded[layer, places] = self._places.of(f"{layer}/{place}" for place in places)
        return self._coded[layer, places]

    def observations(self, after: int, limit: int) -> list[ThroughputObserved]:
        first = max(after - self.dropped(), 0)
        return list(islice(self._seen, first, first + limit))

    def dropped(self) -> int:
        return self._came - len(self._seen)

    def unknown(self, observations: Sequence[ThroughputObserved]) -> list[ThroughputObserved]:
        known = {identity_of(seen) for seen in self._seen}
        return list({identity_of(one): one for one in observations if identity_of(one) not in known}.values())

    def workloads(self) -> list[Fingerprint]:
        return sorted(self.theories)

    def keys(self, rows: Sequence[KeyRow]) -> Whole:
        """The table's keys of some rows."""
        workload = self._workloads.of(row[0] for row in rows)
        place = self._places.of(f"{row[1]}/{row[2]}" for row in rows)
        distributed = np.array([row[3] for row in rows], dtype=np.bool_)
        return keys_of(workload, place, distributed, np.array([row[4] for row in rows], dtype=np.int64))

    def forget(self, fingerprints: Sequence[Fingerprint]) -> None:
        """Keep nothing of these workloads, except when they were observed last."""
        self.table.drop(self._workloads.of(fingerprints))
        self._workloads.drop(fingerprints)
        self._in_order.clear()
        self._forgot = self._changes = self._changes + 1  # more than any of their counts, which go too
        for one in fingerprints:
            self._loaded.pop(one, None)
            self._changed.pop(one, None)
            self._evidence_changed.pop(one, None)
            self._theory_changed.pop(one, None)
            self._shapes.pop(one, None)
            self.theories.pop(one, None)
            self._pools.pop(one, None)

    # ---- theory

    def keep(self, workload: Workload, modules: Mapping[GpuType, TimeModules]) -> None:
        before = self.theories.get(workload.fingerprint)
        theory = before or Theory(workload.batch_size, {}, {})
        known = {**theory.modules, **modules}
        if before is None or known != before.modules:
            self.theories[workload.fingerprint] = msgspec.structs.replace(theory, modules=known)
            new = [gpu_type for gpu_type, one in modules.items() if theory.modules.get(gpu_type) != one]
            now = self._change(workload.fingerprint)
            self._theory_changed.setdefault(workload.fingerprint, {}).update(dict.fromkeys(new, now))

    def theory(self, fingerprints: Iterable[Fingerprint]) -> dict[Fingerprint, Theory]:
        return {one: self.theories[one] for one in fingerprints if one in self.theories}

    def running(self, fingerprint: Fingerprint, gpu_type: GpuType) -> Running:
        pools = self._pools.get(fingerprint, {}).get(gpu_type)
        return Running(tuple(pools.latest), tuple(pools.gangs)) if pools else Running((), ())

    def refine(self, fingerprint: Fingerprint, gpu_type: GpuType, loading: Loading) -> None:
        if fingerprint in self.theories:
            self.theories[fingerprint].loading[gpu_type] = loading
            self._theory_changed.setdefault(fingerprint, {})[gpu_type] = self._change(fingerprint)

    def correct(self, fingerprint: Fingerprint, gpu_types: str, correction: Correction) -> None:
        if fingerprint in self.theories:
            self.theories[fingerprint].corrections[gpu_types] = correction

    def together(self) -> AbstractContextManager[None]:
        return nullcontext()

    def bandwidths(self) -> dict[GpuType, Bandwidth]:
        return dict(self._bandwidths)

    def calibrate(self, measured: Mapping[GpuType, Bandwidth]) -> None:
        self._bandwidths |= measured
        self._calibrated = self._changes = self._changes + 1

    # ---- the prediction log

    def log(self, executions: Sequence[Execution]) -> int:
        before = len(self._log)
        for one in executions:
            self._log.setdefault(one.placement_id, one)
        return len(self._log) - before

    def logged(self, after: int, limit: int) -> list[Execution]:
        return list(islice(self._log.values(), after, after + limit))

    def executions(self) -> list[Execution]:
        return sorted(self._log.values(), key=lambda one: (one.at, one.placement_id))

    def close(self) -> None:
        """Nothing is held."""


def rows_of(seen: ThroughputObserved, *, counts: bool) -> list[KeyRow]:
    """The two records that every observation is; `counts`: see `table_of`."""
    table = table_of(seen, counts=counts)
    return [(seen.fingerprint, layer, place, *table) for layer, place in places(seen)]
