"""store export, store import."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from hopyard.api.ask import ask
from hopyard.commands.options import AsJson, folder_path, writable
from hopyard.failures import Failure, Invalid
from hopyard.show.tables import facts_table
from hopyard.show.terminal import show
from schemas.archive import VERSION, Entry, Header, ObservationLine, encoded, entry_of, header_of, lines_of
from schemas.base import Message
from schemas.instances import INSTANCES_MAX
from schemas.questions import ExportStore, Imported, ImportStore, StorePage
from shared.runtime.outputs import opened

TIMEOUT_S = 120.0
LINES_AT_ONCE = 10_000
LINES_ENTERED, BYTES_ENTERED = 5_000, 4 * 2**20

store = typer.Typer(help="Export, import or rebuild what the estimator has learnt.", no_args_is_help=True)


class Exported(Message, frozen=True, kw_only=True):
    file: str
    lines: int


@store.command("export")
def export(
    file: Annotated[
        Path, typer.Argument(dir_okay=False, metavar="FILE", callback=writable, help="File to write.")
    ],
    *,
    as_json: AsJson = False,
) -> None:
    """Write everything that a running estimator knows to a file, as JSON lines.

    Observations, time modules, refined loading, bandwidths, and the
    prediction log.

    $ hopyard store export lab.jsonl
    """
    lines = 0
    try:
        with opened(file) as out:
            out.write(encoded(Header(version=VERSION)) + b"\n")
            for page in _pages():
                out.writelines(line + b"\n" for line in page.lines)
                lines += len(page.lines)
    except OSError as error:
        raise Failure(f"{file}: {error.strerror or error}") from None
    done = Exported(file=str(file), lines=lines)
    show(done, facts_table({"file": done.file, "lines": str(lines)}), as_json=as_json)


@store.command("import")
def import_file(
    file: Annotated[
        Path,
        typer.Argument(exists=True, dir_okay=False, metavar="FILE", help="File that `store export` wrote."),
    ],
    *,
    as_json: AsJson = False,
) -> None:
    """Have a running estimator take in an exported file.

    Entries that it has are skipped, so a second import changes nothing. A file
    that is damaged anywhere is refused as a whole. Times stay those of the stack
    that wrote the file. If the clock of this one is behind the newest
    observation, all count as made so much earlier.

    $ hopyard store import lab.jsonl
    """
    times = (entry.seen.at for entry, _ in _entries(file) if isinstance(entry, ObservationLine))
    newest_at = max(times, default=None)
    entered = known = 0
    for lines in _parts(line for _, line in _entries(file)):
        taken = ask(ImportStore(lines=lines, newest_at=newest_at), Imported, TIMEOUT_S)
        if taken.wrong is not None:
            raise Invalid(f"{file}: the estimator refuses a line: {taken.wrong[1]}")
        entered, known = entered + taken.entered, known + taken.known
    total = Imported(entered=entered, known=known)
    show(total, facts_table({"entered": str(entered), "known before": str(known)}), as_json=as_json)


@store.command("rebuild")
def rebuild_file(
    *,
    data: Annotated[
        Path,
        typer.Option(
            "--data", metavar="DIR", parser=folder_path, help="Data folder of the stack, which must not run."
        ),
    ] = Path(".hopyard"),
    export: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", exists=True, dir_okay=False, help="Begin with this export."),
    ] = None,
    instance: Annotated[
        int,
        typer.Option(
            "--instance", min=1, max=INSTANCES_MAX, help="Instance of the estimator whose file is made."
        ),
    ] = 1,
    as_json: AsJson = False,
) -> None:
    """Rebuild the estimator's file from the log of facts and samples, if it is damaged or gone.

    Time modules, observations and the prediction log follow from the log.
    Bandwidths do not: `hopyard calibrate` measures them again. Facts that NATS
    no longer has are read from the archive. The old file is kept.

    $ hopyard store rebuild --data /var/lib/hopyard
    $ hopyard store rebuild --from lab.jsonl
    """
    from hopyard.actions.rebuild import rebuild  # noqa: PLC0415 - brings NATS and DuckDB
    from shared.runtime.settings import load_settings  # noqa: PLC0415 - brings YAML

    try:
        settings = load_settings(os.environ)
    except ValueError as error:
        raise Invalid(str(error)) from None
    archive = Path(settings.archive) if settings.archive else None
    done = rebuild(data, export, settings, instance, archive)
    facts = {"file": done.file, "facts": str(done.facts), "observations": str(done.observations)}
    facts |= {name: text for name, text in (("before", done.kept), ("lacks facts", done.lacks)) if text}
    show(done, facts_table(facts), as_json=as_json)


def _pages() -> Iterator[StorePage]:
    after: int | None = 0
    while after is not None:
        page = ask(ExportStore(after=after, limit=LINES_AT_ONCE), StorePage, TIMEOUT_S)
        yield page
        after = page.next


def _parts(lines: Iterable[bytes]) -> Iterator[tuple[bytes, ...]]:
    """Parts that the estimator takes in quickly, since it estimates nothing meanwhile."""
    part: list[bytes] = []
    size = 0
    for line in lines:
        part.append(line)
        size += len(line)
        if len(part) == LINES_ENTERED or size >= BYTES_ENTERED:
            yield tuple(part)
            part, size = [], 0
    if part:
        yield tuple(part)


def _entries(file: Path) -> Iterator[tuple[Entry, bytes]]:
    """The entries, each checked, and their lines. Raises Invalid, with the line."""
    with file.open("rb") as opened_file:
        lines = lines_of(opened_file)
        try:
            header_of(next(lines, b""))
        except ValueError as error:
            raise Invalid(f"{file}:1: {error}") from None
        for number, line in enumerate(lines, start=2):
            try:
                entry = entry_of(line)
            except ValueError as error:
                raise Invalid(f"{file}:{number}: {error}") from None
            yield entry, line.rstrip(b"\n")


def register(app: typer.Typer) -> None:
    app.add_typer(store, name="store")
