"""The effects of a gang's state machine, which `LiveWorker` carries out. Pure."""

from enum import StrEnum

import msgspec

from services.agent.tasks import LastReport, Report


class Timer(StrEnum):
    LAST_WORDS = "last-words"
    """time for the other ranks' last messages, after one rank has ended badly"""
    LEAVING = "leaving"
    """time for the processes to exit, after all ranks have sent their last messages"""
    GRACE = "grace"
    """time to save and exit, after the order to stop"""


class Spawn(msgspec.Struct, frozen=True):
    """Start all ranks. `meeting`: `host:port` for the ranks of a command that is no Python script."""

    meeting: str = ""


class SendLine(msgspec.Struct, frozen=True):
    """Send a message to a rank; None: to all that are connected."""

    line: bytes
    rank: int | None = None


class Terminate(msgspec.Struct, frozen=True):
    """SIGTERM to every rank."""


class Kill(msgspec.Struct, frozen=True):
    """Kill all processes of the worker."""


class SetTimer(msgspec.Struct, frozen=True):
    timer: Timer
    after_s: float


class PrintLine(msgspec.Struct, frozen=True):
    """Add a line to the job's output, as if the rank had printed it."""

    rank: int
    text: str


class SendReport(msgspec.Struct, frozen=True):
    """Report to the core; the gang runs on."""

    report: Report


class SendLastReport(msgspec.Struct, frozen=True):
    """Report to the core once all processes and files of the worker are gone."""

    report: LastReport


QuickAction = SendLine | SetTimer | PrintLine | SendReport
"""effects that do not have to be awaited"""
Action = Spawn | Terminate | Kill | SendLastReport | QuickAction
Actions = list[Action]
