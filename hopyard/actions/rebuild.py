"""Rebuilds the estimator's store from what NATS has logged, while no stack runs on the folder."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from hopyard.failures import Failure, Invalid
from hopyard.local.damage import ARCHIVE
from hopyard.local.data_folder import claimed, cluster_time, store_of
from hopyard.local.offline_nats import offline_nats
from schemas.archive import lines_of
from schemas.base import Message
from schemas.codec import Malformed
from schemas.questions import ArchiveKind
from schemas.samples import ThroughputObserved
from schemas.settings import Settings
from schemas.subjects import (
    ALL_FACTS,
    FACTS_STREAM,
    OBSERVATIONS_STREAM,
    is_subject_of,
    is_subject_of_sample,
    was_subject_of,
)
from services.estimator.remake import Remake, from_export
from services.monitor.archive.files import UnreadableFile
from services.monitor.archive.reader import messages_before
from shared.domain.invariants import read_fact, read_sample
from shared.domain.iteration import law_of
from shared.runtime import owner_only
from shared.runtime.bus.contract import Unavailable
from shared.runtime.bus.jetstream import JetStreamBus
from shared.runtime.bus.jetstream.integrity import messages
from shared.runtime.damage import ranges_text
from shared.runtime.process.nats_servers import servers_begun

StoredMessage = tuple[str, bytes]
"""a message, with the subject on which it was published"""
T = TypeVar("T")


class Rebuilt(Message, frozen=True, kw_only=True):
    file: str
    facts: int
    observations: int
    lines: int
    """entries of the export with which the store begins"""
    lacks: str
    """facts that neither NATS nor the archive has; empty: none"""
    kept: str
    """where the old file is now; empty: there was none"""


def rebuild(
    data: Path, export: Path | None, settings: Settings, instance: int = 1, archive: Path | None = None
) -> Rebuilt:
    """Make the store of the estimator with these settings and this instance number.

    `archive`: the stack's; None: the one in the folder. Raises Claimed, Invalid, Failure; then the old
    file is where it was.
    """
    if not (data / "nats").exists():
        raise Invalid(f"{data} is not the data folder of a stack: NATS has stored nothing there")
    if servers_begun(data / "nats") > 1:
        raise Invalid(f"{data} has several NATS servers: let an empty store learn from an export")
    target, counts = store_of(data, instance), law_of(settings.equations_as_printed).counts
    draft = target.with_name(f".{target.name}.draft")
    with claimed(data), owner_only.alone():
        _remove(draft)
        try:
            lines = 0 if export is None else _from_export(draft, export, settings)
            made = Remake(draft, settings.evidence_half_life_s, counts=counts, now=cluster_time(data))
            with contextlib.closing(made):
                lacks = asyncio.run(_learnt(made, data, archive or data / ARCHIVE))
            kept = _set_aside(target)
            draft.replace(target)
        except (Unavailable, RuntimeError) as error:
            raise Failure(f"NATS in {data} does not hand over what it has logged: {error}") from None
        except UnreadableFile as error:
            raise Failure(f"a file of the archive is damaged: {error}; without it, move it away") from None
        except OSError as error:
            raise Failure(f"{target}: {error.strerror or error}") from None
        finally:
            _remove(draft)
    return Rebuilt(
        file=str(target),
        facts=made.facts,
        observations=made.observations,
        lines=lines,
        lacks=ranges_text(lacks),
        kept="" if kept is None else str(kept),
    )


def _from_export(draft: Path, export: Path, settings: Settings) -> int:
    counts = law_of(settings.equations_as_printed).counts
    try:
        with export.open("rb") as file:
            lines = (line.rstrip(b"\n") for line in lines_of(file))
            return from_export(draft, lines, settings.evidence_half_life_s, counts=counts)
    except ValueError as error:
        raise Invalid(f"{export}: {error}") from None


async def _learnt(made: Remake, data: Path, archive: Path) -> tuple[range, ...]:
    """Handle the messages of archive and streams as one log; returns which facts neither has.

    The archive is read in a thread, since NATS disconnects a client that does not answer meanwhile.
    """
    async with offline_nats(data) as connection:
        streams = JetStreamBus(connection)
        older, lacks = messages_before(archive, ArchiveKind.FACTS, (await streams.extent(FACTS_STREAM)).first)
        await _in_thread(_learn, made, older)
        async for message in messages(connection, FACTS_STREAM, ALL_FACTS):
            _learn(made, message)
        earlier, _ = messages_before(
            archive, ArchiveKind.OBSERVATIONS, (await streams.extent(OBSERVATIONS_STREAM)).first
        )
        await _in_thread(_observe, made, earlier)
        async for message in messages(connection, OBSERVATIONS_STREAM, ">"):
            _observe(made, message)
    return lacks


async def _in_thread(take: Callable[[Remake, T], None], made: Remake, archived: Iterator[T]) -> None:
    """Read the archive in a thread, which ends at the next message when the caller is cancelled."""
    over = threading.Event()

    def each() -> None:
        for message in archived:
            if over.is_set():
                return
            take(made, message)

    try:
        await asyncio.to_thread(each)
    finally:
        over.set()


def _learn(made: Remake, message: StoredMessage) -> None:
    """Handle one message. As in the services, an unreadable or misplaced one is passed over."""
    subject, raw = message
    with contextlib.suppress(Malformed):
        fact = read_fact(raw)
        if fact is not None and (is_subject_of(fact, subject) or was_subject_of(fact, subject)):
            made.learn(fact)


def _observe(made: Remake, message: StoredMessage) -> None:
    subject, raw = message
    with contextlib.suppress(Malformed):
        sample = read_sample(raw)
        if isinstance(sample, ThroughputObserved) and is_subject_of_sample(sample, subject):
            made.observe(sample)


def _set_aside(file: Path) -> Path | None:
    """Move the old file away, with DuckDB's log beside it, which belongs to it."""
    if not file.exists():
        _remove(file)
        return None
    number = 1
    while (aside := file.with_name(f"{file.name}.damaged-{number}")).exists():
        number += 1
    file.replace(aside)
    wal = file.with_name(f"{file.name}.wal")
    if wal.exists():
        wal.replace(aside.with_name(f"{aside.name}.wal"))
    return aside


def _remove(file: Path) -> None:
    for each in (file, file.with_name(f"{file.name}.wal")):
        each.unlink(missing_ok=True)
