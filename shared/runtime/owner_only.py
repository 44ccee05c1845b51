"""Files and folders that only their owner can read: what a stack stores, and its credentials."""

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from shared.runtime import disk

FOLDER, FILE = 0o700, 0o600
PASSED = 0o711
"""mode of a folder that other accounts may pass through but not list"""
OTHERS = 0o077
UMASK = OTHERS
"""umask of a process whose files are for its owner alone"""


class Exposed(OSError):
    """Another account can read, write or replace the file; the text says what to do."""


def make_folder(folder: Path, mode: int = FOLDER) -> None:
    """Make the folder, or close it to other accounts. Raises Exposed if another account owns it."""
    disk.make_folder(folder, FOLDER)
    found = folder.stat()
    if found.st_uid != os.geteuid():
        raise Exposed(f"{folder} belongs to another account; it holds credentials of this one")
    if stat.S_IMODE(found.st_mode) & OTHERS & ~mode:
        folder.chmod(mode)


def make_parents(path: Path) -> None:
    """Make the folders that are to hold the path. Raises NotADirectoryError if a file is in their way."""
    disk.make_folder(path.parent, FOLDER)


def write(path: Path, data: bytes, *, lasting: bool = True) -> None:
    """Write a file atomically: a reader sees all of it or nothing, and it is never open to others.

    It is on the disk when this returns, unless it need not outlive a power cut, which `lasting` says.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            if lasting:
                file.flush()
                os.fsync(file.fileno())
        draft.replace(path)
        if lasting:
            disk.sync(path.parent)
    except BaseException as error:
        with contextlib.suppress(OSError):  # as of a read-only disk, which would be said of the draft
            draft.unlink()
        if isinstance(error, OSError):
            error.filename = str(path)
        raise


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """A context in which files that this process makes, also in libraries, are for their owner alone."""
    before = os.umask(UMASK)
    try:
        yield
    finally:
        os.umask(before)


def appended(path: Path) -> BinaryIO:
    """The file, opened to append; a new one is for its owner alone."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, FILE), "ab")


def read_secret(path: Path) -> bytes:
    """The content of a file with a secret. Raises OSError; Exposed if others can read it.

    Its group may read it, since that is how the account of a container gets a secret, and may not write it.
    """
    with path.open("rb") as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        if mode & 0o027:
            raise Exposed(f"{path} holds a secret, and others can read or write it: chmod 600 {path}")
        return file.read()
