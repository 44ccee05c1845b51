"""Which jobs' processes stand by on a node between placements, with their state in its memory. Pure.

The emulated runner follows this rule, and so the planner knows which job is warm where.
"""

import msgspec

from schemas.ids import JobId


class Residents(msgspec.Struct, kw_only=True):
    """A job has a process for each GPU that it had; a GPU has so many at most, of whatever jobs."""

    processes: dict[JobId, int] = {}
    """the least recently used first"""
    using: dict[JobId, int] = {}
    """those that have a placement here, and how many"""

    def enter(self, job_id: JobId, gpus: int, *, room: int) -> bool:
        """A placement of the job begins on so many of the node's GPUs. Whether processes of its stand by.

        Others make room for it, so that no more than `room` are on the node: those that nobody uses, the
        least recently used first.
        """
        there = self.processes.pop(job_id, 0)
        self.processes[job_id] = max(there, gpus)
        self.using[job_id] = self.using.get(job_id, 0) + 1
        idle = [one for one in self.processes if one not in self.using]
        while idle and sum(self.processes.values()) > room:
            del self.processes[idle.pop(0)]
        return there >= gpus

    def leave(self, job_id: JobId, *, stays: bool) -> None:
        """A placement of the job ends; `stays`: its processes stand by."""
        if job_id not in self.using:
            return
        self.using[job_id] -= 1
        if not self.using[job_id]:
            del self.using[job_id]
        processes = self.processes.pop(job_id)
        if stays or job_id in self.using:
            self.processes[job_id] = processes
