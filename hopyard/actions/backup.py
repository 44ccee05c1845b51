"""Backs a whole stack up into one file, while it runs.

Snapshots of services are copied first, then their cursors and claims, then the facts. So the file holds a
state as after a crash of all services, from which every service can start.
"""

import asyncio
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from hopyard.actions.archived import archived_files
from hopyard.actions.archived import copied as copied_file
from hopyard.actions.checkpoints import CheckpointsTaken, WantedCheckpoints, copy_all
from hopyard.actions.quarantined import StateOf
from hopyard.failures import Failure, Unreachable
from hopyard.local import backup_file
from hopyard.local.backup_file import (
    ARCHIVE,
    CHECKPOINTS,
    FILES,
    FORMAT,
    STORE,
    STREAMS,
    Manifest,
    StreamPart,
)
from hopyard.local.credentials import (
    EXPELLED,
    FOLDER,
    NATS,
    OF_STACK_ITSELF,
    TOKENS,
    folder_of,
    tokens_of,
)
from hopyard.local.data_folder import CLUSTER
from schemas.archive import VERSION, Header, encoded
from schemas.base import Message
from schemas.questions import ArchiveKind, ExportStore, Refused, StorePage
from schemas.subjects import DEAD_STREAM, FACTS_STREAM, OBSERVATIONS_STREAM
from schemas.tokens import TokensFile
from schemas.views import SettingsView
from services.monitor.archive.files import UnreadableFile, read
from services.monitor.archive.plan import Segment
from shared.runtime import owner_only
from shared.runtime.bus.contract import Unavailable
from shared.runtime.bus.jetstream.connection import Connection
from shared.runtime.bus.jetstream.copies import NotCopied, StreamCopy, copy_stream, last_seq_of
from shared.runtime.bus.jetstream.questions import JetStreamQuestions
from shared.runtime.bus.jetstream.streams import SNAPSHOT_STREAM, STATE_STREAM
from shared.runtime.process.joining import Shared, announced
from shared.runtime.settings import DEFAULT

IN_ORDER = (SNAPSHOT_STREAM, STATE_STREAM, FACTS_STREAM, OBSERVATIONS_STREAM, DEAD_STREAM)
STREAM_OF = {ArchiveKind.FACTS: FACTS_STREAM, ArchiveKind.OBSERVATIONS: OBSERVATIONS_STREAM}
OF_FOLDER = {CLUSTER: "cluster", "catalogue.json": "catalogue"}
"""files of the data folder, each with the setting that names it, without which the stack does not use it"""
THE_STACKS = "the stack itself"
"""source of the settings that `hopyard up` decides, in the list of settings"""
HIDDEN = "***"
STORE_TIMEOUT_S = 120.0
LINES_AT_ONCE = 10_000


class BackedUp(Message, frozen=True, kw_only=True):
    file: str
    bytes: int
    facts: int
    last_seq: int
    """sequence of the newest fact"""
    store_lines: int
    archived: int
    """number of archived files"""
    damaged: tuple[str, ...]
    """files of the archive that were damaged before"""
    checkpoints: int
    left_out: str
    """what jobs need and the backup lacks, and where it is; empty: nothing"""
    made_at: float


