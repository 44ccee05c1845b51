"""A profile run: some iterations on one GPU, then the process ends. No checkpoints, no other ranks."""

from __future__ import annotations

import os

from hopjob.agent.connection import Connection
from hopjob.agent.ending import FAILED, Ending
from hopjob.measure.memory import memory_share
from hopjob.measure.timing import WARM, Watch, measured

AT_LEAST = 3
DIVIDES = "HOPJOB_DIVIDES"
"""in a job's environment: its script, without `attach`, divides a batch as `HOPJOB_SHARES` says"""


class Profile:
    def __init__(self, iterations: int, line: Connection, ending: Ending) -> None:
        self._iterations, self._line, self._ending = iterations, line, ending
        self.divides = bool(os.environ.get(DIVIDES))
        """ranks can have unlike parts of a batch; else nobody needs to know whether more of it would fit"""
        self.watch = Watch(self._one_more)

    def begin(self) -> None:
        self.watch.install()

    def script_ended(self) -> None:
        """Fewer iterations than were wanted: those that there are, if they say anything."""
        rows = self.watch.rows
        if len(rows) < AT_LEAST:
            reason = f"the script ended after {len(rows)} updates of its model: too few to measure"
            self._ending.leave("failed", {"reason": reason}, FAILED)
        self._report(min(WARM, len(rows) // 2))

    def _one_more(self, watch: Watch) -> None:
        if self._line.stop_asked is not None:
            self._ending.stopped()
        if len(watch.rows) >= self._iterations + WARM:
            self._report(WARM)

    def _report(self, warm: int) -> None:
        assert self.watch.optimizer is not None
        groups = self.watch.optimizer.param_groups
        count = sum(parameter.numel() for group in groups for parameter in group["params"])
        times = measured(self.watch.rows[warm:])
        share = memory_share() if self.divides else None
        self._ending.leave("profiled", {**times, "parameters": count, "memory_share": share})
