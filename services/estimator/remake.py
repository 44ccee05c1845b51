"""A store made anew, without a service around it."""

from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from schemas.archive import header_of
from schemas.questions import ImportStore
from services.estimator.store.archive import enter
from services.estimator.store.duckdb_store import DuckDbStore

LINES_AT_ONCE = 10_000


def from_export(path: Path, export: Iterable[bytes], half_life_s: float) -> int:
    """Make the file out of an export's lines, the header first; how many there were.

    Raises ValueError with the line that is none, StoreUnavailable.
    """
    lines = iter(export)
    header_of(next(lines, b""))
    store, entered = DuckDbStore(str(path), half_life_s), 0
    try:
        while page := tuple(islice(lines, LINES_AT_ONCE)):
            taken = enter(store, ImportStore(lines=page))
            if taken.wrong is not None:
                raise ValueError(f"line {entered + taken.wrong[0] + 2}: {taken.wrong[1]}")
            entered += len(page)
    finally:
        store.close()
    return entered
