"""The effects of a gang: what to do with its processes, and what to report. Pure."""

from enum import StrEnum

import msgspec

from services.agent.tasks import LastReport, Report


class Due(StrEnum):
    """A time at which the gang wants to be called."""

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
    """Add a line to the job's output."""

    rank: int
    text: str


class Say(msgspec.Struct, frozen=True):
    """Report something while the gang runs on."""

    report: Report


class Last(msgspec.Struct, frozen=True):
    """The last report, once nothing of the worker is left."""

    report: LastReport


Small = Tell | Ring | Print | Say
"""effects that take no time to carry out"""
Action = Spawn | Terminate | Kill | Last | Small
Actions = list[Action]
