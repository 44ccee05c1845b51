"""The effects of a gang: what to do with its processes, and what to report. Pure."""

from enum import StrEnum

import msgspec

from services.agent.tasks import LastReport, Report


class Timer(StrEnum):
    LAST_WORDS = "last-words"
    LEAVING = "leaving"
    GRACE = "grace"


class Spawn(msgspec.Struct, frozen=True):
    """Start all ranks. `meeting`: where those of a command meet that is no Python script."""

    meeting: str = ""


class SendLine(msgspec.Struct, frozen=True):
    """`rank` None: all that are connected."""

    line: bytes
    rank: int | None = None


class Terminate(msgspec.Struct, frozen=True):
    """SIGTERM to every rank."""


class Kill(msgspec.Struct, frozen=True):
    """End all processes of the worker."""


class SetTimer(msgspec.Struct, frozen=True):
    timer: Timer
    after_s: float


class PrintLine(msgspec.Struct, frozen=True):
    """In the job's output."""

    rank: int
    text: str


class SendReport(msgspec.Struct, frozen=True):
    """While the gang runs on."""

    report: Report


class SendLastReport(msgspec.Struct, frozen=True):
    """Once nothing of the worker is left."""

    report: LastReport


QuickAction = SendLine | SetTimer | PrintLine | SendReport
Action = Spawn | Terminate | Kill | SendLastReport | QuickAction
Actions = list[Action]
