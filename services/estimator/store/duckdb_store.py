"""The store of record, in one DuckDB file. Of the estimator, only this module imports DuckDB.

`observations` has the observations as they came, `pruned` how many are gone, `evidence` their sums (the
entity and the type layer, aggregated and distributed, distinguished by columns), `theory` what was profiled,
`loading` what running refined of it, `bandwidths` what was calibrated, and `executions` the prediction log.
The workloads in use are read into memory and computed there; every change is in the file before a method
returns, and after a failed write memory is read from it again. A file that DuckDB gives up, as where a disk
is full when it moves its log into the file, is opened again before it is next used. Used by one thread.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import duckdb
import msgspec
import numpy as np

from schemas.accuracy import Execution
from schemas.ids import Fingerprint, GpuType, PlacementId
from schemas.jobs import Workload
from schemas.measurements import TimeModules
from schemas.samples import ThroughputObserved
from services.estimator.store.contract import (
    RUNNING,
    WORKLOADS_IN_MEMORY,
    Bandwidth,
    Correction,
    Evidence,
    Keys,
    Loading,
    Revision,
    Running,
    ShapeMeans,
    StoreUnavailable,
    Theory,
    identity_of,
    table_of,
)
from services.estimator.store.memory_store import MemoryStore, rows_of
from services.estimator.store.table import FOREVER
from services.estimator.store.tables import (
    FORMAT,
    SCHEMA,
    SUMS,
    TABLES,
    Row,
    as_json,
    execution_of,
    execution_row,
    observation_of,
    observation_row,
)
from shared.runtime.damage import Damaged
from shared.runtime.interruption import interruptible

PRUNED_FROM = 100_000
"""observations from which on opening the file deletes those that weigh next to nothing"""
PRUNED_SHARE = 2.0**-10
"""share of a row of `evidence` that all observations of it that were deleted have at most, by weight"""

Writes = list[tuple[Mapping[str, Sequence[Row]], Sequence[Fingerprint]]]
"""rows by table, and the workloads that they are of"""


class DamagedStore(StoreUnavailable, Damaged):
    """The file is there and cannot be read, now or later."""


class DuckDbStore:
    def __init__(self, path: str, half_life_s: float, *, counts: bool = True) -> None:
        """Open the file, or create it. Raises StoreUnavailable, and never replaces a file it cannot read.

        `counts`: see `table_of`.
        """
        self._path = path
        self._memory = MemoryStore(half_life_s, counts=counts)
        self._loaded: dict[Fingerprint, None] = {}
        self._put_off: Writes | None = None
        """writes for the end of `together`; None: each is written at once"""
        self._connection: duckdb.DuckDBPyConnection | None = None
        """None: not open, or given up by DuckDB"""
        try:
            with self._file("opened") as file:
                self._prepare(file)
            self._prune()
        except BaseException:
            self.close()
            raise

    @property
    def half_life_s(self) -> float:
        return self._memory.half_life_s

    # ---- evidence

    def add(
        self, observations: Sequence[ThroughputObserved], now: float = FOREVER, earlier_s: float = 0.0
    ) -> None:
        if not observations:
            return
        touched = list(dict.fromkeys(seen.fingerprint for seen in observations))
        self._load(touched)
        self._memory.fold(observations, now, earlier_s)
        counts = self._memory.counts
        rows = list(dict.fromkeys(row for seen in observations for row in rows_of(seen, counts=counts)))
        sums = self._memory.table.find(self._memory.keys(rows)).tolist()
        evidence = [(*row, *numbers) for row, numbers in zip(rows, sums, strict=True)]
        observed = [observation_row(seen) for seen in observations]
        self._write({"observations": observed, "evidence": evidence}, touched)

    def find(self, keys: Keys) -> Evidence:
        self._load(keys.fingerprints)
        return self._memory.find(keys)

    def shape_means(self, fingerprint: Fingerprint) -> ShapeMeans:
        self._load([fingerprint])
        return self._memory.shape_means(fingerprint)

    def latest(self, limit: int) -> list[Fingerprint]:
        return self._memory.latest(limit)

    def revision(self, fingerprint: Fingerprint, gpu_types: Collection[GpuType]) -> Revision:
        self._load([fingerprint])
        return self._memory.revision(fingerprint, gpu_types)

    def changes(self, of: Fingerprint | None = None) -> int:
        self._load([of] if of else [])
        return self._memory.changes(of)

    def observations(self, after: int, limit: int) -> list[ThroughputObserved]:
        offset = max(after - self.dropped(), 0)
        with self._file("read") as file:
            rows = file.execute(_PAGE, [limit, offset]).fetchall()
            return [observation_of(row) for row in rows]

    def dropped(self) -> int:
        with self._file("read") as file:
            [(count,)] = file.execute("SELECT coalesce(sum(observations), 0)::BIGINT FROM pruned").fetchall()
            return int(count)

    def unknown(self, observations: Sequence[ThroughputObserved]) -> list[ThroughputObserved]:
        asked = {identity_of(one): one for one in observations}
        with self._file("read") as file:
            placements = list({placement for placement, _, _ in asked})
            known = set(file.execute(_KNOWN, [placements]).fetchall())
        return [one for identity, one in asked.items() if identity not in known]

    # ---- theory

    def keep(self, workload: Workload, modules: Mapping[GpuType, TimeModules]) -> None:
        fingerprint = workload.fingerprint
        before = self.theory([fingerprint]).get(fingerprint)
        known = before.modules if before else {}
        new = {gpu_type: one for gpu_type, one in modules.items() if known.get(gpu_type) != one}
        self._memory.keep(workload, new)
        rows = [(fingerprint, gpu_type, workload.batch_size, as_json(one)) for gpu_type, one in new.items()]
        self._write({"theory": rows}, [fingerprint])

    def theory(self, fingerprints: Iterable[Fingerprint]) -> dict[Fingerprint, Theory]:
        wanted = list(fingerprints)
        self._load(wanted)
        return self._memory.theory(wanted)

    def workloads(self) -> list[Fingerprint]:
        with self._file("read") as file:
            rows = file.execute("SELECT DISTINCT fingerprint FROM theory ORDER BY ALL").fetchall()
        return [fingerprint for (fingerprint,) in rows]

    def running(self, fingerprint: Fingerprint, gpu_type: GpuType) -> Running:
        with self._file("read") as file:
            latest, gangs = (
                file.execute(newest, [fingerprint, gpu_type]).fetchall() for newest in (_LATEST, _GANGS)
            )
            return Running(*(tuple(map(observation_of, reversed(rows))) for rows in (latest, gangs)))

    def refine(self, fingerprint: Fingerprint, gpu_type: GpuType, loading: Loading) -> None:
        self._load([fingerprint])
        if self._memory.theory([fingerprint]):
            self._memory.refine(fingerprint, gpu_type, loading)
            self._write({"loading": [(fingerprint, gpu_type, as_json(loading))]}, [fingerprint])

    def correct(self, fingerprint: Fingerprint, gpu_types: str, correction: Correction) -> None:
        self._load([fingerprint])
        if self._memory.theory([fingerprint]):
            self._memory.correct(fingerprint, gpu_types, correction)
            row = (fingerprint, gpu_types, correction.factor, correction.observations)
            self._write({"corrections": [row]}, [fingerprint])

    @contextmanager
    def together(self) -> Iterator[None]:
        writes: Writes = []
        self._put_off = writes
        try:
            yield
        except BaseException:
            self._forget([one for _, of in writes for one in of])
            raise
        finally:
            self._put_off = None
        tables: dict[str, list[Row]] = {}
        for one, _ in writes:
            for table, rows in one.items():
                tables.setdefault(table, []).extend(rows)
        self._write(tables, [one for _, of in writes for one in of])

    def bandwidths(self) -> dict[GpuType, Bandwidth]:
        return self._memory.bandwidths()

    def calibrate(self, measured: Mapping[GpuType, Bandwidth]) -> None:
        self._write({"bandwidths": [(gpu_type, as_json(one)) for gpu_type, one in measured.items()]}, [])
        self._memory.calibrate(measured)

    # ---- the prediction log

    def log(self, executions: Sequence[Execution]) -> int:
        with self._file("read") as file:
            ids = [one.placement_id for one in executions]
            rows = file.execute(_LOGGED, [ids]).fetchall()
        known = {placement_id for (placement_id,) in rows}
        new: dict[PlacementId, Execution] = {}
        for one in executions:
            if one.placement_id not in known:
                new.setdefault(one.placement_id, one)
        self._write({"executions": [execution_row(one) for one in new.values()]}, [])
        return len(new)

    def logged(self, after: int, limit: int) -> list[Execution]:
        with self._file("read") as file:
            rows = file.execute(_LOG_PAGE, [limit, after]).fetchall()
            return [execution_of(row) for row in rows]

    def executions(self) -> list[Execution]:
        with self._file("read") as file:
            rows = file.execute('SELECT * FROM executions ORDER BY "at", placement_id').fetchall()
            return [execution_of(row) for row in rows]

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    # ---- the file

    def _prepare(self, file: duckdb.DuckDBPyConnection) -> None:
        tables = {name for (name,) in file.execute("SHOW TABLES").fetchall()}
        if tables and "hopyard_store" not in tables:
            raise StoreUnavailable(f"{self._path} is a DuckDB file of something else: name another path")
        formats = file.execute("SELECT format FROM hopyard_store").fetchall() if tables else []
        if formats and formats != [(FORMAT,)]:
            raise StoreUnavailable(
                f"{self._path} has store format {formats[0][0]}, this version of hopyard has {FORMAT}: "
                "install the version that wrote it, or name another path"
            )
        file.execute(SCHEMA)
        if not formats:
            file.execute("INSERT INTO hopyard_store VALUES (?)", [FORMAT])
        for table in TABLES:  # read all rows, so that damage shows now, and not later as missing estimates
            file.execute(f"SELECT sum(hash(COLUMNS(*))) FROM {table}")  # noqa: S608 - ours
        file.execute(_NAME_SERVERS)
        bandwidths = file.execute("SELECT * FROM bandwidths").fetchall()
        self._memory.calibrate({one: msgspec.json.decode(text, type=Bandwidth) for one, text in bandwidths})
        self._memory.observed_at |= dict(file.execute(_OBSERVED_AT).fetchall())

    def _prune(self) -> None:
        """Delete observations of which a copy of this store, made from its export, tells next to nothing.

        Estimates are made of the sums, which stay. How many were deleted is kept: an export that goes on
        after it would else skip as many. Where there is no room to delete, the next opening does it.
        """
        try:
            with self._file("pruned") as file:
                [(count,)] = file.execute("SELECT count(*) FROM observations").fetchall()
                if count >= PRUNED_FROM:
                    file.register("shapes", self._shapes_in(file))
                    with _transaction(file):
                        found = file.execute(_PRUNE, [self.half_life_s, PRUNED_SHARE, RUNNING]).fetchall()
                        file.execute("INSERT INTO pruned SELECT ? WHERE ? > 0", [*found[0], *found[0]])
                    file.unregister("shapes")
        except DamagedStore:
            raise
        except StoreUnavailable:
            pass

    def _shapes_in(self, file: duckdb.DuckDBPyConnection) -> dict[str, Any]:
        """The row of `evidence` of each configuration that was observed, as columns."""
        rows = file.execute(_OF_EACH_SHAPE).fetchall()
        found = [(*row[:2], *table_of(observation_of(row[2:]), counts=self._memory.counts)) for row in rows]
        columns = {"observed_on": np.int32, "observed_in": object, "distributed": np.bool_, "size": np.int32}
        return {
            name: np.array(column, dtype=kind)
            for (name, kind), column in zip(columns.items(), zip(*found, strict=True), strict=True)
        }

    def _load(self, fingerprints: Sequence[Fingerprint]) -> None:
        """Bring what the file has of these workloads into memory; of too many, those read first leave it."""
        missing = list(dict.fromkeys(one for one in fingerprints if one not in self._loaded))
        if not missing:
            return
        with self._file("read") as file:
            evidence = _select(file, "evidence", missing).fetchnumpy()
            theory = [
                (fingerprint, gpu_type, batch_size, msgspec.json.decode(modules, type=TimeModules))
                for fingerprint, gpu_type, batch_size, modules in _select(file, "theory", missing).fetchall()
            ]
            loading = [
                (fingerprint, gpu_type, msgspec.json.decode(refined, type=Loading))
                for fingerprint, gpu_type, refined in _select(file, "loading", missing).fetchall()
            ]
            corrections = _select(file, "corrections", missing).fetchall()
        self._memory.load(missing)
        self._memory.enter(
            evidence["fingerprint"].tolist(),
            list(zip(evidence["layer"], evidence["place"], strict=True)),
            evidence["distributed"],
            evidence["size"].astype(np.int64),
            np.stack([np.asarray(evidence[name], dtype=np.float64) for name in SUMS], axis=1),
        )
        for fingerprint, gpu_type, batch_size, modules in theory:
            known = self._memory.theories.setdefault(fingerprint, Theory(batch_size, {}, {}))
            known.modules[gpu_type] = modules
        for fingerprint, gpu_type, refined in loading:
            self._memory.refine(fingerprint, gpu_type, refined)
        for fingerprint, gpu_types, factor, observations in corrections:
            one = Correction(factor=factor, observations=observations)
            self._memory.correct(fingerprint, gpu_types, one)
        self._loaded.update(dict.fromkeys(missing))
        asked = set(fingerprints)
        idle = [one for one in self._loaded if one not in asked]
        self._forget(idle[: max(len(self._loaded) - WORKLOADS_IN_MEMORY, 0)])

    def _write(self, tables: Mapping[str, Sequence[Row]], of: Sequence[Fingerprint]) -> None:
        """Write rows into tables, all or none."""
        if self._put_off is not None:
            self._put_off.append((tables, of))
            return
        try:
            with self._file("written") as file, _transaction(file):
                for table, rows in tables.items():
                    _insert(file, table, rows)
        except BaseException:
            self._forget(of)
            raise

    def _forget(self, fingerprints: Sequence[Fingerprint]) -> None:
        for one in fingerprints:
            self._loaded.pop(one, None)
        if fingerprints:
            self._memory.forget(fingerprints)

    @contextmanager
    def _file(self, verb: str) -> Iterator[duckdb.DuckDBPyConnection]:
        """The file for one operation, opened first if it is not open. Raises StoreUnavailable."""
        try:
            with interruptible():
                if self._connection is None:
                    self._connection = duckdb.connect(self._path, config={"threads": 1})
                yield self._connection
        except duckdb.Error as error:
            if isinstance(error, _GIVEN_UP):
                self._give_up()
            if not isinstance(error, _OUTSIDE) and type(error) is not duckdb.Error:
                raise  # but a wrong checksum has no type
            reason = str(error).splitlines()[0].rstrip(".")
            remedy = remedy_of(reason.replace(self._path, ""))
            kind = DamagedStore if remedy == _DAMAGED else StoreUnavailable
            said = f"{reason}. {remedy}" if remedy else reason
            raise kind(f"store {self._path} cannot be {verb}: {said}") from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise DamagedStore(f"store {self._path} cannot be {verb}: {error}. {_DAMAGED}") from error

    def _give_up(self) -> None:
        """Close a file of which DuckDB does nothing more, and forget what memory has of it."""
        with suppress(duckdb.Error):
            self.close()
        self._connection = None
        self._forget(list(self._loaded))


@contextmanager
def _transaction(file: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Within it all is written, or nothing."""
    file.begin()
    try:
        yield
        file.commit()
    except BaseException:
        with suppress(duckdb.Error, RuntimeError):  # none is open any more, or it is interrupted too
            file.rollback()
        raise


