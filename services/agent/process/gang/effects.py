"""What a gang has done to its processes, and what it says about itself. Pure."""

from enum import StrEnum

import msgspec

from services.agent.tasks import LastReport, Report


class Due(StrEnum):
    """What a gang waits for, beside its ranks."""

    LAST_WORDS = "last-words"
    LEAVING = "leaving"
    GRACE = "grace"


class Spawn(msgspec.Struct, frozen=True):
    """Start all ranks. `meeting`: where those of a command meet that is no Python script."""

    meeting: str = ""


class Tell(msgspec.Struct, frozen=True):
    """`rank` None: all that are connected."""

    line: bytes
    rank: int | None = None


class Terminate(msgspec.Struct, frozen=True):
    """SIGTERM to every rank."""


class Kill(msgspec.Struct, frozen=True):
    """End all processes of the worker."""


class Ring(msgspec.Struct, frozen=True):
    due: Due
    after_s: float


class Print(msgspec.Struct, frozen=True):
    """A line among those that the job prints."""

    rank: int
    text: str


class Say(msgspec.Struct, frozen=True):
    """Report, while the gang runs on."""

    report: Report


class Last(msgspec.Struct, frozen=True):
    """Report once nothing of the worker is left."""

    report: LastReport


Small = Tell | Ring | Print | Say
"""done at once"""
Action = Spawn | Terminate | Kill | Last | Small
Actions = list[Action]
