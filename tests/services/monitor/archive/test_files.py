"""What was written is what is read, or an error names the file; pages go through all of it in order."""

import sys
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from schemas.codec import encode
from schemas.events import JobCancelled
from schemas.ids import JobId
from schemas.questions import ArchiveKind, ArchivePage, CopyArchive, ReadArchive
from services.monitor.archive import files
from services.monitor.archive.files import Row, UnreadableFile
from services.monitor.archive.plan import Segment
from services.monitor.archive.reader import ArchiveReader, messages_before
from shared.runtime.bus.contract import Stored
from tests.synced_paths import synced_paths

FACTS = ArchiveKind.FACTS


def stored(seq: int, size: int = 0) -> Stored:
    fact = JobCancelled(at=float(seq), job_id=JobId(f"j-{seq % 7}"))
    data = encode(fact) if not size else bytes(size)
    return Stored(seq=seq, at=1.7e9 + seq, subject=fact.subject, id=fact.event_id, data=data)


def put(reader: ArchiveReader, first: int, last: int, size: int = 0, without: int = 0) -> Segment:
    segment = Segment(FACTS, first, last)
    reader.write(segment, [stored(seq, size) for seq in range(first, last + 1) if seq != without])
    return segment


def pages(reader: ArchiveReader, **asked: object) -> list[ArchivePage]:
    """All of them."""
    found: list[ArchivePage] = []
    after = 0
    while True:
        page = reader.page(ReadArchive(after=after, **asked))  # type: ignore[arg-type]
        if page.upto <= after:
            return found
        found.append(page)
        after = page.upto


def seqs(found: list[ArchivePage]) -> list[int]:
    return [message.seq for page in found for message in page.messages]


def test_pages_have_every_message_once_as_it_was_stored(tmp_path: Path) -> None:
    reader = ArchiveReader(tmp_path / "archive")
    for first in range(1, 7_501, 2_500):
        put(reader, first, first + 2_499)
    found = pages(reader)
    assert seqs(found) == list(range(1, 7_501))
    assert found[0].messages[4].data == stored(5).data
    assert {page.damage for page in found} == {""}


def test_overlapping_files_repeat_no_message(tmp_path: Path) -> None:
    """Two monitors that led in turn, each with another size of files, may have written such."""
    reader = ArchiveReader(tmp_path)
    for first, last in ((1, 50), (31, 90), (61, 120)):
        put(reader, first, last)
    assert seqs(pages(reader)) == list(range(1, 121))
    messages, lacks = messages_before(tmp_path, FACTS, 111)
    assert list(messages) == [(stored(seq).subject, stored(seq).data) for seq in range(1, 111)]
    assert lacks == ()


def test_large_messages_are_paged_by_their_size(tmp_path: Path) -> None:
    reader = ArchiveReader(tmp_path)
    put(reader, 1, 9, size=1_000_000)
    found = pages(reader)
    assert seqs(found) == list(range(1, 10))
    assert len(found) > 2


def test_some_are_found_by_their_sequence(tmp_path: Path) -> None:
    reader = ArchiveReader(tmp_path)
    put(reader, 1, 50)
    put(reader, 51, 100)
    page = reader.page(ReadArchive(seqs=(3, 60, 61, 500)))
    assert [one.seq for one in page.messages] == [3, 60, 61]
    assert page.lacks == ()


def test_a_full_page_says_up_to_where_it_is_complete(tmp_path: Path) -> None:
    reader = ArchiveReader(tmp_path)
    for first in (1, 6):
        put(reader, first, first + 4, size=1_000_000)
    left: tuple[int, ...] = (2, 3, 4, 5, 7, 8, 9)
    found: list[ArchivePage] = []
    while left:
        page = reader.page(ReadArchive(seqs=left))
        found.append(page)
        left = tuple(seq for seq in left if seq > page.upto)
    assert seqs(found) == [2, 3, 4, 5, 7, 8, 9]


def test_messages_that_the_stream_had_lost_are_reported_as_lacking(tmp_path: Path) -> None:
    reader = ArchiveReader(tmp_path)
    put(reader, 1, 50, without=7)
    assert [page.lacks for page in pages(reader)] == [((7, 7),)]


def test_a_file_that_is_gone_is_lacking(tmp_path: Path) -> None:
    reader = ArchiveReader(tmp_path)
    for first in (1, 51, 101):
        put(reader, first, first + 49)
    (tmp_path / Segment(FACTS, 51, 100).name).unlink()
    [page] = pages(reader)
    assert page.lacks == ((51, 100),)
    assert reader.coverage(FACTS).gaps == (range(51, 101),)
    assert reader.page(ReadArchive(seqs=(7, 60))).lacks == ((51, 60),)
    assert reader.page(ReadArchive(seqs=(7, 120))).lacks == ()


