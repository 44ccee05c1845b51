"""Makes sure that what was written outlives a power cut, and that a disk that takes nothing is named."""

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NOT_OF_FOLDERS = (errno.EINVAL, errno.EBADF)
"""errors of file systems that sync no folders, as some of networks: they have written the names already"""


def sync(path: Path) -> None:
    """Return once the content of a file, or the names in a folder, are on the disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in NOT_OF_FOLDERS or not path.is_dir():
            raise
    finally:
        os.close(descriptor)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """A context that writes `path`, or into that folder: the error of a write names no file, and gets it."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def check_folder(folder: Path) -> None:
    """Raise OSError if the folder takes no file now."""
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            file.write(b"x")
    except OSError as error:
        error.filename = str(folder)  # not that of a file which the user does not know
        raise


def make_folder(folder: Path, mode: int = 0o777) -> None:
    """Raises OSError: NotADirectoryError, not FileExistsError, where something else is there."""
    try:
        folder.mkdir(mode, parents=True, exist_ok=True)
    except FileExistsError as error:  # of a folder above, too
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), error.filename) from None
