"""Checkpoints of unfinished jobs for a backup: the newest complete one of each.

These are the files that the plug-in writes, named after their samples and the CRC-32 of their bytes. A job's
account may own the folder and put anything there, so no link in it is followed.
"""

import contextlib
import os
import re
import shutil
import stat
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec

from hopyard.failures import Failure, Invalid
from hopyard.local.backup_file import CHECKPOINTS, Backup
from hopyard.show.units import memory, plural
from schemas.ids import JobId
from schemas.views import JobView
from shared.runtime import owner_only
from shared.runtime.disk import sync

NAME = re.compile(r"[0-9]{15}-(?P<crc>[0-9a-f]{8})\.pt")
PART = re.compile(rf"(?P<job>[A-Za-z0-9_-]+)/(?P<name>{NAME.pattern})")
BLOCK = 1 << 20
LOOKS = 3
IN_JOB = "checkpoints"
"""the folder of checkpoints within a job's folder"""


class WantedCheckpoints(msgspec.Struct, frozen=True):
    """The jobs whose checkpoints are wanted, where they are, and their largest total size."""

    folder: Path
    """`jobs_folder`"""
    jobs: tuple[JobId, ...]
    elsewhere: tuple[JobId, ...]
    """jobs whose checkpoints are in another folder; on another machine its path may belong to another user"""
    bytes_max: int


class CheckpointsTaken(msgspec.Struct, frozen=True):
    files: int
    without: tuple[JobId, ...]
    """jobs with checkpoints of which none is complete and undamaged"""


def wanted(folder: str, jobs: Iterable[JobView], bytes_max: int) -> WantedCheckpoints:
    """Raises Invalid where there is no such folder."""
    if not folder:
        raise Invalid("the stack has no jobs_folder, and so no checkpoints of real jobs")
    if not Path(folder).is_dir():
        raise Invalid(f"{folder} is not here: take checkpoints where jobs_folder can be read")
    views = list(jobs)
    return WantedCheckpoints(
        folder=Path(folder),
        jobs=tuple(view.job_id for view in views if not view.spec.checkpoint_folder),
        elsewhere=tuple(view.job_id for view in views if view.spec.checkpoint_folder),
        bytes_max=bytes_max,
    )


def size_of(want: WantedCheckpoints) -> tuple[int, int]:
    """(number of jobs with checkpoints, largest number of bytes that these can have), without reading any."""
    sizes = [size for job in want.jobs if (size := _size(want.folder, job))]
    return len(sizes), sum(sizes)


def _size(folder: Path, job: JobId) -> int:
    """The size of a checkpoint; 0 if there is none, or another was just written."""
    with contextlib.suppress(OSError):
        paths = [folder / job / IN_JOB / name for name in _names(folder, job)]
        return max([path.lstat().st_size for path in paths], default=0)
    return 0


def check_room(want: WantedCheckpoints, target: Path) -> str:
    """What will be copied, in words. Raises Failure if it is larger than allowed, or does not fit."""
    count, size = size_of(want)
    text = f"checkpoints of {plural(count, 'job')}, {memory(size)}"
    if size > want.bytes_max:
        raise Failure(f"{text}: more than {memory(want.bytes_max)} (--checkpoints-max)")
    free = shutil.disk_usage(target.absolute().parent).free
    if free < 2 * size:  # the copies and the backup file exist at the same time
        raise Failure(f"{text}: they need twice that while the file is made, and {memory(free)} are free")
    return text


def copy_all(want: WantedCheckpoints, into: Path) -> CheckpointsTaken:
    """Raises Failure, OSError."""
    files, room = 0, want.bytes_max
    without: list[JobId] = []
    for job in want.jobs:
        size = _copy_newest(want.folder, job, into / job, room)
        room, files = room - size, files + (size > 0)
        if not size and (_names(want.folder, job) or _is_linked(want.folder / job)):
            without.append(job)
    return CheckpointsTaken(files, tuple(without))


def _is_linked(folder: Path) -> bool:
    return folder.is_symlink() or (folder / IN_JOB).is_symlink()


def _copy_newest(folder: Path, job: JobId, into: Path, room: int) -> int:
    """Bytes copied; 0: there is none. A running job may replace checkpoints between listing and copying."""
    for _ in range(LOOKS):
        for name in _names(folder, job):
            if size := _copy(folder, job, name, into, room):
                return size
    return 0


def restore_all(backup: Backup, into: Path) -> int:
    """Restore all checkpoints; how many files. Raises Invalid, OSError."""
    names = backup.names(CHECKPOINTS)
    if names:
        into.mkdir(exist_ok=True)
        into.chmod(
            owner_only.PASSED if os.geteuid() == 0 else owner_only.FOLDER
        )  # so that jobs' accounts can pass through to their folders
    for name in names:
        found = PART.fullmatch(name)
        if found is None:
            raise Invalid(f"{name} in a backup: no checkpoint has such a name")
        folder = into / found["job"] / IN_JOB
        folder.mkdir(parents=True, exist_ok=True)
        uid, gid = backup.owner(f"{CHECKPOINTS}/{name}")
        with owner_only.appended(folder / found["name"]) as out, backup.part(f"{CHECKPOINTS}/{name}") as part:
            shutil.copyfileobj(part, out, BLOCK)
            out.flush()
            os.fsync(out.fileno())
        for each in (folder.parent, folder, folder / found["name"]):
            _give(each, uid, gid)
        for each in (folder, folder.parent, into):
            sync(each)
    return len(names)


def _names(folder: Path, job: JobId) -> Sequence[str]:
    """Newest first."""
    try:
        with _opened(folder, job) as descriptor:
            names = os.listdir(descriptor)  # noqa: PTH208 - a descriptor
    except OSError:
        return []
    return sorted(filter(NAME.fullmatch, names), reverse=True)


@contextlib.contextmanager
def _opened(folder: Path, job: JobId) -> Iterator[int]:
    """Open the job's folder of checkpoints. Raises OSError, also if it or the job's folder is a link."""
    with contextlib.ExitStack() as stack:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        stack.callback(os.close, descriptor)
        for name in (job, IN_JOB):
            descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=descriptor)
            stack.callback(os.close, descriptor)
        yield descriptor


def _copy(folder: Path, job: JobId, name: str, into: Path, room: int) -> int:
    """Bytes copied; 0: the file is damaged, or was replaced by a newer one. Raises Failure, OSError."""
    copy, crc, size = into / name, 0, 0
    owner_only.make_folder(into)
    try:
        with (
            _opened(folder, job) as there_in,
            _plain(name, there_in) as data,
            owner_only.appended(copy) as out,
        ):
            while block := data.read(BLOCK):
                crc, size = zlib.crc32(block, crc), size + len(block)
                if size > room:
                    raise Failure("the checkpoints have grown beyond --checkpoints-max meanwhile")
                out.write(block)
            there = os.fstat(data.fileno())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return 0
    if not name.endswith(f"-{crc:08x}.pt"):
        copy.unlink()
        return 0
    _give(copy, there.st_uid, there.st_gid)
    return size


@contextlib.contextmanager
def _plain(name: str, folder: int) -> Iterator[BinaryIO]:
    """Open a checkpoint without following a link. Raises OSError, ValueError if it is not a plain file."""
    if not stat.S_ISREG(os.lstat(name, dir_fd=folder).st_mode):
        raise ValueError(f"{name} is not a file")
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError(f"{name} is not a file")
        yield file


def _give(path: Path, uid: int, gid: int) -> None:
    """Give the file to the job's account, if permitted."""
    if os.geteuid() == 0:
        os.chown(path, uid, gid, follow_symlinks=False)
