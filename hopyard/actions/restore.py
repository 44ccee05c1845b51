"""Restores a backup into a new data folder, on which `hopyard up` then goes on."""

import asyncio
import contextlib
import os
import re
import secrets
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path
from shlex import quote

import msgspec

from hopyard.actions.checkpoints import restore_all
from hopyard.failures import Failure, Invalid
from hopyard.local import backup_file
from hopyard.local.backup_file import ARCHIVE, FILES, STORE, STREAMS, Backup
from hopyard.local.data_folder import CLOCK, CLUSTER, ClockFile, store_of
from hopyard.local.offline_nats import offline_nats
from schemas.base import Message
from schemas.settings import Settings
from services.estimator.remake import from_export
from services.monitor.archive.plan import segment_of
from shared.domain.iteration import law_of
from shared.runtime import owner_only
from shared.runtime.bus.contract import Unavailable
from shared.runtime.bus.jetstream import JetStreamBus
from shared.runtime.bus.jetstream.copies import NotCopied, StreamCopy, raise_revisions, restore_stream
from shared.runtime.disk import sync
from shared.runtime.files import BYTES_AT_MOST
from shared.runtime.process.reports import forget_reports
from shared.runtime.settings import converted

SETTINGS = "settings.json"
JOBS = "jobs"
"""name of the folder that `hopyard up` uses as `jobs_folder` unless that is set"""
NO_ARCHIVE = ("archive", "")
"""what the settings of a stack without an archive say; the stack may have dropped facts, and have no other"""
ITS_OWN = ("nats_replicas", "archive")
"""settings of the old stack that are not restored: the new one begins with one server and its own archive"""
KNOWN_FILES = re.compile(
    r"cluster\.json|catalogue\.json|credentials/tokens\.json|credentials/nats/[a-z0-9-]+\.expelled"
)


class Restored(Message, frozen=True, kw_only=True):
    data: str
    cluster: str
    facts: int
    last_seq: int
    store_lines: int
    archived: int
    """files"""
    checkpoints: int
    """checkpoints that are now in the new folder"""
    left_out: str
    """what jobs need and the backup lacks, and where it was; empty: nothing"""
    nats_servers: int
    """NATS servers that the old stack had; the new one has one"""
    made_at: float
    start: str
    """the command that starts the stack"""


def restore(source: Path, data: Path, *, checkpoints: bool = True) -> Restored:
    """Make the data folder, completely or not at all; with the backup's `checkpoints` if wanted.

    If `data` is a link, the folder is made where it leads. Raises Invalid for a damaged file or a folder that
    is not empty, Failure.
    """
    data = Path(os.path.realpath(data))  # `resolve` raises RuntimeError for a link to itself
    if data.exists() and (not data.is_dir() or any(data.iterdir())):
        raise Invalid(f"{data} exists and is not empty: choose another --data")
    with backup_file.opened(source) as backup, owner_only.alone():
        try:
            with _draft(data) as draft:
                files = restore_all(backup, draft / JOBS) if checkpoints else 0
                own = (*ITS_OWN, "jobs_folder") if files else ITS_OWN
                lines = _fill(backup, draft, data, own)
                if data.exists():
                    data.rmdir()
                sync(draft)
                draft.replace(data)
                sync(data.parent)
        except (NotCopied, Unavailable, RuntimeError) as error:
            raise Failure(f"NATS does not take the streams of {source}: {error}") from None
        except ValueError as error:
            raise Invalid(f"{source}: {error}") from None
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise Failure(f"{data}: {reason}; nothing is left of it") from None
        return _restored(backup, data, lines, files)


@contextlib.contextmanager
def _draft(data: Path) -> Iterator[Path]:
    """A folder beside the target, deleted afterwards unless it was renamed. Raises OSError."""
    owner_only.make_parents(data.absolute())
    draft = data.absolute().parent / f".{data.name}-{secrets.token_hex(8)}"
    try:
        draft.mkdir(owner_only.FOLDER)  # not before: a signal raises between any two lines
        yield draft
    finally:
        try:
            shutil.rmtree(draft, ignore_errors=True)
        except KeyboardInterrupt:  # a signal came only now
            shutil.rmtree(draft, ignore_errors=True)
            raise


