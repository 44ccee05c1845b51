"""The store of record, in one DuckDB file. The one door to DuckDB.

Three tables: `observations` (every one, as it came), `evidence` (their sums: the entity and the type layer,
aggregated and distributed, told apart by columns) and `theory`. The workloads in use are read into memory
and reckoned there; every change is in the file before `add` or `keep` returns, and after a failed write
memory is read anew from it. Used by one thread.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import duckdb
import msgspec
import numpy as np

from schemas.events import TimeModules
from schemas.ids import Fingerprint, GpuType
from schemas.jobs import Workload
from schemas.samples import ThroughputObserved
from services.estimator.memory_store import MemoryStore, Sums
from services.estimator.store import Evidence, Keys, StoreUnavailable, Theory, places, table_of

FORMAT = 1
WORKLOADS_IN_MEMORY = 5_000
"""the first read is dropped first"""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS hopyard_store (format INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS evidence (
    fingerprint VARCHAR, layer VARCHAR, place VARCHAR, distributed BOOLEAN, size INTEGER,
    count BIGINT NOT NULL, seconds DOUBLE NOT NULL,
    weight DOUBLE NOT NULL, first DOUBLE NOT NULL, second DOUBLE NOT NULL, seen_at DOUBLE NOT NULL,
    PRIMARY KEY (fingerprint, layer, place, distributed, size));
CREATE TABLE IF NOT EXISTS observations (
    seen_at DOUBLE NOT NULL, fingerprint VARCHAR NOT NULL, job_id VARCHAR NOT NULL,
    placement_id VARCHAR NOT NULL, node_id VARCHAR NOT NULL, gpu_type VARCHAR NOT NULL,
    gpus_on_node INTEGER NOT NULL, configuration VARCHAR NOT NULL, seconds DOUBLE NOT NULL,
    throughput DOUBLE NOT NULL, data_s VARCHAR NOT NULL, wait_s VARCHAR NOT NULL);
CREATE TABLE IF NOT EXISTS theory (
    fingerprint VARCHAR, gpu_type VARCHAR, batch_size INTEGER NOT NULL, modules VARCHAR NOT NULL,
    PRIMARY KEY (fingerprint, gpu_type));
"""
_EVIDENCE: dict[str, Any] = {
    "fingerprint": object,
    "layer": object,
    "place": object,
    "distributed": np.bool_,
    "size": np.int32,
    "count": np.int64,
    "seconds": np.float64,
    "weight": np.float64,
    "first": np.float64,
    "second": np.float64,
    "seen_at": np.float64,
}
_OBSERVATIONS: dict[str, Any] = {
    "seen_at": np.float64,
    "fingerprint": object,
    "job_id": object,
    "placement_id": object,
    "node_id": object,
    "gpu_type": object,
    "gpus_on_node": np.int32,
    "configuration": object,
    "seconds": np.float64,
    "throughput": np.float64,
    "data_s": object,
    "wait_s": object,
}
"""configuration, data_s and wait_s as JSON"""
_THEORY: dict[str, Any] = {
    "fingerprint": object,
    "gpu_type": object,
    "batch_size": np.int32,
    "modules": object,
}


Batch = tuple[Mapping[str, Any], Sequence[tuple[Any, ...]]]
"""columns with their types, and rows"""


