"""Writes and reads the archive's Parquet files.

A file gets its name only after it is complete and was read back.

| column    | holds                                                                    |
|-----------|--------------------------------------------------------------------------|
| seq       | the message's sequence in its stream                                     |
| stored_at | the time at which NATS stored it, UTC                                    |
| subject   | the subject under which it was published                                 |
| id        | its message id; empty: it was published without one                      |
| message   | its content as JSON; NULL if it cannot be decoded                        |
| raw       | its bytes as stored                                                      |
"""

import hashlib
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

import duckdb
import msgspec

from schemas.codec import Malformed, plain
from services.monitor.archive.plan import Segment, segment_of
from shared.runtime import owner_only
from shared.runtime.disk import sync
from shared.runtime.interruption import interruptible

DRAFT = ".draft-"
COLUMNS = {
    "seq": "BIGINT",
    "stored_at": "BIGINT",
    "subject": "VARCHAR",
    "id": "VARCHAR",
    "message": "VARCHAR",
    "raw": "BLOB",
}
DIGEST = "hopyard-digest"
DIGEST_BYTES = 16


class Row(NamedTuple):
    seq: int
    stored_us: int
    """Unix time in microseconds"""
    subject: str
    id: str
    raw: bytes


class UnreadableFile(OSError):
    """A file of the archive that is damaged; the text says which, and how."""


def names_in(folder: Path) -> list[str]:
    """Names of the finished files; none if there is no such folder yet. Raises OSError."""
    try:
        return [path.name for path in folder.iterdir() if segment_of(path.name) is not None]
    except FileNotFoundError:
        return []


def make_folder(folder: Path) -> None:
    """Make the folder and its parents; they are synced to the disk when this returns. Raises OSError."""
    new = [each for each in (folder, *folder.parents) if not each.exists()]
    owner_only.make_folder(folder)
    for each in new:
        sync(each.parent)


def remove_drafts(folder: Path) -> None:
    """Remove the unfinished files of a process that was ended while it wrote.

    Only the writer may call this.
    """
    for path in folder.glob(f"{DRAFT}*"):
        path.unlink(missing_ok=True)


def write(folder: Path, segment: Segment, rows: Sequence[Row]) -> None:
    """Write a file atomically; it is on the disk when this returns. Raises OSError."""
    draft = folder / f"{DRAFT}{segment.name}.{secrets.token_hex(4)}"
    try:
        _copy(draft, rows)
        _check(draft, rows)
        draft.chmod(owner_only.FILE)
        sync(draft)
        draft.replace(folder / segment.name)
        sync(folder)
    except duckdb.Error as error:
        raise OSError(f"{folder / segment.name} cannot be written: {_first_line(error)}") from None
    finally:
        draft.unlink(missing_ok=True)


def read(folder: Path, segment: Segment) -> list[Row]:
    """Read a whole file. Raises UnreadableFile."""
    path = folder / segment.name
    try:
        rows, digest = _rows(path)
    except (duckdb.Error, OSError, UnicodeDecodeError) as error:
        raise UnreadableFile(f"{path}: {_first_line(error)}") from None
    if digest != digest_of(rows):
        raise UnreadableFile(f"{path}: its content does not match its digest")
    return rows


def digest_of(rows: Iterable[Row]) -> str:
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for row in rows:
        sizes = len(row.subject), len(row.id), len(row.raw)
        digest.update(f"{row.seq} {row.stored_us} {sizes} {row.subject} {row.id} ".encode())
        digest.update(row.raw)
    return digest.hexdigest()


def _copy(draft: Path, rows: Sequence[Row]) -> None:
    columns = [
        *([row[place] for row in rows] for place in range(4)),
        [_as_json(row.raw) for row in rows],
        [row.raw for row in rows],
    ]
    lists = ", ".join(f'unnest(?::{kind}[]) AS "{name}"' for name, kind in COLUMNS.items())
    shown = ", ".join(
        "make_timestamp(stored_at) AS stored_at" if name == "stored_at" else f'"{name}"' for name in COLUMNS
    )
    how = f"FORMAT parquet, COMPRESSION zstd, KV_METADATA {{'{DIGEST}': '{digest_of(rows)}'}}"
    with _database() as table:
        selected = f"SELECT {shown} FROM (SELECT {lists})"  # noqa: S608 - names of our own
        table.execute(f"COPY ({selected}) TO '{_quoted(draft)}' ({how})", columns)


def _check(draft: Path, rows: Sequence[Row]) -> None:
    found, digest = _rows(draft)
    if digest != digest_of(rows) or digest_of(found) != digest:
        raise OSError(f"{draft.parent}: what was read back differs from what was written")


def _rows(path: Path) -> tuple[list[Row], str]:
    with _database() as table:
        wanted = "seq, epoch_us(stored_at), subject, id, raw"
        found = table.execute(
            f"SELECT {wanted} FROM read_parquet('{_quoted(path)}') ORDER BY seq"  # noqa: S608 - and a path
        ).fetchall()
        noted = table.execute(
            f"SELECT value FROM parquet_kv_metadata('{_quoted(path)}') WHERE decode(key) = '{DIGEST}'"  # noqa: S608
        ).fetchone()
    return [Row(*row) for row in found], bytes(noted[0]).decode() if noted else ""


@contextmanager
def _database() -> Iterator[duckdb.DuckDBPyConnection]:
    try:
        with interruptible(), _in_memory().cursor() as table:
            yield table
    except duckdb.Error:
        _in_memory.cache_clear()  # after some errors DuckDB's connection answers no further query
        raise


@cache
def _in_memory() -> duckdb.DuckDBPyConnection:
    """One database for all calls: opening one takes longer than reading a file.

    One thread: nothing here is urgent.
    """
    return duckdb.connect(config={"threads": 1, "enable_external_file_cache": False})


def _as_json(raw: bytes) -> str | None:
    try:
        return msgspec.json.encode(plain(raw)).decode()
    except (Malformed, TypeError, ValueError, RecursionError):
        return None


def _quoted(path: Path) -> str:
    return str(path.absolute()).replace("'", "''")


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
