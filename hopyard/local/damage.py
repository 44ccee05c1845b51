"""Finds damage to a stack's stored data before its services use it."""

import asyncio
import time
from pathlib import Path

from hopyard.failures import NotReady, StoreDamaged
from hopyard.local.data_folder import store_of
from hopyard.local.processes import Say
from schemas.questions import ArchiveKind
from schemas.settings import Settings
from services.monitor.archive.plan import coverage
from services.table import OF_CLUSTER
from shared.runtime.bus.contract import Unavailable
from shared.runtime.bus.jetstream.connection import Connection
from shared.runtime.bus.jetstream.integrity import Flaw, flaws
from shared.runtime.damage import REMEDY

CONNECT_TIMEOUT_S = 10.0
PATIENCE_S = 60.0
AGAIN_S = 0.5
ARCHIVE = "archive"
SERVICES = tuple(entry.name for entry in OF_CLUSTER)


def streams_on_disk(data: Path) -> set[str]:
    return {folder.name for folder in (data / "nats" / "jetstream").glob("*/streams/*")}


def archived_in(folder: Path) -> range:
    """Sequences of the facts that the archive has before its first gap, by the names of its files."""
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    there = coverage(names, ArchiveKind.FACTS)
    return range(there.begins or 1, (there.gaps[0].start if there.gaps else there.ends + 1))


async def check_streams(data: Path, settings: Settings, say: Say, servers: int = 1) -> None:
    """Check the stored data. `settings`: those of the stack's NATS and archive.

    Raises StoreDamaged, unless the setting `allow_lost_facts` is on; NotReady if NATS cannot be asked.
    """
    found = await _after_patience(data, settings, servers)
    for flaw in found:
        if settings.allow_lost_facts or not flaw.grave:
            say(flaw.text)
    grave = [flaw.text for flaw in found if flaw.grave]
    if grave and not settings.allow_lost_facts:
        raise StoreDamaged(". ".join([*grave, REMEDY]))


async def _after_patience(data: Path, settings: Settings, servers: int) -> list[Flaw]:
    """The flaws left once several servers had time to connect, and to repair what one of them had lost."""
    until = time.monotonic() + (PATIENCE_S if servers > 1 else 0.0)
    while True:
        found = await _found(data, settings)
        if not any(flaw.grave for flaw in found) or time.monotonic() > until:
            return found
        await asyncio.sleep(AGAIN_S)


async def _found(data: Path, settings: Settings) -> list[Flaw]:
    there = streams_on_disk(data)
    if not there and store_of(data).exists():  # NATS' folder is gone
        return [Flaw(f"{data / 'nats'} holds no stream, though a stack ran here: all jobs are lost")]
    connection = Connection(settings, "up")
    try:
        await _open(connection)
        if not there:  # the stack's first start
            return []
        archived = archived_in(Path(settings.archive or data / ARCHIVE))
        return await flaws(connection, there, SERVICES, archived)
    except Unavailable as error:
        return [Flaw(f"NATS does not say what it has stored: {error}")]
    finally:
        await connection.close()


async def _open(connection: Connection) -> None:
    """Raises NotReady for a server that we do not trust, or that does not let us in: that is no damage."""
    try:
        await connection.open(CONNECT_TIMEOUT_S)
    except (Unavailable, PermissionError) as error:
        raise NotReady(str(error)) from None
