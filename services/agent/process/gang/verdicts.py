"""The last report about a worker, from how its ranks ended and from their last messages. Pure.

The first rank that ended badly decides, with two exceptions. A rank without memory decides before all others,
since that explains why the others ended. And a rank that lost a peer decides only if all did. A last message
counts for more than an exit code.
"""

import signal
from collections.abc import Iterator
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
"""exit code of a shell or container whose process was ended by a signal → the signal"""
NO_PROGRAM = (126, 127)
"""exit codes of shells, containers and `enter.py`: the program cannot be executed, or does not exist"""
NO_CONTAINER = 125
"""exit code of docker and podman: no container was made, mostly because the image is missing"""
NO_SCRIPT = (2, "can't open file")
"""exit code and message of Python: the script does not exist"""
SILENT_ENDS = {
    None: "ended unseen",
    0: "ended with exit code 0, but did not report its end, as after os._exit",
}
"""by exit code: how a rank ended that left no last message"""
REASON_MAX = 4_000
"""characters of a rank's own reason that are kept, so that the fact fits into a message"""
NO_GPU_MEMORY = ("OutOfMemoryError", "CUDA out of memory", "CUDA error: out of memory")
"""texts in a script's exception that mean that the GPU's memory is too small for it"""


class MemoryState(StrEnum):
    ENOUGH = "enough"
    NODE_FULL = "node-full"
    OVER_LIMIT = "over-limit"
    """the job used more than it asked for"""


class ProcessEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How a process ended. With neither code nor signal that is not known, as for an adopted rank."""

    code: int | None = None
    signal: int | None = None
    memory: MemoryState = MemoryState.ENOUGH
    disk_full: str = ""
    """a folder whose disk is full; empty: none"""
    lines: tuple[str, ...] = ()
    """the last lines that it printed"""

    @property
    def killed_by(self) -> int | None:
        return self.signal or FATAL_OF_SHELLS.get(self.code or 0)


class RankRecord(msgspec.Struct):
    """What is known of one rank."""

    number: int
    attached: bool = False
    """its script called `attach`, so it reports its end; a rank without it just exits with 0"""
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
    """samples done, by the last message of rank 0; None: rank 0 is on another node, or has sent none"""
    samples_saved: float | None = None
    """samples in the newest checkpoint; None: not known"""
    save_s: float = 0.0
    """seconds that writing the newest checkpoint took"""
    times: ProfiledMessage | None = None
    """the result of a measurement"""
    stopping: bool = False
    """it was ordered to stop"""
    killed: bool = False
    """the agent has killed its processes"""
    faults: list[RankRecord] = []
    """the ranks that ended badly before the agent killed the others, in the order of their ends"""


def verdict(record: WorkerRecord, ranks: list[RankRecord]) -> LastReport:
    """The last report about a worker whose ranks have all ended."""
    order, placement_id = record.order, record.order.placement_id
    if record.times is not None:
        return Profiled(placement_id, _measured(record.times))
    failed = [rank for rank in record.faults if isinstance(rank.message, FailedMessage)]
    if failed or (record.faults and not record.stopping):
        return _fault_report(record, _root_cause(failed or record.faults), ranks)
    said = [rank.message for rank in ranks if isinstance(rank.message, StoppedMessage | CompletedMessage)]
    samples = next((message.samples for message in said if message.samples is not None), None)
    completed = any(isinstance(message, CompletedMessage) for message in said)
    if completed or not (said or record.stopping or record.killed):
        whole = order.spec.samples if order.until is None else order.until
        counted = order.until is None and all(rank.attached for rank in ranks)
        early = counted and samples is not None and samples < whole
        return Completed(placement_id, max(whole, samples or 0.0), samples if early else None)
    samples_saved = record.samples_saved if samples is None else samples
    if record.stopping:
        return Stopped(placement_id, order.samples_done if samples_saved is None else samples_saved)
    return Interrupted(placement_id, "it stopped without being asked to", samples_done=samples_saved)


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


def _fault_report(record: WorkerRecord, rank: RankRecord, ranks: list[RankRecord]) -> Failed | Interrupted:
    end = rank.end or ProcessEnd()
    placement_id = record.order.placement_id
    reason = "\n".join([_reason(rank, end), *_early_peers(rank, ranks), *end.lines])
    if _own_fault(rank, end):
        too_large = _too_large(rank)
        return Failed(
            placement_id,
            reason,
            lasting=too_large or end.memory is MemoryState.OVER_LIMIT,
            exit_code=end.code,
            signal=end.signal,
            absent=_absent(record, rank, end),
            whole_workload=too_large,
        )
    return Interrupted(placement_id, reason, record.samples_saved, end.code, end.signal)


def _early_peers(rank: RankRecord, ranks: list[RankRecord]) -> Iterator[str]:
    """The first rank that had ended without an error, where another lost a peer: that may be why."""
    if type(rank.message) is LostMessage:
        early = next((one.number for one in ranks if one.ended_well), None)
        if early is not None:
            yield f"rank {early} had ended before, without an error"


def _root_cause(faults: list[RankRecord]) -> RankRecord:
    """The rank whose end caused those of the others."""
    starved = [rank for rank in faults if rank.end and rank.end.memory is not MemoryState.ENOUGH]
    first_hand = [rank for rank in faults if not isinstance(rank.message, LostMessage)]
    return (starved or first_hand or faults)[0]


def _own_fault(rank: RankRecord, end: ProcessEnd) -> bool:
    if end.memory is not MemoryState.ENOUGH:
        return end.memory is MemoryState.OVER_LIMIT
    if end.disk_full or isinstance(rank.message, LostMessage):
        return False
    return isinstance(rank.message, FailedMessage) or bool(end.code and not end.killed_by)


def _too_large(rank: RankRecord) -> bool:
    """Whether the GPU's memory is too small for what it trains."""
    said = rank.message.reason if isinstance(rank.message, FailedMessage) else ""
    return any(text in said for text in NO_GPU_MEMORY)


def _absent(record: WorkerRecord, rank: RankRecord, end: ProcessEnd) -> bool:
    """Whether the rank never began, because its program, script or image is missing on this node."""
    if rank.up or rank.message is not None:
        return False
    no_image = bool(record.order.spec.image) and end.code == NO_CONTAINER
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
        return f"{who} {_ending_text(rank.message)}"
    if end.killed_by:
        return f"{who} was ended by {_signal_name(end.killed_by)}"
    return f"{who} {SILENT_ENDS.get(end.code, f'ended with exit code {end.code}')}"


def _signal_name(number: int) -> str:
    """The signal's name; most real-time signals have none, so they get a number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _ending_text(message: LastMessage) -> str:
    match message:
        case FailedMessage(reason=reason):
            return f"failed: {reason[:REASON_MAX]}"
        case EndedMessage(reason=reason):
            return f"was ended: {reason}"
        case LostMessage(reason=reason):
            return f"was interrupted: {reason[:REASON_MAX]}"
        case _:
            return "ended"
