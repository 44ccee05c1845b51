"""Lists, one row a line, in columns that fit the terminal: some columns are left out or cut, ids never."""

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

import msgspec
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.text import Text

from hopyard.show.units import on_one_line

GAP = "  "
T = TypeVar("T")
Shown = str | Text | tuple[str, ...]
"""a cell; of a tuple's parts a narrow column shows the first ones, and counts the others"""


class Column(msgspec.Struct, Generic[T], frozen=True):
    head: str
    cell: Callable[[T], Shown]
    right: bool = False
    spare: int = 0
    """the column with the highest number is left out first; 0: it never is"""
    cut: int = 0
    """smallest width to which the column may be cut; 0: it may not be cut"""
    parts: str = "more"
    """what the parts of a cell are called where only their number has room"""


class Listing(Generic[T]):
    """A header, and a line for each row. Lines may exceed the terminal: some columns are never left out."""

    def __init__(self, columns: Sequence[Column[T]], rows: Sequence[T], *, whole: bool = False) -> None:
        self._columns = columns
        self._cells = [[column.cell(row) for row in rows] for column in columns]
        self._whole = whole
        """all columns in full width"""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        yield from self.lines(options.max_width)

    def lines(self, width: int) -> Iterator[Text]:
        shown = self._shown(width)
        heads = (Text(self._columns[index].head, "bold") for index, _ in shown)
        yield self._line(heads, shown)
        for row in range(len(self._cells[0])):
            yield self._line((self._text(index, row, wide) for index, wide in shown), shown)

    def _text(self, index: int, row: int, wide: int) -> Text:
        return _text(self._cells[index][row], wide, self._columns[index].parts)

    def _line(self, cells: Iterator[Text], shown: Sequence[tuple[int, int]]) -> Text:
        line = Text(no_wrap=True, overflow="ignore")
        for cell, (index, wide) in zip(cells, shown, strict=True):
            padding = " " * max(wide - cell.cell_len, 0)
            before, after = (padding, "") if self._columns[index].right else ("", padding)
            line.append(before).append_text(cell).append(after + GAP)
        line.rstrip()
        return line

    def _shown(self, width: int) -> list[tuple[int, int]]:
        """The columns that fit, with their widths."""
        wanted = {index: self._natural(index) for index in range(len(self._columns))}
        if self._whole:
            return list(wanted.items())
        wanted = {index: wide for index, wide in wanted.items() if self._is_filled(index)}
        while self._total({index: self._least(index, wide) for index, wide in wanted.items()}) > width:
            dropped = max(wanted, key=lambda index: self._columns[index].spare)
            if not self._columns[dropped].spare:
                break
            del wanted[dropped]
        over = self._total(wanted) - width
        for index, wide in wanted.items():
            if over > 0 and self._columns[index].cut:
                wanted[index] = max(wide - over, self._least(index, wide))
                over -= wide - wanted[index]
        return list(wanted.items())

    def _natural(self, index: int) -> int:
        cells = (_text(cell).cell_len for cell in self._cells[index])
        return max(cell_len(self._columns[index].head), *cells, 0)

    def _least(self, index: int, wide: int) -> int:
        return min(wide, self._columns[index].cut or wide)

    def _is_filled(self, index: int) -> bool:
        """Whether a column is worth showing: it has a cell with text, or may never be left out."""
        return not self._columns[index].spare or any(self._cells[index])

    @staticmethod
    def _total(widths: dict[int, int]) -> int:
        return sum(widths.values()) + len(GAP) * (len(widths) - 1)


def _text(cell: Shown, wide: int | None = None, parts: str = "") -> Text:
    """A cell as plain text on one line: markup in it is not interpreted."""
    if isinstance(cell, Text):
        return cell
    if isinstance(cell, str) or len(cell) == 1:
        text = Text(on_one_line("".join(cell)))
        if wide is not None:
            text.truncate(wide, overflow="ellipsis")
        return text
    return Text(_as_many(cell, wide) or (f"{len(cell)} {parts}" if cell else ""))


def _as_many(parts: tuple[str, ...], wide: int | None) -> str:
    """As many whole parts as fit, and the number of the others."""
    if wide is None or cell_len(" ".join(parts)) <= wide:
        return " ".join(parts)
    texts = (" ".join([*parts[:count], f"+{len(parts) - count}"]) for count in range(len(parts) - 1, 0, -1))
    return next((text for text in texts if cell_len(text) <= wide), "")
