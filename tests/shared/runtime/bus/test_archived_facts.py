"""Facts that the stream has dropped are read from the archive; facts in neither are reported."""

from pathlib import Path
from random import Random

import msgspec
import pytest

from schemas.base import Message, Question
from schemas.questions import ArchiveKind, ReadArchive
from schemas.subjects import FACT_SUBJECTS, FACTS_STREAM
from services.monitor.archive.plan import BYTES_AT_MOST, Segment
from services.monitor.archive.reader import ArchiveReader
from shared.runtime.bus.jetstream import JetStreamBus
from shared.runtime.damage import Damaged
from tests.bus_nets import JetStreamNet
from tests.fact_builders import failed

FACTS, DROPPED = 20, 10
FILES = (Segment(ArchiveKind.FACTS, 1, 5), Segment(ArchiveKind.FACTS, 6, 10))


async def trimmed(live: JetStreamNet, folder: Path, *, size: int = 0, may_lack: bool = False) -> JetStreamBus:
    """A reader of a stream whose first ten facts, of so many bytes, are in two files of an archive alone."""
    live.settings = msgspec.structs.replace(live.settings, archive=str(folder), allow_lost_facts=may_lack)
    bus, reader = await live.client("monitor"), ArchiveReader(folder)
    facts = [
        failed(f"j-{seq}", place=f"pl-{seq}", at=float(seq), reason=Random(seq).randbytes(size).hex())
        for seq in range(1, FACTS + 1)
    ]
    await bus.publish(facts)
    rows = await bus.stored(FACTS_STREAM, 0, DROPPED, BYTES_AT_MOST)
    for one in FILES:
        reader.write(one, rows[one.first - 1 : one.last])
    await bus.drop(FACTS_STREAM, DROPPED)

    async def answer(question: Question) -> Message:
        assert isinstance(question, ReadArchive)
        return reader.page(question)

    await bus.serve("monitor", ReadArchive.subject, answer)
    return bus


async def read(bus: JetStreamBus) -> list[int]:
    """Sequences of all facts."""
    found: list[int] = []
    async for batch in bus.read(0, FACT_SUBJECTS):
        found += [record.seq for record in batch]
        if batch.last >= FACTS:
            break
    return found


async def test_archived_facts_come_before_those_of_the_stream(live: JetStreamNet, tmp_path: Path) -> None:
    assert await read(await trimmed(live, tmp_path)) == list(range(1, FACTS + 1))


async def test_last_files_that_are_gone_are_damage(live: JetStreamNet, tmp_path: Path) -> None:
    bus = await trimmed(live, tmp_path)
    (tmp_path / FILES[-1].name).unlink()
    with pytest.raises(Damaged, match="the archive lacks facts 6 to 10"):
        await read(bus)


async def test_an_emptied_archive_is_damage(live: JetStreamNet, tmp_path: Path) -> None:
    bus = await trimmed(live, tmp_path)
    for one in FILES:
        (tmp_path / one.name).unlink()
    with pytest.raises(Damaged, match=r"the archive lacks facts 1 to 10 \(it is empty\)"):
        await read(bus)


async def test_a_reader_that_may_lack_facts_goes_on_after_missing_files(
    live: JetStreamNet, tmp_path: Path
) -> None:
    bus = await trimmed(live, tmp_path, may_lack=True)
    (tmp_path / FILES[-1].name).unlink()
    assert await read(bus) == [*range(1, 6), *range(DROPPED + 1, FACTS + 1)]
    counts = bus.counts
    assert (counts.facts_lost, counts.facts_forgotten) == (5, 0)


async def test_facts_of_more_bytes_than_a_page_are_all_fetched(live: JetStreamNet, tmp_path: Path) -> None:
    bus = await trimmed(live, tmp_path, size=600_000)
    assert [record.seq for record in await bus.fetch(range(1, FACTS + 1))] == list(range(1, FACTS + 1))


async def forgotten(bus: JetStreamBus) -> range:
    """Sequences that are nowhere, as a reader of all facts knows."""
    return (await anext(bus.read(0, FACT_SUBJECTS))).forgotten


async def test_readers_know_of_moved_files(live: JetStreamNet, tmp_path: Path) -> None:
    bus = await trimmed(live, tmp_path)
    (tmp_path / FILES[0].name).unlink()
    assert await forgotten(bus) == range(1, 6)
    assert await read(bus) == list(range(6, FACTS + 1))


async def test_readers_know_of_what_was_trimmed_without_an_archive(
    live: JetStreamNet, tmp_path: Path
) -> None:
    bus = await trimmed(live, tmp_path)
    bus._connection.settings = msgspec.structs.replace(live.settings, archive="")
    assert await forgotten(bus) == range(1, 11)


async def test_the_stream_has_what_no_file_has_any_more(live: JetStreamNet, tmp_path: Path) -> None:
    bus = await trimmed(live, tmp_path)
    for one in FILES:
        (tmp_path / one.name).unlink()
    rows = await bus.stored(FACTS_STREAM, DROPPED, FACTS, BYTES_AT_MOST)
    ArchiveReader(tmp_path).write(Segment(ArchiveKind.FACTS, 16, FACTS), rows[5:])
    assert await read(bus) == list(range(DROPPED + 1, FACTS + 1))
