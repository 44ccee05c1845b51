"""What jobs print: lines by node and rank, as agents keep them and the API passes them on."""

from schemas.base import Message
from schemas.ids import NodeId


class PrintedLine(Message, frozen=True, array_like=True):
    at: float
    """cluster time at which the agent read the line"""
    text: str


class RankOutput(Message, frozen=True, kw_only=True):
    """A stretch of what one process of a job printed."""

    rank: int
    """among the processes of its gang; one that stands for several GPUs has the rank of the first"""
    lines: tuple[PrintedLine, ...]
    next: int
    """where the next stretch begins: bytes since the job's first line here"""
    lost: bool = False
    """lines before these were dropped when files were rotated"""


class OutputPage(Message, frozen=True, kw_only=True):
    """The output of all processes that a job has or had on a node."""

    ranks: tuple[RankOutput, ...]


class OutputLine(Message, frozen=True, kw_only=True, omit_defaults=True):
    """A line of `/v1/jobs/{id}/output`."""

    node: NodeId
    at: float | None = None
    """cluster time"""
    rank: int | None = None
    text: str = ""
    problem: str = ""
    """in place of a line, why lines of this node are missing"""
