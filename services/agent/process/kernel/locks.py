"""A lock on a folder: one process holds it at a time, and the kernel releases it when that process ends."""

import asyncio
import fcntl
import os
from pathlib import Path

LIMIT_S = 10.0
"""how long to wait for another process to release the lock"""
LOOK_EVERY_S = 0.1


class FolderTaken(OSError):
    """Another process holds the lock."""


async def locked(path: Path) -> int:
    """Lock a file, which is made if it is missing; returns a descriptor that holds the lock while it is open.

    Raises FolderTaken, OSError.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    then = asyncio.get_running_loop().time() + LIMIT_S
    while not _tried(descriptor):
        if asyncio.get_running_loop().time() > then:
            os.close(descriptor)
            raise FolderTaken(f"another agent has the folder {path.parent}: name another one in run_folder")
        await asyncio.sleep(LOOK_EVERY_S)
    return descriptor


def _tried(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
