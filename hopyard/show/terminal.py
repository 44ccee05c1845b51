"""What goes to the terminal and how: tables for people, JSON for programs.

Results go to stdout, everything said beside them to stderr.
"""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import msgspec
from rich.console import Console, RenderableType

from hopyard.failures import Failure
from hopyard.show.tables import result_table
from schemas.base import Message
from schemas.results import RunResult

if TYPE_CHECKING:
    from shared.domain.audit import Violation

PIPE_WIDTH = 240
"""columns when stdout is no terminal: tables are not folded for a reader that is a program"""


def console() -> Console:
    """For stdout, as it is at the moment."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else PIPE_WIDTH)


def show(message: Message, table: RenderableType, *, as_json: bool) -> None:
    """The message as JSON, or as the table made from it."""
    if as_json:
        show_json(message)
    else:
        console().print(table)


def show_result(result: RunResult, file: Path | None) -> None:
    show_or_write(result, result_table(result), file)


def show_or_write(message: Message, table: RenderableType, file: Path | None) -> None:
    """The table, and the JSON in `file`; for the file `-` the JSON takes the table's place."""
    if file is not None and str(file) == "-":
        show_json(message)
        return
    console().print(table)
    if file is not None:
        write_lines(file, [_pretty(message)])


def write_lines(file: Path, lines: Iterable[bytes]) -> None:
    """Raises Failure when it cannot be written."""
    try:
        with file.open("wb") as out:
            out.writelines(line + b"\n" for line in lines)
    except OSError as error:
        raise Failure(f"{file}: {error.strerror or error}") from None


def show_json(value: object) -> None:
    """One JSON document, indented; NaN does not occur in what we print."""
    sys.stdout.write(_pretty(value).decode() + "\n")


def _pretty(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2)


def show_line(value: object) -> None:
    """One JSON document on one line, for streams of them. Flushed, since somebody may be following."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
    sys.stdout.flush()


def say(text: str) -> None:
    """A line beside the result."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def complain_of(violations: Sequence["Violation"]) -> None:
    """Raises Failure when the audit of an event log found anything."""
    for found in violations:
        say(
            f"the event log breaks the rule {found.rule}: {found.detail} ({found.event_id}, {found.at:.1f} s)"
        )
    if violations:
        raise Failure(f"{len(violations)} violations")


def complain(error: object, code: int) -> NoReturn:
    say(f"hopyard: {error}")
    sys.exit(code)
