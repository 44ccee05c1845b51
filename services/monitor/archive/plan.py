"""Which files an archive has, what it lacks, what it takes next, and how far a stream may be trimmed. Pure.

A file has one stretch of a stream, and says so in its name: `facts-000000000001-000000010000.parquet`. Where
files begin and end follows from the stream and the settings alone, so whoever writes a file twice writes the
same one.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from schemas.questions import ArchiveKind

BYTES_AT_MOST = 32 * 1024 * 1024
"""of messages in one file, but for the last"""
TRIMMED_TO = 0.8
"""of the room that a stream has, once it is trimmed: so that it is not trimmed at every fact"""
_NAME = re.compile(r"(?P<kind>facts|observations)-(?P<first>[0-9]{12})-(?P<last>[0-9]{12})\.parquet")


class Stretch(NamedTuple):
    """A stretch of a stream, in one file."""

    kind: ArchiveKind
    first: int
    last: int

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.first:012}-{self.last:012}.parquet"


class Coverage(NamedTuple):
    """The stretches that files cover together."""

    files: tuple[Stretch, ...]
    """ascending; none within another"""
    gaps: tuple[range, ...]
    """between files"""

    @property
    def begins(self) -> int:
        """0: with nothing."""
        return self.files[0].first if self.files else 0

    @property
    def ends(self) -> int:
        return self.files[-1].last if self.files else 0


def stretch_of(name: str) -> Stretch | None:
    """The stretch that a file's name says; None if it is no name of an archive's file."""
    found = _NAME.fullmatch(name)
    if found is None or int(found["first"]) > int(found["last"]):
        return None
    return Stretch(ArchiveKind(found["kind"]), int(found["first"]), int(found["last"]))


def coverage(names: Iterable[str], kind: ArchiveKind) -> Coverage:
    stretches = [one for name in names if (one := stretch_of(name)) is not None and one.kind is kind]
    files: list[Stretch] = []
    gaps: list[range] = []
    for one in sorted(stretches, key=lambda each: (each.first, -each.last)):
        if files and one.last <= files[-1].last:
            continue
        if files and one.first > files[-1].last + 1:
            gaps.append(range(files[-1].last + 1, one.first))
        files.append(one)
    return Coverage(tuple(files), tuple(gaps))


def lacking(files: Sequence[range], first: int, last: int) -> list[range]:
    """Of a stretch, what is in none of some ascending ranges."""
    found, reached = [], first
    for one in files:
        if one.start > reached:
            found.append(range(reached, min(one.start, last + 1)))
        reached = max(reached, one.stop)
    return [one for one in [*found, range(reached, last + 1)] if one]


def taken_next(there: Coverage, first: int, last: int, count: int) -> range | None:
    """What to put into a file next, of a stream from `first` to `last`; None: nothing yet.

    Where a file is gone and the stream still has what was in it, that comes first.
    """
    for gap in lacking([range(one.first, one.last + 1) for one in there.files], first, last):
        if gap.stop <= last or len(gap) >= count:
            return gap[:count]
    return None


def droppable(first: int, last: int, size: int, room: int) -> int:
    """The last message that has to go for a stream to be in its room; before `first`: none has to.

    Messages are taken to be of one size.
    """
    count = last - first + 1
    if size <= room or count <= 0:
        return first - 1
    surplus = size - TRIMMED_TO * room
    return first - 1 + min(int(surplus / (size / count)) + 1, count)
