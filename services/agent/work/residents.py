"""Jobs whose processes stand by on a node between their placements, state in its memory. Pure."""

from schemas.ids import JobId


class Residents:
    """A job has a process for each GPU that it had; a GPU has so many at most, of whatever jobs."""

    def __init__(self, most: int) -> None:
        """`most`: processes of a GPU."""
        self._most = most
        self._processes: dict[JobId, int] = {}
        """the least recently used first"""
        self._using: dict[JobId, int] = {}
        """those that have a placement here, and how many"""

    def enter(self, job_id: JobId, gpus: int, *, of: int) -> bool:
        """A placement of the job begins on so many of the node's GPUs. Whether processes of its stand by.

        Others make room for it: those that nobody uses, the least recently used first.
        """
        there = self._processes.pop(job_id, 0)
        self._processes[job_id] = max(there, gpus)
        self._using[job_id] = self._using.get(job_id, 0) + 1
        idle = [one for one in self._processes if one not in self._using]
        while idle and sum(self._processes.values()) > self._most * of:
            del self._processes[idle.pop(0)]
        return there >= gpus

    def leave(self, job_id: JobId, *, stays: bool) -> None:
        """A placement of the job ends; `stays`: its processes stand by."""
        if job_id not in self._using:
            return
        self._using[job_id] -= 1
        if not self._using[job_id]:
            del self._using[job_id]
        processes = self._processes.pop(job_id)
        if stays or job_id in self._using:
            self._processes[job_id] = processes

    def __contains__(self, job_id: object) -> bool:
        return job_id in self._processes
