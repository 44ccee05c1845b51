"""Checkpoints: files are written atomically; the newest two are kept; a damaged one is set aside.

A file is named after the samples done and the CRC-32 of its bytes, as `000000000012800-1c291ca3.pt`. It holds
only tensors and plain types, so `torch.load(..., weights_only=True)` reads it: an account that can write to
the folder cannot make a job run code. Files with other names are left alone.
"""

from __future__ import annotations

import contextlib
import os
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import torch

from hopjob.state.plain import packed, unpacked

KEPT = 2
PART = ".part"
OWNER = "owner"
NAME = re.compile(r"([0-9]{15})-([0-9a-f]{8})\.pt")
HALF_WRITTEN = re.compile(r"([0-9]{15}|owner)(-[0-9a-f]{8})?\.part")
BLOCK = 1 << 20

State = dict[str, Any]


class FolderClaimed(RuntimeError):
    """Another placement has claimed the folder: the job goes on elsewhere."""


class Damaged(ValueError):
    """The bytes of a checkpoint are not those that were written."""


class Folder:
    def __init__(self, path: str, owner: str = "", *, writer: str = "", root: Path | None = None) -> None:
        """`owner`: the placement that writes here. `writer`: the name of one of its several writers.

        `root`: the folder in which a file names the owner.
        """
        self.path, self.owner = Path(path), owner
        self._root = root or self.path
        self._part = f"-{zlib.crc32(writer.encode()):08x}{PART}" if writer else PART

    def claim(self) -> None:
        """Claim the folder for this owner, so that earlier placements no longer write there.

        Rank 0 calls it at its start. Unfinished files are removed; if there are several writers, each removes
        its own.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        for path in self.path.iterdir():
            if HALF_WRITTEN.fullmatch(path.name) and path.name.endswith(self._part):
                path.unlink()
        if self.owner:
            part = self.path / (OWNER + self._part)
            part.write_text(self.owner, "utf-8")
            part.replace(self.path / OWNER)

    def save(self, state: State, samples: float) -> Path:
        """Raises FolderClaimed, OSError or RuntimeError (torch's own, for a file that cannot be written)."""
        self._check_owner()
        part = self.path / f"{int(samples):015d}{self._part}"
        try:
            with part.open("wb") as file:
                checked = _ChecksummedFile(file)
                torch.save(packed(state), checked)
                checked.finish()
            whole = self.path / f"{int(samples):015d}-{checked.crc:08x}.pt"
            part.replace(whole)
        except BaseException:
            with contextlib.suppress(OSError):
                part.unlink()
            raise
        self._sync()
        self._prune(whole)
        return whole

    def newest(self, on_damaged: Callable[[str, str], None]) -> tuple[str, State] | None:
        """Name and state of the newest whole checkpoint.

        `on_damaged` is called with the name and the reason for each damaged one. Other errors of `load` are
        raised: a checkpoint that is intact but cannot be read is no reason to begin from scratch.
        """
        for name in self.names():
            state = self._load_whole(name, on_damaged)
            if state is not None:
                return name, state
        return None

    def _load_whole(self, name: str, on_damaged: Callable[[str, str], None]) -> State | None:
        try:
            return self.load(name)
        except Damaged as error:
            on_damaged(name, str(error))
        except FileNotFoundError:
            pass  # rank 0 has set it aside already
        return None

    def load(self, name: str) -> State:
        """Read a checkpoint. Raises Damaged, OSError, MemoryError, and torch's own errors."""
        path = self.path / name
        found, said = _crc(path), name.partition("-")[2].partition(".")[0]
        if said != f"{found:08x}":
            raise Damaged(f"its bytes have the CRC {found:08x}, its name says {said}")
        state: State = unpacked(torch.load(str(path), map_location="cpu", weights_only=True))
        return state

    def names(self) -> list[str]:
        """Names of the checkpoints, newest first. Raises OSError."""
        try:
            names = [path.name for path in self.path.iterdir()]
        except FileNotFoundError:
            return []
        return sorted(filter(NAME.fullmatch, names), reverse=True)

    def set_aside(self, name: str) -> None:
        with contextlib.suppress(OSError):
            (self.path / name).replace(self.path / f"{name}.damaged")

    def _check_owner(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            owner = (self._root / OWNER).read_text("utf-8", errors="replace")
            if self.owner and owner != self.owner:
                raise FolderClaimed(f"the checkpoints belong to {owner} by now")

    def _sync(self) -> None:
        folder = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _prune(self, written: Path) -> None:
        """Remove older checkpoints; a failure to do so is ignored."""
        with contextlib.suppress(OSError):
            for name in [name for name in self.names() if name < written.name][KEPT - 1 :]:
                (self.path / name).unlink()


class _ChecksummedFile:
    """A file that computes the CRC-32 of what is written, and raises an error of a write only in `finish`.

    If a write raises an error, the writer of torch 1.13 ends the whole process.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file, self.crc = file, 0
        self.error: OSError | None = None

    def write(self, data: bytes) -> int:
        if self.error is None:
            self.crc = zlib.crc32(data, self.crc)
            try:
                self._file.write(data)
            except OSError as error:
                self.error = error
        return memoryview(data).nbytes

    def flush(self) -> None:
        """Does nothing: the file is flushed when it is closed."""

    def finish(self) -> None:
        if self.error is not None:
            raise self.error
        self._file.flush()
        os.fsync(self._file.fileno())


def _crc(path: Path) -> int:
    crc = 0
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            crc = zlib.crc32(block, crc)
    return crc


def samples_of(name: str) -> int:
    return int(name.partition("-")[0])