def _select(file: duckdb.DuckDBPyConnection, table: str, fingerprints: list[Fingerprint]) -> Any:  # noqa: ANN401 - DuckDB has no types
    wanted = f"SELECT * FROM {table} WHERE fingerprint IN (SELECT unnest(?)) ORDER BY ALL"  # noqa: S608 - ours
    return file.execute(wanted, [fingerprints])


def _insert(file: duckdb.DuckDBPyConnection, table: str, rows: Sequence[Row]) -> None:
    if not rows:
        return
    values = zip(TABLES[table].items(), zip(*rows, strict=True), strict=True)
    batch = {name: np.array(column, dtype=kind) for (name, kind), column in values}
    file.register("batch", batch)
    insert = "INSERT" if table == "observations" else "INSERT OR REPLACE"
    file.execute(f"{insert} INTO {table} SELECT * FROM batch")  # noqa: S608 - ours
    file.unregister("batch")


_NEWEST = "SELECT * FROM observations WHERE fingerprint = ? AND gpu_type = ? AND data_s <> '[]'"
_LATEST = f"{_NEWEST} ORDER BY rowid DESC LIMIT {RUNNING}"
_GANGS = f"""
{_NEWEST} AND wait_s <> '[]' AND (gpus_on_node > 1 OR configuration LIKE '%,%')
ORDER BY rowid DESC LIMIT {RUNNING}
"""
"""those that `shows_wait`; only of several nodes has a configuration a comma"""