class BesideNats(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a stack that are not in NATS."""

    data: Path | None
    """its data folder; None: it is not on this machine"""
    settings: SettingsView
    version: str
    """of hopyard"""
    checkpoints: WantedCheckpoints | None = None
    """None: they stay where they are"""


async def back_up(connection: Connection, target: Path, stack: BesideNats) -> BackedUp:
    """Raises Failure, Unavailable."""
    try:
        with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as name:
            return await _back_up(connection, target, stack, Path(name))
    except NotCopied as error:
        raise Failure(f"NATS does not hand over a stream: {error}") from None
    except OSError as error:
        if isinstance(error, Unavailable) or (isinstance(error, PermissionError) and error.errno is None):
            raise
        raise Failure(f"{target}: {error.strerror or error}; nothing was written") from None


async def _back_up(connection: Connection, target: Path, stack: BesideNats, folder: Path) -> BackedUp:
    owner_only.make_folder(folder / STREAMS)
    if stack.data is not None:
        copy_files(stack.data, folder / FILES, stack.settings)
    shared = await _shared(connection)
    lines = await _copy_store(connection, folder / STORE)
    streams = {stream: await _copy_stream(connection, stream, folder) for stream in IN_ORDER}
    archive, damaged = await _copy_archive(connection, streams, folder / ARCHIVE)
    taken = (
        CheckpointsTaken(0, ())
        if stack.checkpoints is None
        else await _copy_checkpoints(stack.checkpoints, folder)
    )
    stays = left_out(stack, taken)
    manifest = Manifest(
        format=FORMAT,
        hopyard=stack.version,
        made_at=time.time(),
        cluster=str(shared.get("cluster_name", "")),
        speed=float(shared["speed"]),
        origin=float(shared["clock_origin"]),
        revision=await last_seq_of(connection, STATE_STREAM),
        settings=chosen_in(stack.settings),
        streams={name: StreamPart(config=one.config, state=one.state) for name, one in streams.items()},
        parts=backup_file.parts_of(folder),
        left_out=stays,
    )
    written = await asyncio.to_thread(backup_file.write, target, manifest, folder)
    facts = streams[FACTS_STREAM]
    return BackedUp(
        file=str(target),
        bytes=written,
        facts=int(facts.state.get("messages", 0)),
        last_seq=facts.last_seq,
        store_lines=lines,
        archived=archive,
        damaged=damaged,
        checkpoints=taken.files,
        left_out=stays,
        made_at=manifest.made_at,
    )


async def _copy_archive(
    connection: Connection, streams: Mapping[str, StreamCopy], folder: Path
) -> tuple[int, tuple[str, ...]]:
    """Copy the archive, after the streams; returns the number of files, and which are damaged.

    The archive then has every message that the streams have dropped. Facts that are newer than the copied
    stream are left out: in a restored stack other facts will have their sequences.
    """
    owner_only.make_folder(folder)
    ends = {kind: streams[stream].last_seq for kind, stream in STREAM_OF.items()}
    there = [file for file in await archived_files(connection) if file.last <= ends[file.kind]]
    damaged = []
    for file in there:
        await copied_file(connection, file, folder / file.name)
        try:
            await asyncio.to_thread(read, folder, Segment(file.kind, file.first, file.last))
        except UnreadableFile:
            damaged.append(file.name)
    return len(there), tuple(damaged)


async def _copy_checkpoints(want: WantedCheckpoints, folder: Path) -> CheckpointsTaken:
    """Copy checkpoints, last of all: a job goes on from the checkpoint on disk, whatever the facts say."""
    return await asyncio.to_thread(copy_all, want, folder / CHECKPOINTS)


async def _copy_stream(connection: Connection, stream: str, folder: Path) -> StreamCopy:
    with owner_only.appended(folder / STREAMS / stream) as out:
        return await copy_stream(connection, stream, out)


async def _copy_store(connection: Connection, file: Path) -> int:
    """Copy what the estimator knows, as `hopyard store export` does; returns the lines. Raises Failure."""
    questions, after, lines = JetStreamQuestions(connection), 0, 0
    with owner_only.appended(file) as out:
        out.write(encoded(Header(version=VERSION)) + b"\n")
        while True:
            page = await questions.ask(ExportStore(after=after, limit=LINES_AT_ONCE), STORE_TIMEOUT_S)
            if not isinstance(page, StorePage):
                reason = page.reason if isinstance(page, Refused) else "an answer of the wrong kind"
                raise Failure(f"the estimator does not hand over its store: {reason}")
            out.writelines(line + b"\n" for line in page.lines)
            lines += len(page.lines)
            if page.next is None:
                return lines
            after = page.next


def copy_files(data: Path, folder: Path, settings: SettingsView) -> None:
    """Copy what a stack needs that is in no stream and no store. `settings`: those in force."""
    for each in (folder, folder / FOLDER, folder / FOLDER / NATS):
        owner_only.make_folder(each)
    values = {one.name: one.value for one in settings.settings}
    for name, setting in OF_FOLDER.items():
        if values.get(setting) and (data / name).exists():
            owner_only.write(folder / name, (data / name).read_bytes(), lasting=False)
    for mark in folder_of(data).glob(f"{NATS}/*{EXPELLED}"):
        (folder / FOLDER / NATS / mark.name).touch()
    if tokens_of(data).exists():
        found = msgspec.json.decode(owner_only.read_secret(tokens_of(data)), type=TokensFile)
        of_users = TokensFile(tokens=tuple(one for one in found.tokens if one.note != OF_STACK_ITSELF))
        owner_only.write(folder / FOLDER / TOKENS, msgspec.json.encode(of_users), lasting=False)


def left_out(stack: BesideNats, taken: CheckpointsTaken) -> str:
    """What the backup leaves out: checkpoints of real jobs; emulated ones have none."""
    values = {one.name: one.value for one in stack.settings.settings}
    if values.get("runner") == "emulated":
        return ""
    if stack.checkpoints is not None:
        jobs = {"damaged": taken.without, "in folders of their own": stack.checkpoints.elsewhere}
        return "; ".join(f"checkpoints of {', '.join(ids)}: {why}" for why, ids in jobs.items() if ids)
    return f"checkpoints of jobs: {values.get('jobs_folder') or 'the jobs_folder of the agents'}"


def chosen_in(view: SettingsView) -> dict[str, str | int | float | bool]:
    return {
        one.name: one.value
        for one in view.settings
        if one.source not in {DEFAULT, THE_STACKS} and one.value != HIDDEN and not one.name.endswith("_url")
    }


async def _shared(connection: Connection) -> Shared:
    found = await announced(StateOf(connection))
    if found is None:
        raise Unreachable("no stack has begun on this NATS")
    return found
