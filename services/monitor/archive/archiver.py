"""Copies the streams into the archive, and trims them as far as they are archived and nobody needs them.

Only the monitor that leads does it. What goes wrong stops the trimming and nothing else, and is said.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import structlog

from schemas.base import Message, Question
from schemas.questions import (
    ArchiveFiles,
    ArchiveKind,
    ArchivePage,
    CopyArchive,
    ListArchive,
    ReadArchive,
    Refused,
)
from schemas.settings import Settings
from schemas.subjects import FACTS_STREAM, OBSERVATIONS_STREAM
from services.monitor.archive import files
from services.monitor.archive.plan import BYTES_AT_MOST, Coverage, Stretch, droppable, lacking, taken_next
from services.monitor.archive.reader import ArchiveReader
from shared.runtime.bus.contract import DamagedBlob, Extent, Stored, Streams, Unavailable
from shared.runtime.damage import joined, ranges_text
from shared.runtime.offload.contract import Lane
from shared.runtime.process.reports import NAMES
from shared.runtime.service import Inbox, Metric, Ports
from shared.runtime.shell.snapshots import UnreadableSnapshot, seq_in

STREAMS = {ArchiveKind.FACTS: FACTS_STREAM, ArchiveKind.OBSERVATIONS: OBSERVATIONS_STREAM}
OBSERVATIONS_BYTES = 48 * 1024 * 1024
"""less than their stream may hold: it drops the oldest by itself, archived or not"""

MOVE_IT = "move it away, and it is written anew from what the stream has"

log = structlog.get_logger()


class NotArchived(Exception):
    """What a stream has cannot be taken in; the text says why."""


class Archiver:
    def __init__(self, settings: Settings, ports: Ports, streams: Streams) -> None:
        self._settings = settings
        self._bus = ports.bus
        self._streams = streams
        self._clock = ports.clock
        self._lane: Lane = ports.offload.lane("archive")
        self._shelf = ArchiveReader(Path(settings.archive)) if settings.archive else None
        self._troubles: dict[ArchiveKind, str] = {}
        self._extents: dict[ArchiveKind, Extent] = {}
        self._there: dict[ArchiveKind, Coverage] = {}

    async def close(self) -> None:
        self._lane.close()

    # ---- what it says

    def troubles(self) -> tuple[str, ...]:
        return tuple(self._troubles.values())

    def metrics(self) -> Iterator[Metric]:
        for kind, extent in self._extents.items():
            labels = {"kind": str(kind)}
            yield Metric(
                name="stream_bytes", help="Size of a stream at NATS.", value=extent.bytes, labels=labels
            )
            yield Metric(
                name="stream_first", help="Sequence of its oldest message.", value=extent.first, labels=labels
            )
            yield Metric(
                name="stream_last", help="Sequence of its newest message.", value=extent.last, labels=labels
            )
            yield Metric(
                name="archive_last",
                help="Sequence of the newest message in the archive; 0: none is kept.",
                value=self._there[kind].ends if kind in self._there else 0,
                labels=labels,
            )
            yield Metric(
                name="archive_failing",
                help="1 while messages cannot be archived, and none is dropped, or files of it are gone.",
                value=float(kind in self._troubles),
                labels=labels,
            )

    async def answer(self, question: Question) -> Message:
        """Answer a question about the archive, at every instance. Raises OSError, ValueError."""
        if self._shelf is None:
            return _nothing(question)
        match question:
            case ReadArchive():
                return await self._lane.do(self._shelf.page, question)
            case ListArchive():
                return await self._lane.do(self._shelf.listed)
            case CopyArchive():
                return await self._lane.do(self._shelf.part, question)
            case _:
                return Refused(reason="no question about the archive")

    # ---- what it does

    async def keep(self, _: Inbox) -> None:
        """A task of the leading instance: archive and trim."""
        while True:
            for kind in ArchiveKind:
                await self._look(kind)
            await self._clock.sleep(self._clock.cluster_s(self._settings.archive_every_real_s))

    async def _look(self, kind: ArchiveKind) -> None:
        try:
            while await self._take(kind):
                pass
            await self._trim(kind)
        except Unavailable as error:
            log.info("not archived", kind=kind, reason=str(error))  # the bus itself says that it is away
            return
        except (NotArchived, OSError) as error:
            said = f"{kind} are not archived, so none is dropped: {error}"
            if self._troubles.get(kind) != said:
                log.warning("not archived", kind=kind, reason=str(error))
            self._troubles[kind] = said
            return
        if gaps := self._gone(kind):
            self._troubles[kind] = f"the archive lacks facts {ranges_text(gaps)}: files of it are gone"
        elif self._troubles.pop(kind, ""):
            log.info("archived again", kind=kind)

    def _gone(self, kind: ArchiveKind) -> tuple[range, ...]:
        """Facts whose files are gone, and that the stream no longer has."""
        there = self._there.get(kind)
        if there is None or not there.files or kind is not ArchiveKind.FACTS:
            return ()
        behind = range(there.ends + 1, self._extents[kind].first)
        return (*there.gaps, *([behind] if behind else []))

    def _emptied(self, kind: ArchiveKind) -> bool:
        """Whether nothing is left of an archive of facts; it is not begun anew as if there had been none."""
        none_there = self._extents[kind].first > 1 and not self._there[kind].files
        return none_there and kind is ArchiveKind.FACTS and not self._settings.allow_lost_facts

    async def _take(self, kind: ArchiveKind) -> bool:
        """Whether a file was written. Raises NotArchived, OSError."""
        stream = STREAMS[kind]
        extent = self._extents[kind] = await self._streams.extent(stream)
        if self._shelf is None:
            return False
        there = self._there[kind] = await self._lane.do(self._shelf.coverage, kind)
        if there.ends > extent.last:
            raise NotArchived(
                f"{self._shelf.folder} ends at {there.ends}, and the stream {stream} at {extent.last}: "
                "it is of another stream; choose another folder (setting archive)"
            )
        if self._emptied(kind):
            raise NotArchived(
                f"{self._shelf.folder} is empty, and facts 1 to {extent.first - 1} are not in the stream any "
                "more: mount it, or put its files back; HOPYARD_ALLOW_LOST_FACTS=1 begins one without them"
            )
        wanted = taken_next(there, extent.first, extent.last, self._settings.archive_file_messages)
        if wanted is None:
            return False
        first, upto = wanted.start, wanted[-1]
        rows = await self._streams.stored(stream, first - 1, upto, BYTES_AT_MOST)
        last = rows[-1].seq if sum(len(row.data) for row in rows) >= BYTES_AT_MOST else upto
        self._check_whole(kind, first, last, rows)
        await self._lane.do(self._shelf.put, Stretch(kind, first, last), rows)
        log.info("archived", kind=kind, first=first, last=last)
        return True

    def _check_whole(self, kind: ArchiveKind, first: int, last: int, rows: Sequence[Stored]) -> None:
        """Check that facts follow one another without a gap; samples may have gaps."""
        gaps = lacking([range(row.seq, row.seq + 1) for row in rows], first, last)
        if gaps and kind is ArchiveKind.FACTS and not self._settings.allow_lost_facts:
            raise NotArchived(f"the stream has lost facts {ranges_text(gaps)}")

    # ---- trimming

    async def _trim(self, kind: ArchiveKind) -> None:
        room = self._settings.stream_max_bytes if kind is ArchiveKind.FACTS else OBSERVATIONS_BYTES
        extent = self._extents[kind]
        upto = droppable(extent.first, extent.last, extent.bytes, room)
        if upto >= extent.first and kind is ArchiveKind.FACTS:
            upto = min(upto, await self.needed() - 1)
        for some in self._kept(kind, extent.first, upto):
            await self._drop(kind, some)

    def _kept(self, kind: ArchiveKind, first: int, upto: int) -> list[tuple[Stretch | None, range]]:
        """What may be trimmed, by file, as far as the files follow one another."""
        if self._shelf is None:
            return [(None, range(first, upto + 1))] if first <= upto else []
        found: list[tuple[Stretch | None, range]] = []
        reached = first
        for one in self._there[kind].files:
            if one.first <= reached <= min(one.last, upto):
                found.append((one, range(reached, min(one.last, upto) + 1)))
                reached = one.last + 1
        return found

    async def _drop(self, kind: ArchiveKind, kept: tuple[Stretch | None, range]) -> None:
        """Trim the stream. Raises NotArchived, OSError, Unavailable; then nothing is dropped."""
        stretch, seqs = kept
        if stretch is not None:
            await self._check_kept(kind, stretch, seqs)
        await self._streams.drop(STREAMS[kind], seqs[-1])
        log.info("trimmed", kind=kind, first=seqs[0], last=seqs[-1])

    async def _check_kept(self, kind: ArchiveKind, stretch: Stretch, seqs: range) -> None:
        """Check by its content that a file is whole and of this stream. Raises NotArchived, OSError."""
        assert self._shelf is not None
        try:
            rows = await self._lane.do(files.read, self._shelf.folder, stretch)
        except files.UnreadableFile as error:
            raise NotArchived(f"{error}; {MOVE_IT}") from None
        there = {row.seq: row for row in rows}
        lacks = joined([seq for seq in seqs if seq not in there])
        ends = [range(seq, seq + 1) for seq in (seqs[0], seqs[-1])]
        for some in [*ends, *lacks]:
            for one in await self._streams.stored(STREAMS[kind], some[0] - 1, some[-1], 1):
                row = there.get(one.seq)
                if row is None or (row.subject, row.raw) != (one.subject, one.data):
                    name = self._shelf.folder / stretch.name
                    raise NotArchived(f"{name} has not what the stream has at {one.seq}; {MOVE_IT}")

    async def needed(self) -> int:
        """The oldest fact that any service would read if it began now, or by which it leads.

        Raises Unavailable.
        """
        return min([await self._needed_by(name) for name in NAMES])

    async def _needed_by(self, name: str) -> int:
        led = await self._streams.led_last(name)
        cursor = await self._bus.get(f"cursor/{name}")
        if cursor is None or not led or not cursor[0].isdigit():
            return 0
        try:
            blob = await self._bus.load(name)
            snapshot = 0 if blob is None else seq_in(blob)
        except (UnreadableSnapshot, DamagedBlob):
            snapshot = 0
        return min(led, snapshot + 1, int(cursor[0]) + 1)


def _nothing(question: Question) -> Message:
    """In place of an archiver, where no archive is kept."""
    match question:
        case ReadArchive():
            return ArchivePage(messages=(), upto=question.after, begins=0)
        case ListArchive():
            return ArchiveFiles(files=(), folder="")
        case _:
            return Refused(reason="no archive is kept")
