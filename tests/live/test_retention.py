"""A stack whose stream keeps next to nothing: what it drops is in the archive, and nobody misses it.

The tests share one stack. Services are killed and restarted after the stream was trimmed, one of them without
its snapshot; the log is whole, in order and without doubles to the end.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from hopyard.actions.rebuild import rebuild
from hopyard.actions.restore import restore
from hopyard.failures import Failure
from hopyard.local.offline_nats import offline_nats
from hopyard.local.stack_settings import SERVICES
from schemas.events import JobCompleted, JobSubmitted
from schemas.questions import ArchiveKind
from schemas.settings import Settings
from services.monitor.archive import files
from services.monitor.archive.plan import coverage
from shared.domain.audit import audit
from shared.runtime.bus.jetstream import JetStreamBus
from tests.live.live_builders import QUICK, stack_and_client
from tests.live.trimmed import Trimmed
from tests.stack_watch import until

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

KEPT_BYTES = 40_000
"""of facts: some hundred"""
FILE_MESSAGES = 50


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def trimmed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Trimmed]:
    data = tmp_path_factory.mktemp("trimmed") / "data"
    async with stack_and_client(
        data,
        speed=QUICK,
        stream_max_bytes=KEPT_BYTES,
        archive_file_messages=FILE_MESSAGES,
        archive_every_real_s=0.3,
        snapshot_every=FILE_MESSAGES,
        lease_real_s=1.0,
    ) as (stack, client):
        one = Trimmed(stack, client)
        await one.submit()
        yield one


async def test_the_stream_is_trimmed_and_the_log_is_whole(trimmed: Trimmed) -> None:
    await trimmed.ended()
    extent = await trimmed.trimmed_beyond(2 * FILE_MESSAGES)
    log = await trimmed.log()
    assert [seq for seq, _ in log] == list(range(1, log[-1][0] + 1))
    assert extent.first > 1
    assert extent.bytes < 4 * KEPT_BYTES
    archived = files.names_in(trimmed.stack.data / "archive")
    there = coverage(archived, ArchiveKind.FACTS)
    assert (there.begins, there.gaps) == (1, ())
    assert there.ends >= extent.first - 1


async def test_services_that_are_killed_after_the_trim_go_on(trimmed: Trimmed) -> None:
    await trimmed.restarted(*SERVICES)
    await trimmed.submit()
    await trimmed.ended()


async def test_services_without_snapshots_read_the_archive(trimmed: Trimmed) -> None:
    """As after an upgrade that reads no snapshot of before."""
    await trimmed.without_snapshots()
    await trimmed.restarted(*SERVICES)
    for name in SERVICES:
        assert "facts are in no archive" not in (trimmed.stack.data / "logs" / f"{name}.log").read_text()
    await trimmed.submit()
    await trimmed.ended()


async def test_at_the_end_no_fact_is_missing(trimmed: Trimmed) -> None:
    log = await trimmed.log()
    assert [seq for seq, _ in log] == list(range(1, log[-1][0] + 1))
    facts = [fact for _, fact in log]
    assert audit(facts, drained=True, seqs=[seq for seq, _ in log]) == []
    assert sum(isinstance(fact, JobSubmitted) for fact in facts) == trimmed.jobs
    done = Counter(fact.job_id for fact in facts if isinstance(fact, JobCompleted))
    assert len(done) == trimmed.jobs
    assert set(done.values()) == {1}


async def test_a_backup_has_the_archive_too(trimmed: Trimmed, tmp_path: Path) -> None:
    file, second = tmp_path / "backup.tar", tmp_path / "second"
    done = await trimmed.backed_up(file)
    assert done.archived > 0
    known = (await trimmed.log())[: done.last_seq]
    assert (await asyncio.to_thread(restore, file, second)).archived == done.archived
    async with stack_and_client(second, archive_file_messages=FILE_MESSAGES) as (_, client):
        again = [(line.seq, line.fact()) async for line in client.events()]
        assert again[: done.last_seq] == known
    rebuilt = await asyncio.to_thread(rebuild, second, None, Settings())
    assert (rebuilt.facts, rebuilt.lacks) == (await _length(second), "")
    assert rebuilt.observations > 0


async def _length(data: Path) -> int:
    async with offline_nats(data) as connection:
        return await JetStreamBus(connection).last_seq()


async def test_a_damaged_file_of_the_archive_is_named(trimmed: Trimmed, tmp_path: Path) -> None:
    files_there = sorted((trimmed.stack.data / "archive").glob("facts-*"))
    hurt = files_there[1]
    whole = hurt.read_bytes()
    hurt.write_bytes(whole[: len(whole) // 2])
    try:
        with pytest.raises(Failure, match=hurt.name):
            await trimmed.log()
        assert (await trimmed.backed_up(tmp_path / "backup.tar")).damaged == (hurt.name,)
    finally:
        hurt.write_bytes(whole)
    moved = hurt.rename(hurt.with_suffix(".moved"))
    try:
        with pytest.raises(Failure, match="the archive lacks facts 51 to 100"):
            await trimmed.log()
        await until(
            trimmed.client,
            lambda status: any(
                "lacks facts 51 to 100" in text for one in status.services for text in one.troubles
            ),
        )
    finally:
        moved.rename(hurt)
    assert len(await trimmed.log()) > FILE_MESSAGES
