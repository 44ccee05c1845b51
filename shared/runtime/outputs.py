"""Writes files that a user named: the whole of a file or nothing. Links stay links, pipes and devices too."""

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from shared.runtime import owner_only
from shared.runtime.disk import check_folder, naming

OPEN_ELSEWHERE = ("/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/fd", "/proc")
"""places of files that some program has open: it would not see a new one"""


def place_of(path: Path) -> Path | None:
    """The place of the file, links followed; None: what is there is no file, as a pipe. Raises OSError."""
    if any(path.absolute().is_relative_to(place) for place in OPEN_ELSEWHERE):
        return None
    try:
        there = path.stat()
    except FileNotFoundError:
        return Path(os.path.realpath(path))
    return Path(os.path.realpath(path)) if stat.S_ISREG(there.st_mode) else None


def check(path: Path) -> None:
    """Raise OSError if the file could not be written now. What is there stays as it is."""
    place = place_of(path)
    if place is not None and not _is_fixed(place):
        check_folder(place.parent)
    if path.exists() and not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))


@contextlib.contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """A context with the file, to be written. Unless it ends well, what was there stays. Raises OSError."""
    place = place_of(path)
    with naming(path), path.open("wb") if place is None or _is_fixed(place) else _beside(place) as out:
        yield out


@contextlib.contextmanager
def _beside(place: Path) -> Iterator[BinaryIO]:
    draft = place.with_name(f".hopyard-{secrets.token_hex(8)}")
    try:
        with draft.open("xb") as out:
            if place.exists():
                _take_mode(out, place)
            yield out
        draft.replace(place)
    except OSError as error:
        if str(error.filename) == str(draft):
            error.filename = str(place)
            del error.filename2
        raise
    finally:
        with contextlib.suppress(OSError):  # as of a read-only disk, which would be said of the draft
            draft.unlink()


def write(path: Path, data: bytes) -> None:
    with opened(path) as out:
        out.write(data)


def write_secret(path: Path, data: bytes) -> None:
    """Write a file for its owner alone. Who names a pipe decides who reads it."""
    place = place_of(path)
    if place is not None:
        owner_only.write(place, data)
        return
    with naming(path), path.open("wb") as out:
        out.write(data)


def _is_fixed(place: Path) -> bool:
    """Whether the file can be written, and not replaced, or not by one of the same owner."""
    if not place.exists():
        return False
    mine = place.stat().st_uid == os.geteuid()
    return not mine or not os.access(place.parent, os.W_OK | os.X_OK) or os.path.ismount(place)


def _take_mode(out: BinaryIO, place: Path) -> None:
    """Give the new file the mode of the old one. Raises PermissionError if that may not be written."""
    with place.open("r+b") as there:
        os.fchmod(out.fileno(), stat.S_IMODE(os.fstat(there.fileno()).st_mode))