_NAME_SERVERS = """
UPDATE evidence SET place = place || '/' || seen.gpu_type
FROM (
    SELECT node_id, arg_max(gpu_type, seen_at) AS gpu_type FROM observations
    WHERE node_id IN (SELECT place FROM evidence WHERE layer = 'entity') GROUP BY node_id) AS seen
WHERE layer = 'entity' AND place = seen.node_id
"""
"""for a file whose servers are nodes without a GPU type: a server gets the type that its node had last"""
_OF_EACH_SHAPE = """
SELECT DISTINCT ON (configuration, gpus_on_node) gpus_on_node, configuration, * FROM observations
"""
_PRUNE = """
WITH weighed AS (
    SELECT seen.rowid AS id, seen.seen_at AS "at", evidence.weight AS whole,
        seen.seconds * pow(2.0, -greatest(evidence.seen_at - seen.seen_at, 0.0) / $1) AS weight,
        [fingerprint, evidence.place, distributed::VARCHAR, size::VARCHAR] AS own,
        row_number() OVER (
            PARTITION BY fingerprint, gpu_type, data_s <> '[]' ORDER BY seen.rowid DESC) AS latest,
        row_number() OVER (
            PARTITION BY fingerprint, gpu_type, data_s <> '[]', wait_s <> '[]',
                gpus_on_node > 1 OR configuration LIKE '%,%' ORDER BY seen.rowid DESC) AS of_gangs
    FROM observations AS seen
    JOIN shapes ON (observed_on, observed_in) = (gpus_on_node, configuration)
    JOIN evidence USING (fingerprint, distributed, size)
    WHERE evidence.layer = 'entity' AND evidence.place = seen.node_id || '/' || seen.gpu_type),
summed AS (
    SELECT *, row_number() OVER (PARTITION BY own ORDER BY "at" DESC, id DESC) AS newest,
        sum(weight) OVER (PARTITION BY own) AS there,
        sum(weight) OVER (PARTITION BY own ORDER BY "at", id ROWS UNBOUNDED PRECEDING) AS older
    FROM weighed)
DELETE FROM observations WHERE rowid IN (
    SELECT id FROM summed
    WHERE least(newest, latest, of_gangs) > $3
        AND there <= whole * 1.000001 AND greatest(whole - there, 0.0) + older <= $2 * whole)
"""
"""deletes from the oldest on, as long as what a row then lacks, with what it lacked before, is a small share.

The newest stay that refinements need, and as many of each row, so that a copy has enough evidence to answer.
Rows are left out whose observations weigh more than the row, as of an import by a clock that was ahead."""
_PAGE = "SELECT * FROM observations ORDER BY rowid LIMIT ? OFFSET ?"
_LOG_PAGE = "SELECT * FROM executions ORDER BY rowid LIMIT ? OFFSET ?"
_KNOWN = """
SELECT placement_id, node_id, seen_at FROM observations WHERE placement_id IN (SELECT unnest(?))
"""
_OBSERVED_AT = "SELECT fingerprint, max(seen_at) FROM evidence WHERE layer = 'type' GROUP BY fingerprint"
_LOGGED = "SELECT placement_id FROM executions WHERE placement_id IN (SELECT unnest(?))"

