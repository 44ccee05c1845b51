"""Reads what a rank prints from its log file, from where the last life of the agent had read."""

import contextlib
import ctypes
import math
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

from services.agent.process.folders import RankFiles, is_full

READ_MAX_BYTES = 262_144
"""bytes that one call reads at most; the next call reads on"""
BACKLOG_MAX_BYTES = 1 << 24
"""bytes that may wait to be read; what comes faster than it can be read is left out"""
LINE_MAX_BYTES = 16_384
"""bytes after which a line without an end counts as a line"""
LAST_LINES, LAST_BYTES = 20, 16_384
"""how much of its end a failed rank's report quotes"""
KNOWN_BYTES = 1_024
"""bytes before the position by which a log is known that was emptied and filled again"""
FREE_EVERY_BYTES = 1 << 20
"""bytes read after which their disk space is freed"""
EMPTIED = "hopyard: the job emptied its output, as `> /dev/stderr` does (`>> /dev/stderr` does not)"
_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_ENDS = re.compile(rb"\r\n|\n|\r")


class Tail:
    """The log of one rank. All calls block on the disk."""

    def __init__(self, files: RankFiles) -> None:
        self._files = files
        self._position = _number(files.position)
        self._freed = 0
        self._before = b""
        """what was read last, before the position"""
        self.freed_when_full = -math.inf
        """when space was last freed on a full disk, by the clock `time.monotonic`"""
        self.behind = False
        """whether there is more to read at once"""

    def lines(self) -> list[str]:
        """New complete lines; they count as read at the next call, so after a crash they come again."""
        self._save_position()
        left_out = self._catch_up()
        data = _read_at(self._files.log, self._position, READ_MAX_BYTES)
        size = max((found.end() for found in _ENDS.finditer(data)), default=0)
        if not size and len(data) >= LINE_MAX_BYTES:
            size = len(data)
        self._position += size
        self._before = (self._before + data[:size])[-KNOWN_BYTES:]
        self.behind = len(data) == READ_MAX_BYTES
        return [*left_out, *_decoded_lines(data[:size])]

    def _catch_up(self) -> list[str]:
        """Go on where there is something to read; returns a line that says so if something is left out.

        That is the beginning of a backlog that is too long, or what was in a log that the job has emptied, as
        a shell does for `> /dev/stderr`.
        """
        behind = _size(self._files.log, self._position) - self._position
        if behind < 0 or (behind > 0 and self._is_another()):
            self._position, self._freed, self._before = 0, 0, b""
            return [EMPTIED]
        if behind <= BACKLOG_MAX_BYTES:
            return []
        left_out = behind - READ_MAX_BYTES
        start = _read_at(self._files.log, self._position + left_out, LINE_MAX_BYTES)
        end = _ENDS.search(start)
        left_out += end.end() if end else 0
        self._position += left_out
        self._before = b""
        return [f"hopyard: {left_out} bytes were printed faster than they can be read, and are left out"]

    def _is_another(self) -> bool:
        """Whether the log was emptied and is already longer than before: what was read last is not there."""
        there = _read_at(self._files.log, self._position - len(self._before), len(self._before))
        return bool(there) and there != self._before

    def rest(self) -> Iterator[list[str]]:
        """All lines that are left, once no process prints any more; the last need not be complete.

        If one does print, since it could not be killed, that is left out.
        """
        end, before = _size(self._files.log, 0), -1
        while self._position != before:
            before = self._position
            yield self.lines()
            if self._position >= end:
                break
        yield _decoded_lines(_read_at(self._files.log, self._position, READ_MAX_BYTES))

    def last(self) -> tuple[str, ...]:
        """The last lines of the log, whether they were read before or not."""
        with contextlib.suppress(OSError):
            size = self._files.log.stat().st_size
            data = _read_at(self._files.log, max(size - LAST_BYTES, 0), LAST_BYTES)
            return tuple(_decoded_lines(data.replace(b"\0", b""))[-LAST_LINES:])
        return ()

    def _save_position(self) -> None:
        if _number(self._files.position) != self._position:
            with contextlib.suppress(OSError):  # on a full disk a line may come twice after a restart
                self._files.position.write_text(str(self._position))
        if self._position - self._freed > FREE_EVERY_BYTES:
            if is_full(self._files.log.parent):
                self.freed_when_full = time.monotonic()
            _free(self._files.log, self._position - LAST_BYTES)
            self._freed = self._position


def _size(path: Path, otherwise: int) -> int:
    """The file's size; `otherwise` if that cannot be read now."""
    with contextlib.suppress(OSError):
        return path.stat().st_size
    return otherwise


def _read_at(path: Path, start: int, size: int) -> bytes:
    with contextlib.suppress(OSError), path.open("rb") as file:
        file.seek(start)
        return file.read(size)
    return b""


def _decoded_lines(data: bytes) -> list[str]:
    return [line.decode(errors="replace") for line in _ENDS.split(data) if line]


def _number(path: Path) -> int:
    with contextlib.suppress(OSError, ValueError):
        return int(path.read_text())
    return 0


def _free(path: Path, size: int) -> None:
    """Free the disk space of the file's first `size` bytes; positions stay. Some file systems cannot."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_WRONLY)
        try:
            libc = ctypes.CDLL(None)
            libc.fallocate(descriptor, _KEEP_SIZE | _PUNCH_HOLE, ctypes.c_long(0), ctypes.c_long(size))
        finally:
            os.close(descriptor)