class DuckDbStore:
    def __init__(self, path: str, half_life_s: float) -> None:
        """Open the file, or create it. Raises StoreUnavailable, and never begins anew in silence."""
        self._path = path
        self._memory = MemoryStore(half_life_s)
        self._loaded: dict[Fingerprint, None] = {}
        with self._told("opened"):
            self._connection = duckdb.connect(path, config={"threads": 1})
        try:
            with self._told("read"):
                self._prepare()
        except StoreUnavailable:
            self._connection.close()
            raise

    def add(self, observations: Sequence[ThroughputObserved]) -> None:
        touched = {seen.fingerprint: None for seen in observations}
        self._load(touched)
        self._memory.add(observations)
        rows = dict.fromkeys(
            (seen.fingerprint, layer, place, *table_of(seen))
            for seen in observations
            for layer, place in places(seen)
        )
        sums = self._memory.sums
        evidence = [(row[0], *row[1:], *msgspec.structs.astuple(sums[row[0]][row[1:]])) for row in rows]
        observed = [_observation_row(seen) for seen in observations]
        self._write({"observations": (_OBSERVATIONS, observed), "evidence": (_EVIDENCE, evidence)}, touched)

    def find(self, keys: Keys) -> Evidence:
        self._load(dict.fromkeys(keys.fingerprint))
        return self._memory.find(keys)

    def keep(self, workload: Workload, modules: Mapping[GpuType, TimeModules]) -> None:
        fingerprint = workload.fingerprint
        before = self.theory([fingerprint]).get(fingerprint)
        known = before.modules if before else {}
        news = {gpu_type: one for gpu_type, one in modules.items() if known.get(gpu_type) != one}
        self._memory.keep(workload, news)
        rows = [
            (fingerprint, gpu_type, workload.batch_size, msgspec.json.encode(one).decode())
            for gpu_type, one in news.items()
        ]
        self._write({"theory": (_THEORY, rows)}, {fingerprint: None})

    def theory(self, fingerprints: Iterable[Fingerprint]) -> dict[Fingerprint, Theory]:
        wanted = dict.fromkeys(fingerprints)
        self._load(wanted)
        return self._memory.theory(wanted)

    def close(self) -> None:
        self._connection.close()

    # ---- the file

    def _prepare(self) -> None:
        tables = {name for (name,) in self._connection.execute("SHOW TABLES").fetchall()}
        if tables and "hopyard_store" not in tables:
            raise StoreUnavailable(f"{self._path} is a DuckDB file of something else: name another path")
        self._connection.execute(_SCHEMA)
        formats = self._connection.execute("SELECT format FROM hopyard_store").fetchall()
        if not formats:
            self._connection.execute("INSERT INTO hopyard_store VALUES (?)", [FORMAT])
        elif formats != [(FORMAT,)]:
            raise StoreUnavailable(f"{self._path} has store format {formats[0][0]}, this is {FORMAT}")

    def _load(self, fingerprints: Mapping[Fingerprint, None]) -> None:
        """Bring what the file has of these workloads into memory."""
        missing = [one for one in fingerprints if one not in self._loaded]
        if not missing:
            return
        with self._told("read"):
            evidence = self._select("evidence", missing)
            theory = self._select("theory", missing)
        for fingerprint, layer, place, distributed, size, *sums in evidence:
            rows = self._memory.sums.setdefault(fingerprint, {})
            rows[layer, place, distributed, size] = Sums(*sums)
        for fingerprint, gpu_type, batch_size, modules in theory:
            known = self._memory.theories.setdefault(fingerprint, Theory(batch_size, {}))
            known.modules[gpu_type] = msgspec.json.decode(modules, type=TimeModules)
        self._loaded.update(dict.fromkeys(missing))
        for one in [one for one in self._loaded if one not in fingerprints][: self._too_many()]:
            self._forget(one)

    def _too_many(self) -> int:
        return max(len(self._loaded) - WORKLOADS_IN_MEMORY, 0)

    def _select(self, table: str, fingerprints: list[Fingerprint]) -> list[Any]:
        wanted = f"SELECT * FROM {table} WHERE fingerprint IN (SELECT unnest(?)) ORDER BY ALL"  # noqa: S608 - ours
        return self._connection.execute(wanted, [fingerprints]).fetchall()

    def _write(self, tables: Mapping[str, Batch], of: Iterable[Fingerprint]) -> None:
        """Write rows into tables, all or none."""
        try:
            with self._told("written"):
                self._connection.begin()
                for table, (columns, rows) in tables.items():
                    self._insert(table, columns, rows)
                self._connection.commit()
        except StoreUnavailable:
            for fingerprint in of:
                self._forget(fingerprint)
            raise

    def _insert(self, table: str, columns: Mapping[str, Any], rows: Sequence[tuple[Any, ...]]) -> None:
        if not rows:
            return
        values = zip(columns.items(), zip(*rows, strict=True), strict=True)
        batch = {name: np.array(column, dtype=kind) for (name, kind), column in values}
        self._connection.register("batch", batch)
        insert = "INSERT" if table == "observations" else "INSERT OR REPLACE"
        self._connection.execute(f"{insert} INTO {table} SELECT * FROM batch")  # noqa: S608 - ours
        self._connection.unregister("batch")

    def _forget(self, fingerprint: Fingerprint) -> None:
        self._loaded.pop(fingerprint, None)
        self._memory.sums.pop(fingerprint, None)
        self._memory.theories.pop(fingerprint, None)

    @contextmanager
    def _told(self, verb: str) -> Iterator[None]:
        try:
            yield
        except (duckdb.OperationalError, duckdb.InternalError, duckdb.FatalException) as error:
            remedy = _remedy(str(error))
            raise StoreUnavailable(f"store {self._path} cannot be {verb}: {error}. {remedy}") from error


def _observation_row(seen: ThroughputObserved) -> tuple[Any, ...]:
    plain = msgspec.structs.asdict(seen) | {"seen_at": seen.at}
    as_json = {
        name: msgspec.json.encode(plain[name]).decode() for name in ("configuration", "data_s", "wait_s")
    }
    return tuple((plain | as_json)[name] for name in _OBSERVATIONS)


_REMEDIES = (
    ("lock", "Another process has it open: stop that one, or set HOPYARD_STORE to another path"),
    ("No such file", "Create the folder, or set HOPYARD_STORE to another path"),
    ("Permission denied", "Let the service write there, or set HOPYARD_STORE to another path"),
)
_DAMAGED = "Restore the file from a backup, or move it away to begin with an empty store"


def _remedy(reason: str) -> str:
    return next((remedy for sign, remedy in _REMEDIES if sign in reason), _DAMAGED)
