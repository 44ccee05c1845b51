"""Files and folders that only their owner can read: what a stack stores, and its credentials."""

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

FOLDER, FILE = 0o700, 0o600
PASSED = 0o711
"""mode of a folder that other accounts may pass through but not list"""
OTHERS = 0o077
UMASK = OTHERS
"""umask of a process whose files are for its owner alone"""


class Exposed(OSError):
    """Somebody else can read it, write it, or put something else in its place; the text says what to do."""


def make_folder(folder: Path, mode: int = FOLDER) -> None:
    """Make the folder, or close it to other accounts. Raises Exposed if another account owns it."""
    folder.mkdir(mode=FOLDER, parents=True, exist_ok=True)
    found = folder.stat()
    if found.st_uid != os.geteuid():
        raise Exposed(f"{folder} belongs to another account; it holds credentials of this one")
    if stat.S_IMODE(found.st_mode) & OTHERS & ~mode:
        folder.chmod(mode)


def write(path: Path, data: bytes) -> None:
    """Write a file atomically: a reader sees all of it or nothing, and it is never open to others."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        draft.replace(path)
    except BaseException as error:
        draft.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename = str(path)
        raise


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """A context in which every file that this process makes, in any library, is its owner's alone."""
    before = os.umask(UMASK)
    try:
        yield
    finally:
        os.umask(before)


def appended(path: Path) -> BinaryIO:
    """Open a file to append; if it is new, it is its owner's alone."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, FILE), "ab")


def read_secret(path: Path) -> bytes:
    """A file that holds a secret. Raises OSError; Exposed for one that everybody can read or write.

    Its group may read it: so a secret is handed to the account of a container.
    """
    with path.open("rb") as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        if mode & 0o027:
            raise Exposed(f"{path} holds a secret, and others can read or write it: chmod 600 {path}")
        return file.read()
