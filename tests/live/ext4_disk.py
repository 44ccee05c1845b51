"""A disk of a test's own that hangs, or is gone, and comes back: an image with a file system on it."""

import contextlib
import fcntl
import os
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

SIZE = 6 * 2**30
"""of a file with holes; NATS wants room for all that its streams may hold"""
SHUT_DOWN = 0x8004587D
"""EXT4_IOC_SHUTDOWN: from then on every write fails with an I/O error"""
LOG_FLUSHED = 1
"""what was synced is there when it comes back"""


class Disk:
    """Mounted at `folder`. What has files of it open when it is lost keeps the lost one."""

    def __init__(self, image: Path, folder: Path) -> None:
        self.folder = folder
        self._image = image
        self._devices: list[str] = []

    def mount(self) -> None:
        device = _run("losetup", "--find", "--show", str(self._image)).strip()
        self._devices.append(device)
        _run("mount", device, str(self.folder))

    def unmount(self) -> None:
        _run("umount", "--lazy", str(self.folder))

    @contextlib.contextmanager
    def hanging(self) -> Iterator[None]:
        _run("fsfreeze", "--freeze", str(self.folder))
        try:
            yield
        finally:
            _run("fsfreeze", "--unfreeze", str(self.folder))

    @contextlib.contextmanager
    def gone(self) -> Iterator[None]:
        folder = os.open(self.folder, os.O_RDONLY)
        fcntl.ioctl(folder, SHUT_DOWN, struct.pack("I", LOG_FLUSHED))
        os.close(folder)
        try:
            yield
        finally:
            self.unmount()
            self.mount()  # by another device: the lost one is still in use

    def release(self) -> None:
        self.unmount()
        for device in self._devices:
            subprocess.run(["losetup", "--detach", device], check=False, capture_output=True)


@contextlib.contextmanager
def disk_at(folder: Path, image: Path) -> Iterator[Disk]:
    with image.open("wb") as file:
        file.truncate(SIZE)
    disk = Disk(image, folder)
    try:
        _run("mkfs.ext4", "-q", str(image))
        disk.mount()
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no disk of its own: {getattr(error, 'stderr', '') or error}")
    try:
        yield disk
    finally:
        disk.release()


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
