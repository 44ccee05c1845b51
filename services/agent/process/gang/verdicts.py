"""What became of a worker, from how its ranks ended and what they said last. Pure.

The first rank that ended badly decides, but for two cases: a rank that lost a peer says less than the peer,
and want of memory explains every end. A last message says more than an exit code.
"""

import signal
from enum import StrEnum

import msgspec

from schemas.events import StartOrdered
from schemas.measurements import Measured
from services.agent.process.gang.messages import (
    CompletedMessage,
    EndedMessage,
    FailedMessage,
    LastMessage,
    LostMessage,
    ProfiledMessage,
    StoppedMessage,
)
from services.agent.tasks import Completed, Failed, Interrupted, LastReport, Profiled, Stopped
from shared.domain import gangs

FATAL_OF_SHELLS = {128 + signal.SIGKILL: signal.SIGKILL, 128 + signal.SIGTERM: signal.SIGTERM}
"""exit codes by which shells and containers say that their process was ended by a signal"""
NO_PROGRAM = (126, 127)
"""exit codes of shells, containers and `enter.py` for a program that cannot be executed, or is not there"""
NO_CONTAINER = 125
"""of Docker and Podman: for want of the image, mostly"""
NO_SCRIPT = (2, "can't open file")
"""of Python"""
REASON_MAX = 4_000
"""characters of what a rank says of its end: a fact has to fit into a message"""
NO_GPU_MEMORY = ("OutOfMemoryError", "CUDA out of memory", "CUDA error: out of memory")


class MemoryState(StrEnum):
    ENOUGH = "enough"
    NODE_FULL = "node-full"
    OVER_LIMIT = "over-limit"
    """more than the job asked for"""


class ProcessEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How a process ended; with neither code nor signal if nobody saw it."""

    code: int | None = None
    signal: int | None = None
    memory: MemoryState = MemoryState.ENOUGH
    disk_full: str = ""
    """a folder of the node's that nothing can be written to any more"""
    lines: tuple[str, ...] = ()
    """the last that it printed"""

    @property
    def killed_by(self) -> int | None:
        return self.signal or FATAL_OF_SHELLS.get(self.code or 0)


class RankRecord(msgspec.Struct):
    """A rank as far as it is known."""

    number: int
    attached: bool = False
    """it says when it is done; a rank that is not attached just ends"""
    up: bool = False
    port: int | None = None
    message: LastMessage | None = None
    end: ProcessEnd | None = None

    @property
    def ended_well(self) -> bool:
        if self.message is not None:
            return isinstance(self.message, StoppedMessage | CompletedMessage)
        return self.end is not None and self.end.code == 0 and not self.attached


class WorkerRecord(msgspec.Struct):
    """What is known of a worker apart from its ranks."""

    order: StartOrdered
    samples: float | None = None
    """samples done, as rank 0 said last; None: rank 0 is elsewhere, or has said nothing"""
    kept: float | None = None
    """samples in the newest checkpoint; None: nobody said"""
    save_s: float = 0.0
    """what that took to write"""
    times: ProfiledMessage | None = None
    stopping: bool = False
    """it was ordered to stop"""
    killed: bool = False
    faults: list[RankRecord] = []
    """the ranks that ended badly, the first first, before the others were killed"""


def verdict(past: WorkerRecord, ranks: list[RankRecord]) -> LastReport:
    """The verdict about a worker whose ranks have all ended."""
    order, placement_id = past.order, past.order.placement_id
    if past.times is not None:
        return Profiled(placement_id, _measured(past.times))
    failed = [rank for rank in past.faults if isinstance(rank.message, FailedMessage)]
    if failed or (past.faults and not past.stopping):
        return _of_fault(past, _telling(failed or past.faults))
    said = [rank.message for rank in ranks if isinstance(rank.message, StoppedMessage | CompletedMessage)]
    samples = next((message.samples for message in said if message.samples is not None), None)
    completed = any(isinstance(message, CompletedMessage) for message in said)
    if completed or not (said or past.stopping or past.killed):
        whole = order.spec.samples if order.until is None else order.until
        return Completed(placement_id, max(whole, samples or 0.0))
    kept = past.kept if samples is None else samples
    if past.stopping:
        return Stopped(placement_id, order.samples_done if kept is None else kept)
    return Interrupted(placement_id, "somebody else made it stop", samples_done=kept)


