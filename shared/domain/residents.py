"""Which jobs' processes stand by on a node between placements, with their state in its memory. Pure.

The emulated runner follows this rule, so the planner can compute which job is warm on which node.
"""

import msgspec

from schemas.ids import JobId


class Residents(msgspec.Struct, kw_only=True):
    """The processes on one node: a job has one for each GPU that it had. Their number is limited."""

    processes: dict[JobId, int] = {}
    """processes here by job, whether they run or stand by; the least recently used first"""
    using: dict[JobId, int] = {}
    """number of placements here, by job"""

    def enter(self, job_id: JobId, gpus: int, *, room: int) -> bool:
        """A placement of the job begins on `gpus` GPUs of the node; returns whether the job is warm there.

        If more than `room` processes would be on the node, those that stand by end, the least recently used
        first.
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
