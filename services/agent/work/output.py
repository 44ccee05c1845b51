"""Keeps what jobs print: files of bounded size by job and rank, the oldest dropped first.

FOLDER/NODE/JOB/RANK/START.log holds lines `TIME TEXT`. START is the number of bytes that the rank had printed
before this file. So a position in a rank's output stays valid when files are dropped and when the agent
starts again.
"""

import errno
import os
import re
import shutil
import tempfile
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from io import FileIO
from pathlib import Path

import msgspec

from schemas.ids import JobId, NodeId
from schemas.output import OutputPage, PrintedLine, RankOutput
from schemas.questions import ReadOutput
from schemas.settings import Settings
from shared.runtime import owner_only
from shared.runtime.clock import Clock

LINE_MAX = 8_192
"""characters of a line; the rest is cut off"""
PAGE_MAX_BYTES = 262_144
"""bytes of one rank's output in one answer"""
NEWEST_MAX_BYTES = 1_048_576
"""bytes of one rank's newest lines"""
_NAME = re.compile(r"\w[\w-]*", re.ASCII)
"""a job's name; any other text could lead out of the folder"""
_LINE = re.compile(rb"(?P<at>-?\d+\.\d{3}) (?P<text>.*)")
OPEN_MAX = 64
"""files that are kept open at most"""


class OutputLimits(msgspec.Struct, frozen=True, kw_only=True):
    file_bytes: int
    files: int
    """number of files of one rank"""
    node_bytes: int
    """bytes of all jobs of the node together"""


class _OpenFile(msgspec.Struct):
    file: FileIO
    folder: Path
    start: int
    size: int


class OutputFiles:
    """The output of the jobs on one node."""

    def __init__(self, folder: Path, clock: Clock, limits: OutputLimits) -> None:
        self._folder = folder
        self._clock = clock
        self._limits = limits
        self._open: OrderedDict[tuple[JobId, int], _OpenFile] = OrderedDict()
        self._lost_lines: tuple[int, str] = 0, ""
        """(number, reason) of the lines that could not be written since the last one that could"""
        self._fault = ""
        """why the folder takes no line, when this was last seen; empty: it does"""

    def write(self, job_id: JobId, rank: int, text: str) -> None:
        """Add a line of a rank; line breaks in it become spaces.

        A line that cannot be written, as on a full disk, must not end a job. Such lines are counted, and the
        next line that can be written is preceded by one that says how many are missing.
        """
        missed, reason = self._lost_lines
        try:
            if missed:
                self._append(job_id, rank, f"hopyard: {missed} lines of this node were not kept: {reason}")
            self._append(job_id, rank, " ".join(text.splitlines())[:LINE_MAX])
        except OSError as error:
            self._close(job_id, rank)
            self._fault = error.strerror or str(error)
            self._lost_lines = missed + 1, self._fault
        else:
            self._lost_lines, self._fault = (0, ""), ""

    def try_folder(self) -> None:
        """Find out whether the folder takes lines, before there are any."""
        try:
            self._make_folder()
            with tempfile.TemporaryFile(dir=self._folder) as file:
                file.write(b"\n" * LINE_MAX)
        except OSError as error:
            self._fault = error.strerror or str(error)
        else:
            self._fault = ""

    def troubles(self) -> tuple[str, ...]:
        """What is wrong with the folder, in words. As long as something is, the folder is tried again."""
        if self._fault:
            self.try_folder()
        return (f"what jobs print is not kept: {self._folder}: {self._fault}",) if self._fault else ()

    def _append(self, job_id: JobId, rank: int, line: str) -> None:
        data = f"{self._clock.now():.3f} {line}\n".encode(errors="replace")
        now = self._opened(job_id, rank)
        if now.size and now.size + len(data) > self._limits.file_bytes:
            now = self._rotated(job_id, rank, now)
        if now.file.write(data) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        now.size += len(data)

    def read(self, question: ReadOutput) -> OutputPage:
        """The output of a job's ranks on this node, from the positions that the question gives."""
        folder = self._folder / question.job_id
        if not _NAME.fullmatch(question.job_id):
            return OutputPage(ranks=())
        names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
        ranks = sorted(int(name) for name in names if name.isdecimal())
        return OutputPage(ranks=tuple(_page_of_rank(folder / str(rank), rank, question) for rank in ranks))

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].file.close()

    # ---- files

    def _opened(self, job_id: JobId, rank: int) -> _OpenFile:
        key = job_id, rank
        if key not in self._open:
            folder = self._folder / job_id / str(rank)
            if not folder.is_dir():
                self._make_folder()
                folder.mkdir(parents=True)
                self._make_room(job_id)
            newest = (_starts(folder) or [0])[-1]
            file = (folder / _name(newest)).open("ab+", buffering=0)
            _end_cut_line(file)
            self._open[key] = _OpenFile(file, folder, newest, file.tell())
            if len(self._open) > OPEN_MAX:
                self._open.popitem(last=False)[1].file.close()
        self._open.move_to_end(key)
        return self._open[key]

    def _make_folder(self) -> None:
        with suppress(FileExistsError):
            self._folder.mkdir(mode=owner_only.FOLDER, parents=True)

    def _rotated(self, job_id: JobId, rank: int, full: _OpenFile) -> _OpenFile:
        self._close(job_id, rank)
        start = full.start + full.size
        file = (full.folder / _name(start)).open("ab", buffering=0)
        self._open[job_id, rank] = now = _OpenFile(file, full.folder, start, 0)
        for old in _starts(full.folder)[: -self._limits.files]:
            (full.folder / _name(old)).unlink()
        self._make_room(job_id)
        return now

    def _close(self, job_id: JobId, rank: int) -> None:
        """Close the rank's file; its size is read again when it is opened next."""
        if was := self._open.pop((job_id, rank), None):
            was.file.close()

    def _make_room(self, but: JobId) -> None:
        """Drop the jobs that have printed nothing for longest, until the rest is small enough."""
        jobs = sorted((_newest(path), path) for path in self._folder.iterdir() if path.name != but)
        used = sum(path.stat().st_size for path in _files(self._folder))
        for _, path in jobs:
            if used <= self._limits.node_bytes:
                return
            used -= sum(file.stat().st_size for file in _files(path))
            for key in [key for key in self._open if key[0] == path.name]:
                self._open.pop(key).file.close()
            shutil.rmtree(path)