def _measured(times: ProfiledMessage) -> Measured:
    return Measured(
        data_s=times.data_s,
        forward_s=times.forward_s,
        backward_s=times.backward_s,
        update_s=times.update_s,
        iteration_s=times.iteration_s,
        parameters=times.parameters,
        memory_share=times.memory_share,
        modes=gangs.known_modes(times.modes),
    )


def _of_fault(past: WorkerRecord, rank: RankRecord) -> Failed | Interrupted:
    end = rank.end or ProcessEnd()
    placement_id = past.order.placement_id
    reason = "\n".join([_reason(rank, end), *end.lines])
    if _own_fault(rank, end):
        absent = _absent(past, rank, end)
        return Failed(placement_id, reason, _lasting(rank, end), end.code, end.signal, absent)
    return Interrupted(placement_id, reason, past.kept, end.code, end.signal)


def _telling(faults: list[RankRecord]) -> RankRecord:
    """The rank whose end explains the others."""
    starved = [rank for rank in faults if rank.end and rank.end.memory is not MemoryState.ENOUGH]
    first_hand = [rank for rank in faults if not isinstance(rank.message, LostMessage)]
    return (starved or first_hand or faults)[0]


def _own_fault(rank: RankRecord, end: ProcessEnd) -> bool:
    if end.memory is not MemoryState.ENOUGH:
        return end.memory is MemoryState.OVER_LIMIT
    if end.disk_full or isinstance(rank.message, LostMessage):
        return False
    return isinstance(rank.message, FailedMessage) or bool(end.code and not end.killed_by)


def _lasting(rank: RankRecord, end: ProcessEnd) -> bool:
    """Whether it would fail every time on this GPU type."""
    said = rank.message.reason if isinstance(rank.message, FailedMessage) else ""
    return end.memory is MemoryState.OVER_LIMIT or any(text in said for text in NO_GPU_MEMORY)


def _absent(past: WorkerRecord, rank: RankRecord, end: ProcessEnd) -> bool:
    """Whether it never began because its program, folder or image is missing."""
    if rank.up or rank.message is not None:
        return False
    no_image = bool(past.order.spec.image) and end.code == NO_CONTAINER
    no_script = end.code == NO_SCRIPT[0] and any(NO_SCRIPT[1] in line for line in end.lines)
    return end.code in NO_PROGRAM or no_image or no_script


def _reason(rank: RankRecord, end: ProcessEnd) -> str:
    who = f"rank {rank.number}"
    if end.memory is MemoryState.OVER_LIMIT:
        return f"{who}: more main memory than the job asked for"
    if end.memory is MemoryState.NODE_FULL:
        return f"{who}: the node ran out of main memory"
    if end.disk_full:
        return f"{who}: no space left in {end.disk_full}"
    if rank.message is not None:
        return f"{who} {_said(rank.message)}"
    if end.killed_by:
        return f"{who} was ended by {_signal_name(end.killed_by)}"
    return f"{who} ended unseen" if end.code is None else f"{who} ended with exit code {end.code}"


def _signal_name(number: int) -> str:
    """Most of the real-time signals have none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _said(message: LastMessage) -> str:
    match message:
        case FailedMessage(reason=reason):
            return f"failed: {reason[:REASON_MAX]}"
        case EndedMessage(reason=reason):
            return f"was ended: {reason}"
        case LostMessage(reason=reason):
            return f"lost a peer: {reason[:REASON_MAX]}"
        case _:
            return "ended"
