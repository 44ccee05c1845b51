"""The file of a backup: a tar whose first member says what is in it, part by part, with digests.

It holds digests of users' tokens, but no token or password: the stack's own credentials are created again.
"""

import hashlib
import os
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import msgspec

from hopyard.failures import Failure, Invalid
from schemas.base import Message
from shared.runtime import outputs, owner_only
from shared.runtime.disk import sync

FORMAT = 1
MANIFEST = "backup.json"
DIGEST = "backup.sha256"
"""the member with the digest of the manifest"""
DRAFT = "backup.tar"
STORE = "store.ndjson"
STREAMS = "streams"
FILES = "files"
ARCHIVE = "archive"
CHECKPOINTS = "checkpoints"
"""the folder with a folder for each job"""
MANIFEST_MAX_BYTES = 64 * 1024 * 1024
"""some 400,000 parts, which are 4e9 messages in the archive"""
DIGEST_MAX_BYTES = 256
COPIED_AT_ONCE = 1024 * 1024
Raw = dict[str, Any]
Count = Annotated[int, msgspec.Meta(ge=0)]


class BackupPart(Message, frozen=True, kw_only=True):
    """A member of the tar."""

    size: Count
    sha256: str


class StreamPart(Message, frozen=True, kw_only=True):
    """A stream as the server described it."""

    config: Raw
    state: Raw


class Manifest(Message, frozen=True, kw_only=True):
    format: int
    hopyard: str
    """version of hopyard that wrote it"""
    made_at: float
    """Unix time"""
    cluster: str
    speed: float
    origin: float
    """Unix time of cluster second 0"""
    revision: int
    """newest revision of the state bucket when the backup ended"""
    settings: dict[str, str | int | float | bool]
    """settings that were chosen for the stack; no secrets or addresses"""
    streams: dict[str, StreamPart]
    parts: dict[str, BackupPart]
    left_out: str = ""
    """files that jobs need and the backup does not have, with their place"""


def part_of(file: Path) -> BackupPart:
    digest = hashlib.sha256()
    with file.open("rb") as data:
        while some := data.read(COPIED_AT_ONCE):
            digest.update(some)
    return BackupPart(size=file.stat().st_size, sha256=digest.hexdigest())


def parts_of(folder: Path) -> dict[str, BackupPart]:
    files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
    return {str(file.relative_to(folder)): part_of(file) for file in files}


def place_of(target: Path) -> Path:
    """The place of the file, links followed. Raises Invalid for a pipe or a device: others may read it."""
    try:
        place = outputs.place_of(target)
    except OSError as error:
        raise Invalid(f"{target}: {error.strerror}") from None
    if place is None:
        raise Invalid(f"{target}: is not a file; a backup needs one, which only its owner can read")
    return place


def write(target: Path, manifest: Manifest, folder: Path) -> int:
    """Write the file atomically, for its owner alone; its size in bytes. Raises Failure.

    `folder`: this backup's own, on the disk of `target`, which is no link.
    """
    draft = folder / DRAFT
    head = folder / MANIFEST
    listed = msgspec.json.encode(manifest)
    if len(listed) > MANIFEST_MAX_BYTES:
        raise Failure(
            f"{target}: its list of {len(manifest.parts)} parts would have {len(listed)} bytes, "
            f"and `hopyard restore` takes {MANIFEST_MAX_BYTES}; nothing was written"
        )
    owner_only.write(head, listed, lasting=False)
    owner_only.write(folder / DIGEST, part_of(head).sha256.encode(), lasting=False)
    try:
        with owner_only.appended(draft) as file:
            with tarfile.open(fileobj=file, mode="w|") as tar:
                for name in (MANIFEST, DIGEST, *manifest.parts):
                    tar.add(folder / name, name, recursive=False)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
        sync(target.parent)
        return target.stat().st_size
    except OSError as error:
        raise Failure(f"{target}: {error.strerror or error}; nothing was written") from None
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def opened(path: Path) -> Iterator["Backup"]:
    """Open a backup. Raises Invalid if it is incomplete, or of a format that this version cannot read."""
    try:
        with tarfile.open(path, "r:") as tar:
            yield Backup(path, tar)
    except (tarfile.TarError, EOFError) as error:
        raise Invalid(f"{path}: not a backup, or a damaged one: {error}") from None
    except OSError as error:
        raise Invalid(f"{path}: {error.strerror or error}") from None


class Backup:
    """A backup. It is checked as a whole before any part is used."""

    def __init__(self, path: Path, tar: tarfile.TarFile) -> None:
        self._path = path
        self._tar = tar
        self.manifest = self._manifest()
        self._check()

    def part(self, name: str) -> BinaryIO:
        """A part, to be read. Raises Invalid unless it is a plain file: a sparse one may never end."""
        try:
            member = self._tar.getmember(name)
            found = self._tar.extractfile(member) if member.isreg() and not member.issparse() else None
        except KeyError:
            found = None
        if found is None:
            raise Invalid(f"{self._path}: damaged: {name} is not there")
        return found  # type: ignore[return-value]

    def owner(self, name: str) -> tuple[int, int]:
        """The user and the group of a part."""
        member = self._tar.getmember(name)
        return member.uid, member.gid

    def small(self, name: str, at_most: int) -> bytes:
        """A whole part. Raises Invalid if it is larger than allowed."""
        with self.part(name) as data:
            found = data.read(at_most + 1)
        if len(found) > at_most:
            raise Invalid(f"{self._path}: {name} in it is larger than {at_most} bytes")
        return found

    def names(self, folder: str) -> list[str]:
        """Names of the parts in a folder, without the folder."""
        return [
            name.removeprefix(f"{folder}/") for name in self.manifest.parts if name.startswith(f"{folder}/")
        ]

    def _manifest(self) -> Manifest:
        member = self._tar.next()
        if member is None or member.name != MANIFEST:
            raise Invalid(f"{self._path}: not a backup: its first part is not {MANIFEST}")
        try:
            data = self.small(MANIFEST, MANIFEST_MAX_BYTES)
            if self.small(DIGEST, DIGEST_MAX_BYTES) != hashlib.sha256(data).hexdigest().encode():
                raise Invalid(f"{self._path}: damaged: {MANIFEST} in it is not what was written")
            form = msgspec.json.decode(data, type=_Form).format
            if form != FORMAT:
                raise Invalid(f"{self._path}: a backup of format {form}, and this hopyard reads {FORMAT}")
            return msgspec.json.decode(data, type=Manifest)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Invalid(f"{self._path}: {MANIFEST} in it is damaged: {error}") from None

    def _check(self) -> None:
        """Check that every part is there, as it was written. Raises Invalid."""
        members = {member.name: member for member in self._tar.getmembers()}
        for name, part in self.manifest.parts.items():
            member = members.get(name)
            if member is None or member.size != part.size:
                raise Invalid(f"{self._path}: damaged: {name} is cut short, or not there")
            digest = hashlib.sha256()
            with self.part(name) as data:
                while some := data.read(COPIED_AT_ONCE):
                    digest.update(some)
            if digest.hexdigest() != part.sha256:
                raise Invalid(f"{self._path}: damaged: {name} is not what was written")


class _Form(msgspec.Struct):
    format: int