def output_files(settings: Settings, clock: Clock, node_id: NodeId) -> OutputFiles | None:
    """None: the settings say to keep no output."""
    if not settings.output_folder:
        return None
    limits = OutputLimits(
        file_bytes=settings.output_file_bytes,
        files=settings.output_files,
        node_bytes=settings.output_node_bytes,
    )
    return OutputFiles(Path(settings.output_folder) / node_id, clock, limits)


def _page_of_rank(folder: Path, rank: int, question: ReadOutput) -> RankOutput:
    starts = _starts(folder)
    after = question.after.get(rank, question.others_after)
    if after is None:
        first, lost = _newest_from(folder, starts, question.tail_lines)
    else:
        first = max(after, starts[0] if starts else after)
        lost = first > after
    data = b"".join(_from(folder, starts, first))
    whole = data[: data.rfind(b"\n", 0, PAGE_MAX_BYTES) + 1]
    more = data.rfind(b"\n") + 1 > len(whole)
    return RankOutput(rank=rank, lines=_lines(whole), next=first + len(whole), lost=lost, more=more)


def _newest_from(folder: Path, starts: list[int], newest: int) -> tuple[int, bool]:
    """Where the newest lines begin, and whether they are fewer than asked for, since they are too long."""
    begin = starts[0] if starts else 0
    data = b"".join(_from(folder, starts, begin))
    end = first = data.rfind(b"\n") + 1
    for _ in range(newest):
        if not first:
            break
        earlier = data.rfind(b"\n", 0, first - 1) + 1
        if end - earlier > NEWEST_MAX_BYTES:
            return begin + first, True
        first = earlier
    return begin + first, False


def _from(folder: Path, starts: list[int], first: int) -> Iterator[bytes]:
    """The bytes from position `first` on, file by file."""
    for start, end in zip(starts, [*starts[1:], None], strict=True):
        if end is not None and end <= first:
            continue
        with (folder / _name(start)).open("rb") as file:
            file.seek(max(first - start, 0))
            yield file.read()


def _end_cut_line(file: FileIO) -> None:
    """Add the missing end to a line that was cut short when the agent was killed."""
    if file.seek(0, os.SEEK_END) and (file.seek(-1, os.SEEK_END), file.read(1))[1] != b"\n":
        file.write(b"\n")
    file.seek(0, os.SEEK_END)


def _lines(data: bytes) -> tuple[PrintedLine, ...]:
    """The complete lines in `data`."""
    found = filter(None, map(_LINE.fullmatch, data.split(b"\n")))
    return tuple(PrintedLine(float(one["at"]), one["text"].decode(errors="replace")) for one in found)


def _starts(folder: Path) -> list[int]:
    return sorted(int(path.stem) for path in folder.glob("*.log") if path.stem.isdecimal())


def _name(start: int) -> str:
    return f"{start:015d}.log"


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*.log") if path.is_file()]


def _newest(folder: Path) -> float:
    return max((path.stat().st_mtime for path in _files(folder)), default=0.0)