def test_a_page_for_a_node_is_not_long_in_the_making(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its agent waits two seconds: over twenty files of other nodes it would never get an answer."""
    reader = ArchiveReader(tmp_path)
    for first in (1, 51, 101):
        put(reader, first, first + 49)
    assert [page.upto for page in pages(reader, node="a0")] == [150]
    monkeypatch.setattr("services.monitor.archive.reader.NODE_PAGE_REAL_S", 0.0)
    assert [page.upto for page in pages(ArchiveReader(tmp_path), node="a0")] == [50, 100, 150]
    assert [page.upto for page in pages(ArchiveReader(tmp_path))] == [150]


class Counting(ArchiveReader):
    reads = 0

    def rows(self, segment: Segment) -> list[Row]:
        self.reads += 1
        return super().rows(segment)


def test_an_agent_that_asks_again_gets_what_was_read_for_it_before(tmp_path: Path) -> None:
    reader = Counting(tmp_path)
    put(reader, 1, 50)
    questions = [ReadArchive(after=after, node=node) for node in ("a0", "a1") for after in (0, 20)]
    for question in questions:
        assert reader.page(question) == reader.page(question)
    assert reader.reads == len(questions)
    assert reader.page(ReadArchive(after=50, node="a0")).upto == 50
    put(reader, 51, 60)  # where there was no more, it is looked at again
    assert reader.page(ReadArchive(after=50, node="a0")).upto == 60


def test_pages_without_messages_are_not_kept_for_any_number_of_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who asks may name any node."""
    monkeypatch.setattr("services.monitor.archive.reader.KEPT_BYTES", 10_000)
    reader = Counting(tmp_path)
    put(reader, 1, 50)
    for number in range(1000):
        assert reader.page(ReadArchive(node=f"no-node-{number}")).messages == ()
    assert len(reader._for_nodes) < 100


def halve(data: bytes) -> bytes:
    return data[: len(data) // 2]


@pytest.mark.parametrize("damage", [halve, lambda _: b"", lambda data: bytes(len(data))])
def test_a_damaged_file_is_named(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    reader = ArchiveReader(tmp_path)
    put(reader, 1, 50)
    hurt = tmp_path / put(reader, 51, 100).name
    put(reader, 101, 150)
    hurt.write_bytes(damage(hurt.read_bytes()))
    [page] = pages(ArchiveReader(tmp_path))
    assert str(hurt) in page.damage
    assert page.lacks == ((51, 100),)
    with pytest.raises(UnreadableFile, match=hurt.name):
        files.read(tmp_path, Segment(FACTS, 51, 100))


def test_a_flipped_bit_changes_no_message_unnoticed(tmp_path: Path) -> None:
    segment = put(ArchiveReader(tmp_path), 1, 50)
    path, rows = tmp_path / segment.name, files.read(tmp_path, segment)
    whole, noticed = path.read_bytes(), 0
    for at in range(0, len(whole), max(len(whole) // 60, 1)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        try:
            assert files.read(tmp_path, segment) == rows, at
        except UnreadableFile:
            noticed += 1
    assert noticed > 10


def test_a_file_of_other_messages_under_its_name_is_named(tmp_path: Path) -> None:
    """Parquet alone would take it."""
    reader = ArchiveReader(tmp_path)
    path = tmp_path / put(reader, 1, 50).name
    duckdb.sql(f"COPY (SELECT * FROM '{path}' WHERE seq <> 9) TO '{path}.2' (FORMAT parquet)")
    Path(f"{path}.2").replace(path)
    assert "digest" in pages(ArchiveReader(tmp_path))[0].damage


def test_an_unfinished_file_is_not_listed(tmp_path: Path) -> None:
    reader = ArchiveReader(tmp_path)
    (tmp_path / ".draft-facts-000000000001-000000000050.parquet.ab").write_bytes(b"half")
    assert reader.list_files().files == ()
    put(reader, 1, 50)
    assert [path.name for path in tmp_path.iterdir()] == [Segment(FACTS, 1, 50).name]


@pytest.mark.skipif(sys.platform != "linux", reason="looks at open files as Linux shows them")
def test_a_written_file_and_its_folders_are_synced_to_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = synced_paths(monkeypatch)
    put(ArchiveReader(tmp_path / "far" / "archive"), 1, 5)
    assert {*synced} >= {tmp_path, tmp_path / "far", tmp_path / "far" / "archive"}
    assert any(path.name.startswith(files.DRAFT) for path in synced)


def test_a_failed_write_leaves_no_file(tmp_path: Path) -> None:
    folder = tmp_path / "archive"
    folder.write_bytes(b"a file, where a folder is to be")
    with pytest.raises(OSError, match="archive"):
        put(ArchiveReader(folder), 1, 50)


def test_only_files_of_the_archive_can_be_copied(tmp_path: Path) -> None:
    reader = ArchiveReader(tmp_path)
    name = put(reader, 1, 50).name
    whole = reader.read_part(CopyArchive(name=name)).data
    assert whole == (tmp_path / name).read_bytes()
    assert reader.read_part(CopyArchive(name=name, offset=len(whole))).data == b""
    with pytest.raises(ValueError, match="is not a file of an archive"):
        reader.read_part(CopyArchive(name="../../etc/passwd"))


def test_archive_files_can_be_queried_with_sql(tmp_path: Path) -> None:
    path = tmp_path / put(ArchiveReader(tmp_path), 1, 50).name
    wanted = f"SELECT seq, message->>'job_id', stored_at FROM '{path}' WHERE seq = 9"
    [(seq, job_id, stored_at)] = duckdb.execute(wanted).fetchall()
    assert (seq, job_id, stored_at.year) == (9, "j-2", 2023)
