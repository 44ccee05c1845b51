"""Reads what a rank prints, from the file that it appends to: both outlive the agent."""

import contextlib
import ctypes
import os
import re
from collections.abc import Iterator
from pathlib import Path

from services.agent.process.folders import RankFiles

READ_MAX_BYTES = 262_144
"""at a time: a rank that prints more is read on the next time"""
LINE_MAX_BYTES = 16_384
"""of a line without an end, which is then taken for one"""
LAST_LINES, LAST_BYTES = 20, 16_384
FREE_EVERY_BYTES = 1 << 20
_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_ENDS = re.compile(rb"\r\n|\n|\r")


class Tail:
    """All calls block on the disk, for a moment."""

    def __init__(self, files: RankFiles) -> None:
        self._files = files
        self._position = _number(files.position)
        self._freed = 0

    def lines(self) -> list[str]:
        """New complete lines. They count as read only when the next ones are asked for."""
        self._remember()
        data = _stretch(self._files.log, self._position, READ_MAX_BYTES)
        size = max((found.end() for found in _ENDS.finditer(data)), default=0)
        if not size and len(data) >= LINE_MAX_BYTES:
            size = len(data)
        self._position += size
        return _words(data[:size])

    def rest(self) -> Iterator[list[str]]:
        """The rest, once no process prints any more."""
        before = -1
        while self._position != before:
            before = self._position
            yield self.lines()
        yield _words(_stretch(self._files.log, self._position, READ_MAX_BYTES))

    def last(self) -> tuple[str, ...]:
        """The last lines, read or not."""
        with contextlib.suppress(OSError):
            size = self._files.log.stat().st_size
            data = _stretch(self._files.log, max(size - LAST_BYTES, 0), LAST_BYTES)
            return tuple(_words(data.replace(b"\0", b""))[-LAST_LINES:])
        return ()

    def _remember(self) -> None:
        if _number(self._files.position) != self._position:
            with contextlib.suppress(OSError):  # on a full disk a line may come twice after a restart
                self._files.position.write_text(str(self._position))
        if self._position - self._freed > FREE_EVERY_BYTES:
            _free(self._files.log, self._position - LAST_BYTES)
            self._freed = self._position


def _stretch(path: Path, start: int, size: int) -> bytes:
    with contextlib.suppress(OSError), path.open("rb") as file:
        file.seek(start)
        return file.read(size)
    return b""


def _words(data: bytes) -> list[str]:
    return [line.decode(errors="replace") for line in _ENDS.split(data) if line]


def _number(path: Path) -> int:
    with contextlib.suppress(OSError, ValueError):
        return int(path.read_text())
    return 0


def _free(path: Path, size: int) -> None:
    """Give the disk back what stands before a position; positions stay. Not every file system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_WRONLY)
        try:
            libc = ctypes.CDLL(None)
            libc.fallocate(descriptor, _KEEP_SIZE | _PUNCH_HOLE, ctypes.c_long(0), ctypes.c_long(size))
        finally:
            os.close(descriptor)
