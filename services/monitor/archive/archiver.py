"""Copies the streams into the archive, and trims what is archived and no service needs any more.

Only the leading instance of the monitor does so. An error stops only this work, and is reported as a trouble
of the monitor (`hopyard status`).
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
from services.monitor.archive.plan import BYTES_AT_MOST, Coverage, Segment, droppable, lacking, taken_next
from services.monitor.archive.reader import ArchiveReader
from shared.runtime.bus.contract import DamagedBlob, Extent, Stored, Streams, Unavailable
from shared.runtime.bus.limits import seq_of
from shared.runtime.damage import joined, ranges_text
from shared.runtime.offload.contract import Lane
from shared.runtime.process.reports import NAMES
from shared.runtime.service import Inbox, Metric, Ports
from shared.runtime.shell.snapshots import UnreadableSnapshot, facts_in

STREAMS = {ArchiveKind.FACTS: FACTS_STREAM, ArchiveKind.OBSERVATIONS: OBSERVATIONS_STREAM}
OBSERVATIONS_BYTES = 48 * 1024 * 1024
"""size above which the observations are trimmed; below the limit at which NATS itself drops the oldest of
them, archived or not"""

MOVE_AWAY = "move the file away, and it is written again from what the stream still has"

log = structlog.get_logger()


class NotArchived(Exception):
    """Messages of a stream cannot be archived; the text says why."""


class Archiver:
    def __init__(self, settings: Settings, ports: Ports, streams: Streams) -> None:
        self._settings = settings
        self._bus = ports.bus
        self._streams = streams
        self._clock = ports.clock
        self._lane: Lane = ports.offload.lane("archive")
        self._reader = ArchiveReader(Path(settings.archive)) if settings.archive else None
        self._troubles: dict[ArchiveKind, str] = {}
        self._extents: dict[ArchiveKind, Extent] = {}
        self._coverage: dict[ArchiveKind, Coverage] = {}

    async def close(self) -> None:
        self._lane.close()

    # ---- reports and answers

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
                value=self._coverage[kind].ends if kind in self._coverage else 0,
                labels=labels,
            )
            yield Metric(
                name="archive_failing",
                help="1 while messages cannot be archived, so none is dropped, or while files are missing.",
                value=float(kind in self._troubles),
                labels=labels,
            )

    async def answer(self, question: Question) -> Message:
        """Answer a question about the archive; instances that do not lead answer too.

        Raises OSError, ValueError.
        """
        if self._reader is None:
            return _nothing(question)
        match question:
            case ReadArchive():
                return await self._lane.do(self._reader.page, question)
            case ListArchive():
                return await self._lane.do(self._reader.list_files)
            case CopyArchive():
                return await self._lane.do(self._reader.read_part, question)
            case _:
                return Refused(reason=f"{type(question).__name__} is not a question about the archive")

    # ---- archiving

    async def keep(self, _: Inbox) -> None:
        """A task of the leading instance: archive and trim."""
        while True:
            for kind in ArchiveKind:
                await self._archive_and_trim(kind)
            await self._clock.sleep(self._clock.cluster_s(self._settings.archive_every_real_s))

    async def _archive_and_trim(self, kind: ArchiveKind) -> None:
        try:
            while await self._write_next(kind):
                pass
            await self._trim(kind)
        except Unavailable as error:
            log.info("not archived", kind=kind, reason=str(error))  # the bus reports it
            return
        except (NotArchived, OSError) as error:
            trouble = f"{kind} are not archived, so none is dropped: {error}"
            if self._troubles.get(kind) != trouble:
                log.warning("not archived", kind=kind, reason=str(error))
            self._troubles[kind] = trouble
            return
        if gaps := self._lost_facts(kind):
            self._troubles[kind] = f"the archive lacks facts {ranges_text(gaps)}: files of it are gone"
        elif self._troubles.pop(kind, ""):
            log.info("archived again", kind=kind)

    def _lost_facts(self, kind: ArchiveKind) -> tuple[range, ...]:
        """Facts that are neither in a file of the archive nor in the stream any more."""
        there = self._coverage.get(kind)
        if there is None or not there.files or kind is not ArchiveKind.FACTS:
            return ()
        behind = range(there.ends + 1, self._extents[kind].first)
        return (*there.gaps, *([behind] if behind else []))

    def _is_emptied(self, kind: ArchiveKind) -> bool:
        """Whether the archive of facts has no file although the stream was trimmed.

        Its files were lost, or their disk is not mounted. Then no new archive is begun in the folder, unless
        the setting allow_lost_facts says so.
        """
        none_there = self._extents[kind].first > 1 and not self._coverage[kind].files
        return none_there and kind is ArchiveKind.FACTS and not self._settings.allow_lost_facts

    async def _write_next(self, kind: ArchiveKind) -> bool:
        """Write the next file of the archive, if one is due; whether it was. Raises NotArchived, OSError."""
        stream = STREAMS[kind]
        extent = self._extents[kind] = await self._streams.extent(stream)
        if self._reader is None:
            return False
        there = self._coverage[kind] = await self._lane.do(self._reader.coverage, kind)
        if there.ends > extent.last:
            raise NotArchived(
                f"the archive in {self._reader.folder} ends at {there.ends}, after the end of the stream "
                f"{stream} at {extent.last}: it is of another stream; choose another folder (setting archive)"
            )
        if self._is_emptied(kind):
            raise NotArchived(
                f"{self._reader.folder} is empty, and the stream no longer has facts 1 to {extent.first - 1}"
                ": mount the folder, or put its files back; HOPYARD_ALLOW_LOST_FACTS=1 begins an archive "
                "without these facts"
            )
        wanted = taken_next(there, extent.first, extent.last, self._settings.archive_file_messages)
        if wanted is None:
            return False
        first, upto = wanted.start, wanted[-1]
        rows = await self._streams.stored(stream, first - 1, upto, BYTES_AT_MOST)
        last = rows[-1].seq if sum(len(row.data) for row in rows) >= BYTES_AT_MOST else upto
        self._check_whole(kind, first, last, rows)
        await self._lane.do(self._reader.write, Segment(kind, first, last), rows)
        log.info("archived", kind=kind, first=first, last=last)
        return True

    def _check_whole(self, kind: ArchiveKind, first: int, last: int, rows: Sequence[Stored]) -> None:
        """Check that no fact between the first and the last is missing; of samples some may be.

        Raises NotArchived.
        """
        gaps = lacking([range(row.seq, row.seq + 1) for row in rows], first, last)
        if gaps and kind is ArchiveKind.FACTS and not self._settings.allow_lost_facts:
            raise NotArchived(f"the stream has lost facts {ranges_text(gaps)}")

    # ---- trimming

    async def _trim(self, kind: ArchiveKind) -> None:
        room = self._settings.stream_max_bytes if kind is ArchiveKind.FACTS else OBSERVATIONS_BYTES
        extent = self._extents[kind]
        upto = droppable(extent.first, extent.last, extent.bytes, room)
        if upto >= extent.first and kind is ArchiveKind.FACTS:
            upto = min(upto, await self.oldest_needed() - 1)
        for some in self._trimmable(kind, extent.first, upto):
            await self._trim_to(kind, some)

    def _trimmable(self, kind: ArchiveKind, first: int, upto: int) -> list[tuple[Segment | None, range]]:
        """The sequences that may be dropped from the stream, from `first` to `upto`, by file.

        They end at the first gap between files. Without an archive (None for the file) all may be dropped.
        """
        if self._reader is None:
            return [(None, range(first, upto + 1))] if first <= upto else []
        found: list[tuple[Segment | None, range]] = []
        reached = first
        for one in self._coverage[kind].files:
            if one.first <= reached <= min(one.last, upto):
                found.append((one, range(reached, min(one.last, upto) + 1)))
                reached = one.last + 1
        return found

    async def _trim_to(self, kind: ArchiveKind, kept: tuple[Segment | None, range]) -> None:
        """Drop these messages from the stream, once their file is checked.

        Raises NotArchived, OSError, Unavailable; then nothing is dropped.
        """
        segment, seqs = kept
        if segment is not None:
            await self._check_file(kind, segment, seqs)
        await self._streams.drop(STREAMS[kind], seqs[-1])
        log.info("trimmed", kind=kind, first=seqs[0], last=seqs[-1])

    async def _check_file(self, kind: ArchiveKind, segment: Segment, seqs: range) -> None:
        """Check that a file agrees with the stream.

        The first and the last message must be equal, and the stream must have none where the file has a gap.
        Raises NotArchived, OSError.
        """
        assert self._reader is not None
        try:
            rows = await self._lane.do(files.read, self._reader.folder, segment)
        except files.UnreadableFile as error:
            raise NotArchived(f"{error}; {MOVE_AWAY}") from None
        there = {row.seq: row for row in rows}
        lacks = joined([seq for seq in seqs if seq not in there])
        ends = [range(seq, seq + 1) for seq in (seqs[0], seqs[-1])]
        for some in [*ends, *lacks]:
            for one in await self._streams.stored(STREAMS[kind], some[0] - 1, some[-1], 1):
                row = there.get(one.seq)
                if row is None or (row.subject, row.raw) != (one.subject, one.data):
                    name = self._reader.folder / segment.name
                    raise NotArchived(f"{name} differs from the stream at message {one.seq}; {MOVE_AWAY}")

    async def oldest_needed(self) -> int:
        """The oldest fact that must stay in the stream.

        A service that started now would begin to read there, or it is the fact by which an instance leads.
        Raises Unavailable.
        """
        return min([await self._oldest_needed_by(name) for name in NAMES])

    async def _oldest_needed_by(self, name: str) -> int:
        led = await self._streams.led_last(name)
        cursor = await self._bus.get(f"cursor/{name}")
        handled = None if cursor is None else seq_of(cursor[0])
        if handled is None or not led:
            return 0
        try:
            blob = await self._bus.load(name)
            snapshot = 0 if blob is None else facts_in(blob)[0]
        except (UnreadableSnapshot, DamagedBlob):
            snapshot = 0
        return min(led, snapshot + 1, handled + 1)


def _nothing(question: Question) -> Message:
    """The answer to a question about the archive in a stack that keeps none."""
    match question:
        case ReadArchive():
            return ArchivePage(messages=(), upto=question.after, begins=0)
        case ListArchive():
            return ArchiveFiles(files=(), folder="")
        case _:
            return Refused(reason="no archive is kept")