def _fill(backup: Backup, data: Path, home: Path, own: Collection[str]) -> int:
    """Returns how many lines the store has. `home`: the final folder; `own`: settings left out."""
    manifest = backup.manifest
    clock = ClockFile(origin=manifest.origin, speed=manifest.speed)
    owner_only.write(data / CLOCK, msgspec.json.encode(clock) + b"\n")
    for name in backup.names(FILES):
        if not KNOWN_FILES.fullmatch(name):
            raise Invalid(f"{name} in a backup: no stack has such a file")
        owner_only.make_folder((data / name).parent)
        owner_only.write(data / name, backup.small(f"{FILES}/{name}", BYTES_AT_MOST))
    settings = _settings(backup, home, own)
    if settings:
        owner_only.write(data / SETTINGS, msgspec.json.format(msgspec.json.encode(settings)) + b"\n")
    half_life_s = float(settings.get("evidence_half_life_s", Settings().evidence_half_life_s))
    printed = str(settings.get("equations_as_printed", Settings().equations_as_printed))
    counts = law_of(printed).counts
    lines = from_export(store_of(data), backup.part(STORE), half_life_s, counts=counts)
    asyncio.run(_put_streams(backup, data))
    _put_archive(backup, data / ARCHIVE)
    return lines


def _put_archive(backup: Backup, folder: Path) -> None:
    for name in backup.names(ARCHIVE):
        if segment_of(name) is None:
            raise Invalid(f"{name} in a backup: no archive has such a file")
        owner_only.make_folder(folder)
        with owner_only.appended(folder / name) as out, backup.part(f"{ARCHIVE}/{name}") as part:
            shutil.copyfileobj(part, out)
            out.flush()
            os.fsync(out.fileno())
    if folder.is_dir():
        sync(folder)


async def _put_streams(backup: Backup, data: Path) -> None:
    async with offline_nats(data) as connection:
        for name, part in backup.manifest.streams.items():
            await restore_stream(
                connection, StreamCopy(part.config, part.state), backup.part(f"{STREAMS}/{name}")
            )
        await raise_revisions(connection, backup.manifest.revision)
        await forget_reports(JetStreamBus(connection))


def _settings(backup: Backup, home: Path, own: Collection[str]) -> dict[str, str | int | float | bool]:
    """The settings of the backup, without those that this version no longer has."""
    fields = {field.name: field.type for field in msgspec.structs.fields(Settings)}
    chosen = {
        name: converted(value, fields[name], f"{name} in the backup")
        for name, value in backup.manifest.settings.items()
        if name in fields and (name not in own or (name, value) == NO_ARCHIVE)
    }
    if "catalogue.json" in backup.names(FILES):
        chosen["catalogue"] = str(home / "catalogue.json")
    return chosen


def _restored(backup: Backup, data: Path, lines: int, checkpoints: int) -> Restored:
    manifest = backup.manifest
    facts = manifest.streams.get("HOPYARD")
    state = facts.state if facts else {}
    return Restored(
        data=str(data),
        cluster=manifest.cluster,
        facts=int(state.get("messages", 0)),
        last_seq=int(state.get("last_seq", 0)),
        store_lines=lines,
        archived=len(backup.names(ARCHIVE)),
        checkpoints=checkpoints,
        left_out=manifest.left_out,
        nats_servers=int((facts.config if facts else {}).get("num_replicas", 1)),
        made_at=manifest.made_at,
        start=_start(manifest, data),
    )


def _start(manifest: backup_file.Manifest, data: Path) -> str:
    words = ["hopyard", "up", "--data", str(data)]
    if (data / CLUSTER).exists():
        words += ["--cluster", str(data / CLUSTER)]
    else:
        words += ["--listen", "HOST:PORT"]
    if manifest.speed != 1.0:
        words += ["--speed", f"{manifest.speed:g}"]
    before = [f"HOPYARD_SETTINGS={quote(str(data / SETTINGS))}"] if (data / SETTINGS).exists() else []
    return " ".join([*before, *map(quote, words)])
