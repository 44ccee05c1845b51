"""Shared by all readers: the raw job, the error of a row, and cells that must be numbers."""

import csv
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from shared.domain.launch import CONTROL
from shared.runtime.files import InvalidFile


class MalformedRow(InvalidFile):
    """A row of a trace that cannot be a job."""

    def __init__(self, path: str, line: int, reason: str, column: str | None = None) -> None:
        super().__init__(path, line, None, reason)
        self.field = column


class TraceJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job as a trace describes it; None where the trace says nothing."""

    line: int
    arrival_s: float
    """seconds since an instant that all jobs of the trace share"""
    clock_ahead_s: float = 0.0
    """what to add for the trace's own clock, whose days begin at multiples of a day"""
    gpus: int
    duration_s: float | None = None
    samples: float | None = None
    model: str | None = None
    """the model, by the trace's name"""
    user: str = ""


class Cells:
    """One row: cells by column, each checked as it is taken. Every fault raises MalformedRow."""

    def __init__(self, path: str, line: int, cells: dict[str, str]) -> None:
        self._path = path
        self.line = line
        self._cells = cells

    def has(self, column: str) -> bool:
        return column in self._cells

    def given(self, column: str | None) -> str | None:
        """The cell; None if there is no such column, or it is empty."""
        return self._cells[column].strip() or None if column else None

    def name(self, column: str | None) -> str:
        """The cell as the name of somebody, which is shown to all; empty where none is given."""
        text = self.given(column) or ""
        if CONTROL.search(text):
            raise self.refusal(f"{column} has control characters", column)
        return text

    def text(self, column: str) -> str:
        value = self._cells[column].strip()
        if not value:
            raise self.refusal(f"{column} is empty", column)
        return value

    def number(self, column: str, least: float = 0.0) -> float:
        text = self.text(column)
        try:
            value = float(text)
        except ValueError:
            raise self.refusal(f"{column} is not a number: {text[:40]}", column) from None
        if not math.isfinite(value) or value < least:
            raise self.refusal(f"{column} must be at least {least:g} and finite, not {text[:40]}", column)
        return value

    def positive(self, column: str) -> float:
        value = self.number(column)
        if value == 0.0:
            raise self.refusal(f"{column} must be above 0", column)
        return value

    def count(self, column: str) -> int:
        value = self.number(column, least=1.0)
        if not value.is_integer():
            raise self.refusal(f"{column} must be a whole number, not {value:g}", column)
        return int(value)

    def refusal(self, reason: str, column: str | None = None) -> MalformedRow:
        return MalformedRow(self._path, self.line, reason, column)


def table(lines: Iterable[str], path: str, header: Sequence[str], delimiter: str = ",") -> Iterator[Cells]:
    """Rows of a CSV file whose header has these columns at least, none twice. Blank lines are skipped."""
    rows = _rows(lines, path, delimiter)
    line, names = next(((line, row) for line, row in rows if row), (1, []))
    columns = [name.strip() for name in names]
    twice = [name for name, times in Counter(columns).items() if name and times > 1]
    if twice:
        raise MalformedRow(path, line, f"the header has {twice[0][:40]} twice", twice[0])
    missing = [name for name in header if name not in columns]
    if missing:
        said = f"the header lacks {', '.join(missing)}; it has {', '.join(columns)[:200] or 'nothing'}"
        raise MalformedRow(path, line, said, missing[0])
    for line, row in rows:
        if not any(cell.strip() for cell in row):
            continue
        if len(row) != len(columns):
            raise MalformedRow(path, line, f"{len(row)} columns where the header has {len(columns)}")
        yield Cells(path, line, dict(zip(columns, row, strict=True)))


def _rows(lines: Iterable[str], path: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Rows, each with the line where it begins. A quote that is not closed is refused: it hides rows."""
    ended = False

    def to_the_end() -> Iterator[str]:
        nonlocal ended
        yield from lines
        ended = True

    reader = csv.reader(to_the_end(), delimiter=delimiter)
    while True:
        begins = reader.line_num + 1
        try:
            row = next(reader, None)
        except csv.Error as error:
            quote = ", perhaps since a quote is not closed" if reader.line_num > begins else ""
            raise MalformedRow(path, begins, f"is not CSV: {error}{quote}") from None
        if row is None:
            return
        if ended:
            raise MalformedRow(path, begins, "a quote is not closed")
        yield begins, row
