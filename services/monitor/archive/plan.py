"""Which messages an archive has, lacks and stores next, and how far a stream may be trimmed. Pure.

A file holds one segment of a stream, and is named after it: `facts-000000000001-000000010000.parquet`. Where
segments begin and end follows from the stream and the settings alone, so a file that is written twice, also
by another instance, has the same name and content.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from schemas.questions import ArchiveKind

BYTES_AT_MOST = 32 * 1024 * 1024
"""size from which on a file takes no further message"""
TRIMMED_TO = 0.8
"""share of the allowed size to which a stream is trimmed; below 1, since otherwise every new fact would trim
it again"""
_NAME = re.compile(r"(?P<kind>facts|observations)-(?P<first>[0-9]{12})-(?P<last>[0-9]{12})\.parquet")


class Segment(NamedTuple):
    """Messages `first` to `last` of a stream, stored in one file."""

    kind: ArchiveKind
    first: int
    last: int

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.first:012}-{self.last:012}.parquet"


class Coverage(NamedTuple):
    """The segments that an archive has files of."""

    files: tuple[Segment, ...]
    """ascending; none within another"""
    gaps: tuple[range, ...]
    """sequences between two files that neither has"""

    @property
    def begins(self) -> int:
        """First archived sequence; 0: there is no file."""
        return self.files[0].first if self.files else 0

    @property
    def ends(self) -> int:
        """Last archived sequence; 0: there is no file."""
        return self.files[-1].last if self.files else 0


def segment_of(name: str) -> Segment | None:
    """The segment that a file is named after; None if no archive has a file of that name."""
    found = _NAME.fullmatch(name)
    if found is None or int(found["first"]) > int(found["last"]):
        return None
    return Segment(ArchiveKind(found["kind"]), int(found["first"]), int(found["last"]))


def coverage(names: Iterable[str], kind: ArchiveKind) -> Coverage:
    """What the files of these names cover; a file whose segment lies within another's is left out."""
    segments = [one for name in names if (one := segment_of(name)) is not None and one.kind is kind]
    files: list[Segment] = []
    gaps: list[range] = []
    for one in sorted(segments, key=lambda each: (each.first, -each.last)):
        if files and one.last <= files[-1].last:
            continue
        if files and one.first > files[-1].last + 1:
            gaps.append(range(files[-1].last + 1, one.first))
        files.append(one)
    return Coverage(tuple(files), tuple(gaps))


def lacking(files: Sequence[range], first: int, last: int) -> list[range]:
    """The parts of `first` to `last` that none of the ascending ranges `files` covers."""
    found, reached = [], first
    for one in files:
        if one.start > reached:
            found.append(range(reached, min(one.start, last + 1)))
        reached = max(reached, one.stop)
    return [one for one in [*found, range(reached, last + 1)] if one]


def taken_next(there: Coverage, first: int, last: int, count: int) -> range | None:
    """The messages of the next file, at most `count`, of a stream from `first` to `last`.

    None: too few are new. If a file is missing and the stream still has its messages, they come first.
    """
    for gap in lacking([range(one.first, one.last + 1) for one in there.files], first, last):
        if gap.stop <= last or len(gap) >= count:
            return gap[:count]
    return None


def droppable(first: int, last: int, size: int, room: int) -> int:
    """The sequence up to which a stream of `size` bytes must be trimmed to fit into `room` bytes.

    It is `first` - 1 if the stream fits. The estimate assumes that all messages have the same size.
    """
    count = last - first + 1
    if size <= room or count <= 0:
        return first - 1
    surplus = size - TRIMMED_TO * room
    return first - 1 + min(int(surplus / (size / count)) + 1, count)
