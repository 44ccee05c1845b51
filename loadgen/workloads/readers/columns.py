"""Any CSV file with a header: the user says which column is what. Lines that begin with # are left out."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import chain

from loadgen.workloads.readers.rows import Cells, TraceJob, table
from schemas.scenarios import TraceColumns

UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
"""seconds of each unit"""
DELIMITERS = ",;\t"


def read(lines: Iterable[str], path: str, columns: TraceColumns) -> Iterator[TraceJob]:
    """Raises MalformedRow."""
    submit, submit_unit = _measured(columns.submit)
    seconds, seconds_unit = _measured(columns.seconds) if columns.seconds else (None, 1.0)
    needed = [name for name in (submit, columns.gpus, seconds, columns.model, columns.user) if name]
    kept = ("\n" if line.startswith("#") else line for line in lines)
    first = list(_to_header(kept))
    kind = ""
    for row in table(chain(first, kept), path, needed, max(DELIMITERS, key="".join(first).count)):
        found, arrival_s, clock_ahead_s = _time_s(row, submit, submit_unit)
        kind = kind or found
        if found != kind:
            raise row.refusal(f"{submit} is {found} where the rows before have {kind}", submit)
        yield TraceJob(
            line=row.line,
            arrival_s=arrival_s,
            clock_ahead_s=clock_ahead_s,
            gpus=row.count(columns.gpus),
            duration_s=row.positive(seconds) * seconds_unit if seconds else None,
            model=row.given(columns.model),
            user=row.name(columns.user),
        )


def _measured(text: str) -> tuple[str, float]:
    """`COLUMN` or `COLUMN:UNIT`, the unit in seconds. A column may itself have a colon in its name."""
    column, _, unit = text.rpartition(":")
    return (column, UNITS[unit]) if column and unit in UNITS else (text, 1.0)


def _to_header(lines: Iterable[str]) -> Iterator[str]:
    """Blank lines, and the line after them."""
    for line in lines:
        yield line
        if line.strip():
            return


def _time_s(row: Cells, column: str, unit: float) -> tuple[str, float, float]:
    """The kind of time, of which a trace may have one; seconds; and what to add for the clock of its zone."""
    text = row.text(column)
    if _is_number(text):
        return "a number", row.number(column) * unit, 0.0
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise row.refusal(f"{column} is neither a number nor a date: {text[:40]}", column) from None
    if at.tzinfo is None:
        return "a date without a zone", at.replace(tzinfo=UTC).timestamp(), 0.0
    return "a date with a zone", at.timestamp(), (at.utcoffset() or timedelta()).total_seconds()


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
