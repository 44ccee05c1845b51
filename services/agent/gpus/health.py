"""Which GPUs are busy with other work and which are broken, from what the driver reports. Pure.

A busy GPU may be free again at the next reading. A broken one counts as broken for the rest of the agent's
life, since only a reset repairs it. A GPU that a worker of this agent uses is busy here too; the core knows
which GPUs those are.
"""

from collections.abc import Callable, Mapping, Sequence

from services.agent.gpus.nvml import GpuReading, Xid
from services.agent.gpus.xids import fatal

MEMORY_FREE = 2**30
"""bytes of GPU memory; up to this use a GPU counts as unused: a driver or a display server takes less"""
UTILISATION_FREE = 10
"""percent; up to this utilisation a GPU counts as unused: reading its state takes some"""
NAMED_AT_MOST = 3
"""processes on a GPU that a reason names"""

Faults = dict[int, str]
"""what is wrong with a GPU, in words, by its index"""


def busy(readings: Sequence[GpuReading], who: Callable[[int], str]) -> Faults:
    """GPUs in use, with their users. `who`: describes a process by its pid; empty: not known."""
    found = {index: _use(reading, who) for index, reading in enumerate(readings)}
    return {index: words for index, words in found.items() if words}


def _use(reading: GpuReading, who: Callable[[int], str]) -> str:
    if reading.partitioned:
        return "it is cut into instances (MIG)"
    if reading.processes:
        return f"in use by {_named(reading.processes, who)}"
    if reading.memory_used > MEMORY_FREE:
        return "its memory is in use by no process that can be seen"
    if reading.utilisation > UTILISATION_FREE:
        return "it computes for no process that can be seen"
    return ""


def _named(processes: Sequence[int], who: Callable[[int], str]) -> str:
    ids = sorted(set(processes))
    named = [f"process {pid}{who(pid)}" for pid in ids[:NAMED_AT_MOST]]
    more = len(ids) - len(named)
    return ", ".join([*named, *([f"{more} more"] if more else [])])


def broken(readings: Sequence[GpuReading], xids: Sequence[Xid], uuids: Sequence[str]) -> Faults:
    """GPUs that must not be used until they are reset or replaced."""
    found = {index: _fault(reading) for index, reading in enumerate(readings)}
    for xid in xids:
        words = fatal(xid.code)
        for index in _meant(xid, uuids) if words else ():
            found[index] = words
    return {index: words for index, words in sorted(found.items()) if words}


def _meant(xid: Xid, uuids: Sequence[str]) -> Sequence[int]:
    """The GPUs that an Xid is about.

    A GPU that is gone has no UUID, so an Xid without one may be about any.
    """
    return [uuids.index(xid.uuid)] if xid.uuid in uuids else [] if xid.uuid else range(len(uuids))


def _fault(reading: GpuReading) -> str:
    if reading.lost:
        return "the driver cannot reach it"
    if reading.remap_failed:
        return "memory rows cannot be replaced"
    if reading.remap_pending:
        return "memory rows are to be replaced: reset it"
    return ""


def seen_twice(now: Mapping[int, str], before: Mapping[int, str]) -> Faults:
    """The GPUs that are in two readings in a row; what only one reading shows may pass."""
    return {index: words for index, words in now.items() if index in before}
