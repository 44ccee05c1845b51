"""Reads an archive page by page, and says which messages it lacks."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from schemas.questions import (
    ArchivedFile,
    ArchivedMessage,
    ArchiveFiles,
    ArchiveKind,
    ArchivePage,
    ArchivePart,
    CopyArchive,
    ReadArchive,
)
from services.monitor.archive import files
from services.monitor.archive.files import Row, UnreadableFile
from services.monitor.archive.plan import Coverage, Stretch, coverage, lacking, stretch_of
from shared.runtime.bus.contract import Stored

PAGE_BYTES = 4 * 1024 * 1024
PAGE_MESSAGES = 2_000
FILES_AT_ONCE = 20
"""looked through for one page"""
PART_BYTES = 8 * 1024 * 1024


class ArchiveReader:
    """Reads the archive of one folder, one file at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._open: tuple[Stretch | None, list[Row]] = None, []

    def coverage(self, kind: ArchiveKind) -> Coverage:
        """Raises OSError."""
        return coverage(files.names_in(self.folder), kind)

    def rows(self, stretch: Stretch) -> list[Row]:
        """Raises UnreadableFile."""
        if self._open[0] != stretch:
            self._open = stretch, files.read(self.folder, stretch)
        return self._open[1]

    def page(self, question: ReadArchive) -> ArchivePage:
        """Raises OSError."""
        there = self.coverage(question.kind)
        if question.seqs:
            return self._of_seqs(there, question)
        page = _Page(there, question.after, _of_node(question.node))
        for stretch in [one for one in there.files if one.last > question.after][:FILES_AT_ONCE]:
            if not page.take(stretch, self.rows):
                break
        return page.made()

    def _of_seqs(self, there: Coverage, question: ReadArchive) -> ArchivePage:
        wanted = set(question.seqs)
        page = _Page(there, 0, lambda row: row.seq in wanted)
        page.lacks += [gap for gap in there.gaps if not wanted.isdisjoint(gap)]
        for stretch in there.files:
            if any(stretch.first <= seq <= stretch.last for seq in wanted):
                page.upto = max(page.upto, stretch.first - 1)
                if not page.take(stretch, self.rows):
                    return page.made()
        page.upto = max(wanted)
        return page.made()

    def put(self, stretch: Stretch, messages: Sequence[Stored]) -> None:
        """Raises OSError; then nothing is there."""
        files.make_folder(self.folder)
        files.remove_drafts(self.folder)
        files.write(self.folder, stretch, [_row(one) for one in messages])

    def listed(self) -> ArchiveFiles:
        """Raises OSError."""
        found = [
            ArchivedFile(
                name=one.name,
                kind=one.kind,
                first=one.first,
                last=one.last,
                bytes=(self.folder / one.name).stat().st_size,
            )
            for kind in ArchiveKind
            for one in self.coverage(kind).files
        ]
        return ArchiveFiles(files=tuple(found), folder=str(self.folder))

    def part(self, question: CopyArchive) -> ArchivePart:
        """Raises OSError; ValueError for a name that no file of an archive has."""
        if stretch_of(question.name) is None:
            raise ValueError(f"{question.name!r} is no file of an archive")
        with (self.folder / question.name).open("rb") as file:
            file.seek(question.offset)
            return ArchivePart(data=file.read(PART_BYTES))


def _row(one: Stored) -> Row:
    return Row(one.seq, round(one.at * 1e6), one.subject, one.id, one.data)


def before(
    folder: Path, kind: ArchiveKind, first: int
) -> tuple[Iterator[tuple[str, bytes]], tuple[range, ...]]:
    """Messages, with subjects, that the stream, which begins at `first`, has dropped, and what is lacking.

    Raises OSError; the iterator, UnreadableFile.
    """
    there = coverage(files.names_in(folder), kind)
    stretches = [range(one.first, one.last + 1) for one in there.files]
    return _messages(folder, there.files, first), tuple(lacking(stretches, 1, first - 1))


def _messages(folder: Path, stretches: Iterable[Stretch], first: int) -> Iterator[tuple[str, bytes]]:
    """Each below `first` once, also where files have it twice; a file at a time is in memory."""
    reached = 0
    for stretch in stretches:
        if stretch.first >= first:
            return
        for row in files.read(folder, stretch):
            if reached < row.seq < first:
                yield row.subject, row.raw
                reached = row.seq


class _Page:
    """A page that is filled file by file, in order."""

    def __init__(self, there: Coverage, after: int, wanted: Callable[[Row], bool]) -> None:
        self.upto = after
        self._there = there
        self._wanted = wanted
        self._rows: list[Row] = []
        self.lacks: list[range] = []
        self._damage = ""

    def take(self, stretch: Stretch, rows_of: Callable[[Stretch], list[Row]]) -> bool:
        """Whether there is room for more."""
        if self.upto + 1 < stretch.first and self.upto >= self._there.begins:
            self.lacks.append(range(self.upto + 1, stretch.first))
        first = max(stretch.first, self.upto + 1)
        try:
            all_of_it = rows_of(stretch)
        except UnreadableFile as error:
            self._damage = self._damage or str(error)
            self.lacks.append(range(first, stretch.last + 1))
            self.upto = stretch.last
            return True
        rows = [row for row in all_of_it if row.seq >= first]
        self.lacks += lacking([range(row.seq, row.seq + 1) for row in rows], first, stretch.last)
        found = [row for row in rows if self._wanted(row)]
        fitting = _fitting(found, PAGE_BYTES - sum(len(row.raw) for row in self._rows))
        self._rows += fitting
        whole = len(fitting) == len(found)
        self.upto = stretch.last if whole else fitting[-1].seq if fitting else self.upto
        return whole and len(self._rows) < PAGE_MESSAGES

    def made(self) -> ArchivePage:
        lacks = [one for one in self.lacks if one.start <= self.upto]
        return ArchivePage(
            messages=tuple(
                ArchivedMessage(seq=row.seq, subject=row.subject, data=row.raw) for row in self._rows
            ),
            upto=self.upto,
            begins=self._there.begins,
            lacks=tuple((one.start, min(one[-1], self.upto)) for one in lacks),
            damage=self._damage,
        )


def _fitting(rows: Iterable[Row], room: int) -> list[Row]:
    """As many rows as there is room for, at least one."""
    fitting: list[Row] = []
    for row in rows:
        room -= len(row.raw)
        if (fitting and room < 0) or len(fitting) == PAGE_MESSAGES:
            break
        fitting.append(row)
    return fitting


def _of_node(node: str) -> Callable[[Row], bool]:
    return (lambda row: row.subject.split(".")[2:3] == [node]) if node else (lambda _: True)
