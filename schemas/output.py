"""What jobs print: lines by node and rank, as agents keep them and the API passes them on."""

from schemas.base import Message
from schemas.ids import NodeId


class PrintedLine(Message, frozen=True, array_like=True):
    at: float
    """cluster time at which the agent read the line"""
    text: str


class RankOutput(Message, frozen=True, kw_only=True):
    """A part of the output of one process of a job."""

    rank: int
    """rank of the process in its gang; an emulated process for several GPUs has that of the first"""
    lines: tuple[PrintedLine, ...]
    next: int
    """position at which the next part begins: bytes since the first line of this process"""
    lost: bool = False
    """true: before these, lines that were asked for are missing: dropped, as old files are, or too many"""
    more: bool = False
    """true: there are more lines, for the next question"""


class OutputPage(Message, frozen=True, kw_only=True):
    """Output of all processes that a job has or had on a node."""

    ranks: tuple[RankOutput, ...]


class OutputLine(Message, frozen=True, kw_only=True, omit_defaults=True):
    """A line of `/v1/jobs/{id}/output`."""

    node: NodeId
    at: float | None = None
    """cluster time"""
    rank: int | None = None
    text: str = ""
    problem: str = ""
    """in place of a line: why lines of this node are missing"""
