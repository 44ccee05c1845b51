"""Output to the terminal: tables for people, JSON for programs.

Results go to stdout, everything else to stderr.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from hopyard.failures import KINDS, Failure
from hopyard.show.tables import result_table
from hopyard.show.times import Times, dated
from hopyard.show.units import in_a_line, legible, plural
from schemas.base import Message
from schemas.results import CutJob, RunResult
from shared.domain.controls import escaped
from shared.runtime.outputs import opened

if TYPE_CHECKING:
    from shared.domain.audit import Violation

NAMED = 5
"""jobs that are named where each has its own reason; more are only counted"""
PIPE_WIDTH = 100_000
"""columns when stdout is no terminal: nothing is folded or cut for a reader that is a program"""


class _Console(Console):
    """Shows texts as they are: markup in them is not interpreted, and they do not control the terminal."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=legible(segment.text))


def console(*, stderr: bool = False) -> Console:
    """A console for stdout, or stderr, as it is at the moment."""
    width = None if (sys.stderr if stderr else sys.stdout).isatty() else PIPE_WIDTH
    return _Console(stderr=stderr, highlight=False, markup=False, emoji=False, width=width)


def put(table: RenderableType) -> None:
    """Print a table on stdout; if that is no terminal, lines have no padding at their end."""
    out = console()
    whole = isinstance(table, Text) and table.no_wrap  # which rich itself forgets
    fold: dict[str, Any] = {"no_wrap": True, "overflow": "ignore"} if whole else {}
    if sys.stdout.isatty():
        out.print(table, crop=False, **fold)
        return
    with out.capture() as captured:
        out.print(table, crop=False, **fold)
    sys.stdout.writelines(f"{line.rstrip()}\n" for line in captured.get().removesuffix("\n").split("\n"))


def put_line(text: str) -> None:
    """Print a line of text on stdout, neither folded nor cut; flush, since a reader may wait for it."""
    sys.stdout.write(legible(text) + "\n")
    sys.stdout.flush()


def show(
    message: object,
    table: RenderableType,
    *,
    as_json: bool,
    out: Path | None = None,
    times: Times | None = None,
) -> None:
    """Print the message as JSON, or as the table made from it; also write its JSON to the file `out`.

    With `times` the JSON has dates, and a line on stderr says how to read the times of the table.
    """
    answer = message if times is None else dated(message, times)
    try:
        if out is not None:
            write_lines(out, [_pretty(answer)])
    finally:  # a file that cannot be written does not cost the result
        _print(answer, table, as_json=as_json, note="" if times is None else times.note())


def _print(answer: object, table: RenderableType, *, as_json: bool, note: str) -> None:
    if as_json:
        show_json(answer)
        return
    put(table)
    if note:
        say(note)


def show_result(result: RunResult, *, as_json: bool, out: Path | None) -> None:
    show(result, result_table(result), as_json=as_json, out=out)
    say_who_is_cut(result.cut)
    _say_notes(result)


def _say_notes(result: RunResult) -> None:
    for note in result.notes[:NAMED]:
        say(f"{note.plans} of {result.plans.plans} plans: {in_a_line(note.text)}")
    if others := result.notes[NAMED:]:
        say(f"{sum(note.plans for note in others)} plans: {len(others)} other notes, in the JSON result")


def say_who_is_cut(jobs: Sequence[CutJob]) -> None:
    if jobs:
        some = ", ".join(f"{job.name} ({job.traced_gpus} → {job.gpus})" for job in jobs[:NAMED])
        more = " …" if len(jobs) > NAMED else ""
        say(f"{plural(len(jobs), 'job')} with fewer GPUs than the trace says: {some}{more}")


def write_lines(file: Path, lines: Iterable[bytes]) -> None:
    """Raises Failure when the file cannot be written."""
    try:
        with opened(file) as out:
            out.writelines(line + b"\n" for line in lines)
    except OSError as error:
        raise Failure(f"{file}: {error.strerror or error}") from None


def show_json(value: object) -> None:
    """Print one JSON document, indented."""
    sys.stdout.write(_escaped(_pretty(value)) + "\n")


def _pretty(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2)


def _escaped(document: bytes) -> str:
    """The same JSON, its characters that control a terminal as escapes; below 0x20 msgspec wrote them so."""
    return escaped(document.decode())


def show_ids(ids: Iterable[str]) -> None:
    """Print one id a line, and nothing else."""
    sys.stdout.writelines(f"{each}\n" for each in ids)


def show_line(value: object) -> None:
    """Print one JSON document on one line, as part of a stream; flush, since a reader may wait for it."""
    sys.stdout.write(_escaped(msgspec.json.encode(value)) + "\n")
    sys.stdout.flush()


def say(text: str) -> None:
    """Print a line on stderr, beside the result."""
    sys.stderr.write(legible(text) + "\n")
    sys.stderr.flush()


def complain_of(violations: Sequence["Violation"]) -> None:
    """Print what the audit of an event log found. Raises Failure if it found anything."""
    for found in violations:
        say(
            f"the event log breaks the rule {found.rule}: {found.detail} ({found.event_id}, {found.at:.1f} s)"
        )
    if violations:
        raise Failure(plural(len(violations), "violation"))


class Complaint(Message, frozen=True, kw_only=True, omit_defaults=True):
    """Why a command failed, for programs."""

    message: str
    kind: str
    code: int
    """exit code of the command"""
    file: str | None = None
    line: int | None = None
    field: str | None = None
    """a path such as `$.gpus[1]`"""


def complain(error: object, code: int, *, as_json: bool) -> NoReturn:
    """Print the last line on stderr, a text or an object with one member `error`, and exit."""
    if as_json:
        say(_escaped(msgspec.json.encode({"error": complaint(error, code)})))
    else:
        say(f"hopyard: {error}")
    sys.exit(code)


def complaint(error: object, code: int) -> Complaint:
    """The error as a message, with the file, line and field if the error has them."""
    return Complaint(
        message=str(error),
        kind=KINDS.get(code, "refused"),
        code=code,
        file=getattr(error, "path", None),
        line=getattr(error, "line", None),
        field=getattr(error, "field", None),
    )
