"""Checkpoints: a file is whole or is not there; the newest two are kept; a damaged one is passed over.

A file is named for the samples it holds and the CRC-32 of its bytes, `000000000012800-1c291ca3.pt`. It holds
tensors and plain types alone, so that `torch.load(..., weights_only=True)` reads it: whoever can write to the
folder must not thereby run code here.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import torch

from hopjob.state.plain import packed, unpacked

KEPT = 2
PART = ".part"
OWNER = "owner"
BLOCK = 1 << 20

State = dict[str, Any]


class Taken(RuntimeError):
    """The folder is another placement's by now: the job goes on elsewhere."""


class Folder:
    def __init__(self, path: str, owner: str = "") -> None:
        self.path, self.owner = Path(path), owner

    def claim(self) -> None:
        """Rank 0, at its start: from here on no older placement may write, and what was half written goes."""
        self.path.mkdir(parents=True, exist_ok=True)
        for part in self.path.glob("*" + PART):
            part.unlink()
        if self.owner:
            part = self.path / (OWNER + PART)
            part.write_text(self.owner, "utf-8")
            part.replace(self.path / OWNER)

    def save(self, state: State, samples: float) -> Path:
        """Raises Taken, OSError or RuntimeError (torch's own, for a file that cannot be written)."""
        self._refuse_strangers()
        part = self.path / f"{int(samples):015d}{PART}"
        try:
            with part.open("wb") as file:
                summed = _Summed(file)
                torch.save(packed(state), summed)
                summed.finish()
            whole = self.path / f"{int(samples):015d}-{summed.crc:08x}.pt"
            part.replace(whole)
        except BaseException:
            with contextlib.suppress(OSError):
                part.unlink()
            raise
        self._sync()
        self._prune(whole)
        return whole

    def newest(self, damaged: Callable[[str, str], None]) -> tuple[str, State] | None:
        """Name and state of the newest readable checkpoint; `damaged` hears of those passed over, and why."""
        for name in self.names():
            state = self._readable(name, damaged)
            if state is not None:
                return name, state
        return None

    def _readable(self, name: str, damaged: Callable[[str, str], None]) -> State | None:
        try:
            return self.load(name)
        except Exception as error:  # noqa: BLE001 - whatever a damaged file may raise
            damaged(name, str(error)[:200])
            return None

    def load(self, name: str) -> State:
        path = self.path / name
        found, said = _crc(path), name.partition("-")[2].partition(".")[0]
        if said != f"{found:08x}":
            raise ValueError(f"its bytes have the CRC {found:08x}, its name says {said}")
        state: State = unpacked(torch.load(str(path), map_location="cpu", weights_only=True))
        return state

    def names(self) -> list[str]:
        """Newest first."""
        return sorted((path.name for path in self.path.glob("*-*.pt")), reverse=True)

    def _refuse_strangers(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            owner = (self.path / OWNER).read_text("utf-8")
            if self.owner and owner != self.owner:
                raise Taken(f"the checkpoints belong to {owner} by now")

    def _sync(self) -> None:
        folder = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _prune(self, written: Path) -> None:
        """Newer ones than the one just written were found damaged, or it would not have been."""
        names = self.names()
        here = names.index(written.name)
        for name in names[:here] + names[here + KEPT :]:
            with contextlib.suppress(FileNotFoundError):
                (self.path / name).unlink()


class _Summed:
    """A file that knows the CRC-32 of what was written to it, and keeps an error for later.

    torch's writer ends the whole process (1.13) when a write fails in its midst.
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
        """All of it is flushed in the end."""

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
