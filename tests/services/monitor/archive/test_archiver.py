"""What is trimmed is archived, and behind every service; what cannot be archived stays, and is said."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from schemas.questions import ArchiveKind, ArchivePage, ListArchive, ReadArchive
from schemas.settings import Settings
from schemas.subjects import FACTS_STREAM
from services.monitor.archive import files
from services.monitor.archive.archiver import Archiver
from services.monitor.archive.plan import Segment, coverage
from shared.runtime.bus.contract import Extent, Stored
from shared.runtime.bus.memory import MemoryBus
from shared.runtime.clock import LoopClock
from shared.runtime.process.reports import NAMES
from shared.runtime.service import Inbox, Ports
from shared.runtime.shell.snapshots import packed
from shared.runtime.shell.virtual import run

SIZE = 100
ROOM = 3_000
FILE = 10


class Kept:
    """Implements `Streams` in memory: messages of 100 bytes."""

    def __init__(self) -> None:
        self.led = dict.fromkeys(NAMES, 1)
        self.facts: list[Stored] = []
        self.dropped = 0

    def store(self, count: int) -> None:
        for seq in range(self.last + 1, self.last + count + 1):
            self.facts.append(Stored(seq, float(seq), f"hopyard.job.j.{seq}", f"id-{seq}", bytes(SIZE)))

    @property
    def last(self) -> int:
        return self.facts[-1].seq if self.facts else 0

    async def extent(self, stream: str) -> Extent:
        if stream != FACTS_STREAM:
            return Extent(1, 0, 0)
        return Extent(self.dropped + 1, self.last, SIZE * (self.last - self.dropped))

    async def stored(self, stream: str, after: int, upto: int, bytes_max: int) -> list[Stored]:
        assert stream == FACTS_STREAM
        assert bytes_max > 0
        return [one for one in self.facts if max(after, self.dropped) < one.seq <= upto]

    async def drop(self, stream: str, upto: int) -> None:
        assert stream == FACTS_STREAM
        self.dropped = max(self.dropped, upto)

    async def led_last(self, service: str) -> int:
        return self.led[service]


class Stage:
    def __init__(
        self, folder: Path | None, streams: Kept | None = None, *, allow_lost_facts: bool = False
    ) -> None:
        self.streams = streams or Kept()
        self.bus = MemoryBus(LoopClock())
        settings = Settings(
            archive=str(folder or ""),
            archive_file_messages=FILE,
            stream_max_bytes=ROOM,
            archive_every_real_s=1.0,
            allow_lost_facts=allow_lost_facts,
        )
        ports = Ports(bus=self.bus, clock=LoopClock(), streams=self.streams)
        self.archiver = Archiver(settings, ports, self.streams)

    async def came_to(self, seq: int, *, led: int, snapshot: int) -> None:
        """Every service has handled facts so far, leads by `led`, and has a snapshot as of `snapshot`."""
        for name in NAMES:
            self.streams.led[name] = led
            await self.bus.put(f"cursor/{name}", str(seq).encode())
            await self.bus.save(name, packed(snapshot, 0, ()))

    async def look(self) -> None:
        """For a while."""
        keeping = asyncio.create_task(self.archiver.keep(INBOX))
        await asyncio.sleep(10.0)
        assert not keeping.done(), keeping
        keeping.cancel()


async def _nobody(_: object) -> object:
    raise AssertionError


INBOX = Inbox(put=lambda _: None, ask=_nobody, replayed=lambda: True, seq=lambda: 0)


def staged(folder: Path | None, story: Callable[[Stage], Awaitable[None]]) -> None:
    async def scene() -> None:
        await story(Stage(folder))

    run(scene)


def test_the_oldest_go_once_they_are_archived_and_no_service_needs_them(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        stage.streams.store(95)
        await stage.came_to(95, led=95, snapshot=95)
        await stage.look()
        there = coverage(files.names_in(tmp_path), ArchiveKind.FACTS)
        assert (there.begins, there.ends, there.gaps) == (1, 90, ())
        assert stage.streams.dropped == 95 - 23  # four fifths of the room stay
        assert stage.archiver.troubles() == ()

    staged(tmp_path, story)


def test_facts_that_a_service_leads_by_or_restarts_from_are_kept(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        stage.streams.store(200)
        await stage.came_to(200, led=200, snapshot=200)
        stage.streams.led["placer"] = 40
        await stage.look()
        assert stage.streams.dropped == 39
        await stage.came_to(200, led=200, snapshot=200)
        await stage.bus.save("profiler", packed(60, 0, ()))
        await stage.look()
        assert stage.streams.dropped == 60
        await stage.bus.delete("cursor/planner")
        stage.streams.store(100)
        await stage.look()
        assert stage.streams.dropped == 60

    staged(tmp_path, story)


@pytest.mark.parametrize("cursor", [b"", b"x", b"9" * 5_000])
def test_where_a_cursor_cannot_be_read_nothing_is_dropped(tmp_path: Path, cursor: bytes) -> None:
    async def story(stage: Stage) -> None:
        stage.streams.store(200)
        await stage.came_to(200, led=200, snapshot=200)
        await stage.bus.put("cursor/planner", cursor)
        await stage.look()
        assert stage.streams.dropped == 0
        assert coverage(files.names_in(tmp_path), ArchiveKind.FACTS).ends == 200

    staged(tmp_path, story)


def test_no_fact_is_dropped_while_the_archive_cannot_be_written_and_then_it_catches_up(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "archive"
    folder.write_bytes(b"where the folder is to be, as a disk without room")
    make_room = folder.unlink

    async def story(stage: Stage) -> None:
        stage.streams.store(200)
        await stage.came_to(200, led=200, snapshot=200)
        await stage.look()
        assert stage.streams.dropped == 0
        said, *_ = stage.archiver.troubles()
        assert said.startswith("facts are not archived, so none is dropped")
        assert [one.value for one in stage.archiver.metrics() if one.name == "archive_failing"][:1] == [1.0]
        make_room()
        await stage.look()
        assert stage.archiver.troubles() == ()
        assert stage.streams.dropped == 200 - 23
        assert coverage(files.names_in(folder), ArchiveKind.FACTS).ends == 200

    staged(folder, story)


def rows_in(folder: Path) -> list[int]:
    """Sequences in all files together."""
    return [
        row.seq
        for one in coverage(files.names_in(folder), ArchiveKind.FACTS).files
        for row in files.read(folder, one)
    ]


def test_a_file_that_is_gone_before_the_trim_is_written_again(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        stage.streams.store(200)
        await stage.look()
        (tmp_path / Segment(ArchiveKind.FACTS, 11, 20).name).unlink()
        await stage.came_to(200, led=200, snapshot=200)
        await stage.look()
        assert stage.streams.dropped == 200 - 23
        assert rows_in(tmp_path) == list(range(1, 201))

    staged(tmp_path, story)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


def named_for_more(path: Path) -> None:
    path.rename(path.with_name(Segment(ArchiveKind.FACTS, 11, 150).name))


def of_another(path: Path) -> None:
    other = Kept()
    other.store(20)
    rows = [files.Row(one.seq, 0, one.subject, one.id, b"other") for one in other.facts[10:]]
    files.write(path.parent, Segment(ArchiveKind.FACTS, 11, 20), rows)


def move_away(folder: Path) -> None:
    [path] = folder.glob("facts-000000000011-*")
    path.rename(folder / "away")


@pytest.mark.parametrize("damage", [cut, named_for_more, of_another])
def test_facts_of_a_damaged_file_are_not_dropped(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    async def story(stage: Stage) -> None:
        stage.streams.store(200)
        await stage.look()
        damage(tmp_path / Segment(ArchiveKind.FACTS, 11, 20).name)
        await stage.came_to(200, led=200, snapshot=200)
        await stage.look()
        assert stage.streams.dropped == 10
        [said] = stage.archiver.troubles()
        assert "facts-000000000011-" in said
        assert "move the file away" in said
        move_away(tmp_path)
        await stage.look()
        assert stage.archiver.troubles() == ()
        assert stage.streams.dropped == 200 - 23
        assert rows_in(tmp_path) == list(range(1, 201))

    staged(tmp_path, story)


def test_an_archive_of_another_stream_is_no_reason_to_drop(tmp_path: Path) -> None:
    """Also once the new stream is longer than the archive."""

    async def story(stage: Stage) -> None:
        stage.streams.store(100)
        await stage.look()
        new = Stage(tmp_path)
        new.streams.facts = [replace(one, data=bytes(SIZE - 1) + b"1") for one in stage.streams.facts]
        new.streams.store(100)
        await new.came_to(200, led=200, snapshot=200)
        await new.look()
        assert new.streams.dropped == 0
        assert "differs from the stream at message 1" in new.archiver.troubles()[0]

    staged(tmp_path, story)


def test_missing_last_files_are_reported_after_the_trim(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        stage.streams.store(95)
        await stage.came_to(95, led=95, snapshot=95)
        await stage.look()
        assert stage.streams.dropped == 72
        for first in range(51, 91, 10):
            (tmp_path / Segment(ArchiveKind.FACTS, first, first + 9).name).unlink()
        await stage.look()
        assert stage.archiver.troubles() == ("the archive lacks facts 51 to 72: files of it are gone",)

    staged(tmp_path, story)


def test_an_emptied_archive_is_reported_and_not_begun_again(tmp_path: Path) -> None:
    """A volume that is not mounted looks like it."""

    async def story(stage: Stage) -> None:
        stage.streams.store(95)
        await stage.came_to(95, led=95, snapshot=95)
        await stage.look()
        (archive := tmp_path / "archive").rename(elsewhere := tmp_path / "elsewhere")
        stage.streams.store(100)
        await stage.came_to(195, led=195, snapshot=195)
        await stage.look()
        assert "is empty, and the stream no longer has facts 1 to 72" in stage.archiver.troubles()[0]
        assert [one.value for one in stage.archiver.metrics() if one.name == "archive_failing"] == [1.0, 0.0]
        assert stage.streams.dropped == 72
        assert not archive.exists()
        elsewhere.rename(archive)
        await stage.look()
        assert stage.archiver.troubles() == ()
        assert coverage(files.names_in(archive), ArchiveKind.FACTS).begins == 1

    staged(tmp_path / "archive", story)


def test_with_lost_facts_allowed_an_archive_begins_where_the_stream_does(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        stage.streams.store(95)
        stage.streams.dropped = 50
        await stage.look()
        assert "is empty" in stage.archiver.troubles()[0]
        other = Stage(tmp_path, stage.streams, allow_lost_facts=True)
        await other.look()
        assert other.archiver.troubles() == ()
        assert coverage(files.names_in(tmp_path), ArchiveKind.FACTS).begins == 51

    staged(tmp_path, story)


def test_an_archiver_that_takes_over_goes_on_where_the_files_end(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        stage.streams.store(35)
        await stage.look()
        other = Stage(tmp_path)
        other.streams.facts, other.streams.dropped = stage.streams.facts, stage.streams.dropped
        other.streams.store(20)
        await other.look()
        await stage.look()  # and the old one, not knowing better
        there = coverage(files.names_in(tmp_path), ArchiveKind.FACTS)
        assert [(one.first, one.last) for one in there.files] == [(n, n + 9) for n in range(1, 51, 10)]
        assert len(files.names_in(tmp_path)) == 5

    staged(tmp_path, story)


def test_the_archive_of_another_stream_is_refused(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        stage.streams.store(200)
        await stage.look()
        stage.streams.facts = stage.streams.facts[:150]
        await stage.came_to(150, led=150, snapshot=150)
        await stage.look()
        assert "is of another stream" in stage.archiver.troubles()[0]
        assert stage.streams.dropped == 0

    staged(tmp_path, story)


def test_a_stream_that_has_lost_facts_is_not_archived_as_if_it_had_not(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        stage.streams.store(30)
        del stage.streams.facts[14]
        await stage.look()
        assert "the stream has lost facts 15" in stage.archiver.troubles()[0]
        assert coverage(files.names_in(tmp_path), ArchiveKind.FACTS).ends == 10

    staged(tmp_path, story)


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    gone = tmp_path / Segment(ArchiveKind.FACTS, 21, 30).name

    async def story(stage: Stage) -> None:
        stage.streams.store(95)
        await stage.came_to(95, led=95, snapshot=95)
        await stage.look()
        gone.unlink()
        await stage.look()
        assert stage.archiver.troubles() == ("the archive lacks facts 21 to 30: files of it are gone",)

    staged(tmp_path, story)


def test_without_an_archive_facts_that_no_service_needs_are_dropped() -> None:
    async def story(stage: Stage) -> None:
        stage.streams.store(95)
        await stage.came_to(95, led=95, snapshot=50)
        await stage.look()
        assert stage.streams.dropped == 50
        page = await stage.archiver.answer(ReadArchive(after=7))
        assert page == ArchivePage(messages=(), upto=7, begins=0)
        assert msgspec.structs.asdict(await stage.archiver.answer(ListArchive()))["files"] == ()

    staged(None, story)
