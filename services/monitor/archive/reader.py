"""Reads an archive page by page, and says which messages it lacks."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf
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
from services.monitor.archive.plan import Coverage, Segment, coverage, lacking, segment_of
from shared.runtime.bus.contract import Stored

PAGE_BYTES = 4 * 1024 * 1024
PAGE_MESSAGES = 2_000
FILES_AT_ONCE = 20
"""files that are searched for one page"""
NODE_PAGE_REAL_S = 0.2
"""time after which a page for a node ends with the file in hand: an agent waits two seconds for an answer"""
KEPT_BYTES = 32 * 1024 * 1024
"""bytes of pages for nodes that are kept for those who ask again"""
KEPT_MESSAGE_BYTES = 512
"""bytes that a message takes beside its data, and a page beside its messages"""
PART_BYTES = 8 * 1024 * 1024


class ArchiveReader:
    """The archive in one folder; the file that was read last stays in memory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._open: tuple[Segment | None, list[Row]] = None, []
        self._for_nodes: dict[str, tuple[ReadArchive, ArchivePage]] = {}
        """by node: its last question, and the page with which it can go on"""

    def coverage(self, kind: ArchiveKind) -> Coverage:
        """Raises OSError."""
        return coverage(files.names_in(self.folder), kind)

    def rows(self, segment: Segment) -> list[Row]:
        """Raises UnreadableFile."""
        if self._open[0] != segment:
            self._open = segment, files.read(self.folder, segment)
        return self._open[1]

    def page(self, question: ReadArchive) -> ArchivePage:
        """Raises OSError."""
        if question.seqs:
            return self._of_seqs(self.coverage(question.kind), question)
        return self._of_node(question) if question.node else self._read(question)

    def _of_node(self, question: ReadArchive) -> ArchivePage:
        """A page for an agent, which asks every few tenths of a second, and gives up and asks anew.

        What was read too late answers it then. Otherwise the reader would read for nobody, ever more of it,
        as soon as all agents that are behind have to wait longer for their pages than they do.
        """
        asked, known = self._for_nodes.get(question.node, (None, None))
        if known is not None and asked == question:
            return known
        self._for_nodes.pop(question.node, None)
        page = self._read(question, NODE_PAGE_REAL_S)
        if page.upto > question.after and not page.lacks:
            self._for_nodes[question.node] = question, page
            while len(self._for_nodes) > 1 and sum(map(_size, self._for_nodes.values())) > KEPT_BYTES:
                del self._for_nodes[next(iter(self._for_nodes))]
        return page

    def _read(self, question: ReadArchive, limit_real_s: float = inf) -> ArchivePage:
        began, there = time.monotonic(), self.coverage(question.kind)
        page = _Page(there, question.after, _is_of(question.node))
        for segment in [one for one in there.files if one.last > question.after][:FILES_AT_ONCE]:
            if not page.take(segment, self.rows) or time.monotonic() - began > limit_real_s:
                break
        return page.result()

    def _of_seqs(self, there: Coverage, question: ReadArchive) -> ArchivePage:
        wanted = set(question.seqs)
        page = _Page(there, 0, lambda row: row.seq in wanted)
        page.lacks += [gap for gap in there.gaps if not wanted.isdisjoint(gap)]
        for segment in there.files:
            if any(segment.first <= seq <= segment.last for seq in wanted):
                page.upto = max(page.upto, segment.first - 1)
                if not page.take(segment, self.rows):
                    return page.result()
        page.upto = max(wanted)
        return page.result()

    def write(self, segment: Segment, messages: Sequence[Stored]) -> None:
        """Store messages as the file of a segment. Raises OSError; then there is no such file."""
        files.make_folder(self.folder)
        files.remove_drafts(self.folder)
        files.write(self.folder, segment, [_row(one) for one in messages])

    def list_files(self) -> ArchiveFiles:
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

    def read_part(self, question: CopyArchive) -> ArchivePart:
        """Raises OSError; ValueError for a name that no file of an archive has."""
        if segment_of(question.name) is None:
            raise ValueError(f"{question.name!r} is not a file of an archive")
        with (self.folder / question.name).open("rb") as file:
            file.seek(question.offset)
            return ArchivePart(data=file.read(PART_BYTES))


def _row(one: Stored) -> Row:
    return Row(one.seq, round(one.at * 1e6), one.subject, one.id, one.data)


def messages_before(
    folder: Path, kind: ArchiveKind, first: int
) -> tuple[Iterator[tuple[str, bytes]], tuple[range, ...]]:
    """The messages before `first`, as (subject, raw), and the ranges of them that the archive lacks.

    `first`: where the stream begins. Raises OSError. The iterator raises UnreadableFile.
    """
    there = coverage(files.names_in(folder), kind)
    segments = [range(one.first, one.last + 1) for one in there.files]
    return _messages(folder, there.files, first), tuple(lacking(segments, 1, first - 1))


def _messages(folder: Path, segments: Iterable[Segment], first: int) -> Iterator[tuple[str, bytes]]:
    """Each message before `first` once, even if two files have it. One file is in memory at a time."""
    reached = 0
    for segment in segments:
        if segment.first >= first:
            return
        for row in files.read(folder, segment):
            if reached < row.seq < first:
                yield row.subject, row.raw
                reached = row.seq


class _Page:
    """The answer to one `ReadArchive`, filled file by file in the order of their segments."""

    def __init__(self, there: Coverage, after: int, wanted: Callable[[Row], bool]) -> None:
        self.upto = after
        self._there = there
        self._wanted = wanted
        self._rows: list[Row] = []
        self.lacks: list[range] = []
        self._damage = ""

    def take(self, segment: Segment, rows_of: Callable[[Segment], list[Row]]) -> bool:
        """Add the wanted messages of a file; whether the page has room for more."""
        if self.upto + 1 < segment.first and self.upto >= self._there.begins:
            self.lacks.append(range(self.upto + 1, segment.first))
        first = max(segment.first, self.upto + 1)
        try:
            all_of_it = rows_of(segment)
        except UnreadableFile as error:
            self._damage = self._damage or str(error)
            self.lacks.append(range(first, segment.last + 1))
            self.upto = segment.last
            return True
        rows = [row for row in all_of_it if row.seq >= first]
        self.lacks += lacking([range(row.seq, row.seq + 1) for row in rows], first, segment.last)
        found = [row for row in rows if self._wanted(row)]
        fitting = _fitting(found, PAGE_BYTES - sum(len(row.raw) for row in self._rows))
        self._rows += fitting
        whole = len(fitting) == len(found)
        self.upto = segment.last if whole else fitting[-1].seq if fitting else self.upto
        return whole and len(self._rows) < PAGE_MESSAGES

    def result(self) -> ArchivePage:
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


def _size(kept: tuple[ReadArchive, ArchivePage]) -> int:
    messages = kept[1].messages
    return KEPT_MESSAGE_BYTES * (1 + len(messages)) + sum(len(one.data) for one in messages)


def _is_of(node: str) -> Callable[[Row], bool]:
    return (lambda row: row.subject.split(".")[2:3] == [node]) if node else (lambda _: True)
