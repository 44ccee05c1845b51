"""Which files and folders were synced to the disk, in order."""

import os
from pathlib import Path

import pytest


def synced_paths(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The list of what is synced from now on, as it was called then. Linux only: it shows open files."""
    synced: list[Path] = []

    def fsync(descriptor: int) -> None:
        os.fdatasync(descriptor)
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink())

    monkeypatch.setattr(os, "fsync", fsync)
    return synced
