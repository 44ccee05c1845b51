"""Reads the archive of a running stack by asking its monitor."""

from collections.abc import AsyncIterator
from pathlib import Path

from hopyard.failures import Failure
from schemas.questions import ArchivedFile, ArchiveFiles, ArchiveKind, ArchivePart, CopyArchive, ListArchive
from shared.runtime import owner_only
from shared.runtime.bus.jetstream.connection import Connection
from shared.runtime.bus.jetstream.questions import JetStreamQuestions

TIMEOUT_S = 30.0


async def archived_files(connection: Connection) -> tuple[ArchivedFile, ...]:
    """The archive's files, as the monitor lists them. Raises Unavailable, Failure."""
    reply = await JetStreamQuestions(connection).ask(ListArchive(), TIMEOUT_S)
    if not isinstance(reply, ArchiveFiles):
        raise Failure(f"the monitor does not show the archive: {reply}")
    return reply.files


async def archived(connection: Connection) -> range:
    """The sequence range of its facts, from its beginning to its first gap. Raises Unavailable, Failure."""
    facts = [file for file in await archived_files(connection) if file.kind is ArchiveKind.FACTS]
    if not facts:
        return range(1, 1)
    end = facts[0].first
    for file in facts:
        if file.first > end:
            break
        end = file.last + 1
    return range(facts[0].first, end)


async def copied(connection: Connection, file: ArchivedFile, target: Path) -> None:
    """Copy one file of the archive to `target`. Raises Unavailable, Failure, OSError."""
    written = 0
    with owner_only.appended(target) as out:
        async for part in _parts(connection, file):
            written += out.write(part)
    if written != file.bytes:
        raise Failure(f"{file.name} of the archive was not handed over whole")


async def _parts(connection: Connection, file: ArchivedFile) -> AsyncIterator[bytes]:
    offset = 0
    while offset < file.bytes:
        reply = await JetStreamQuestions(connection).ask(
            CopyArchive(name=file.name, offset=offset), TIMEOUT_S
        )
        if not isinstance(reply, ArchivePart) or not reply.data:
            raise Failure(f"the monitor does not hand over {file.name}: {reply}")
        yield reply.data
        offset += len(reply.data)