_IN_USE = "Another process has it open: stop that one, or set HOPYARD_STORE to another path"
_DAMAGED = (
    "It is damaged: `hopyard store rebuild --data DIR` rebuilds it from the log of facts and samples "
    "(`--instance` names that of another instance); or move it away to begin with an empty store"
)
_REMEDIES = (
    ("Could not set lock", _IN_USE),
    ("Conflicting lock", _IN_USE),
    ("No such file", "Create the folder, or set HOPYARD_STORE to another path"),
    ("No space left", "Make room on its disk: what could not be written is tried again"),
    ("Permission denied", "Let the service write there, or set HOPYARD_STORE to another path"),
    ("Read-only file system", "Make its disk writable: what could not be written is tried again"),
    ("Corrupt", _DAMAGED),
    ("corrupt", _DAMAGED),
    ("not a valid DuckDB database file", _DAMAGED),
    ("Could not read enough bytes", _DAMAGED),
)
"""by what DuckDB says; the first that fits counts"""
_OUTSIDE = (duckdb.OperationalError, duckdb.InternalError, duckdb.FatalException)
"""errors whose cause is outside: a disk, a lock, a damaged file"""
_GIVEN_UP = (duckdb.InternalError, duckdb.FatalException)
"""errors after which DuckDB refuses to do anything with the file until it is opened again"""


def remedy_of(reason: str) -> str:
    """What to do about what DuckDB says; empty: it is not known what is wrong."""
    return next((remedy for sign, remedy in _REMEDIES if sign in reason), "")
