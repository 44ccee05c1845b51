"""A profile run: some iterations on one GPU, then the process ends. No checkpoints, no other ranks."""

from __future__ import annotations

import os

import torch

from hopjob.agent.connection import Connection
from hopjob.agent.ending import FAILED, Ending
from hopjob.measure.memory import memory_share
from hopjob.measure.timing import WARM, Watch, measured

AT_LEAST = 3
DIVIDES = "HOPJOB_DIVIDES"
"""environment variable with which a job says that its script, without `attach`, obeys `HOPJOB_SHARES`"""
ANY_MODE: tuple[str, ...] = ()
"""modes in which a script with `attach` trains"""
PLAIN_SCRIPT = ("lockstep",)
DIVIDING_SCRIPT = ("lockstep", "proportional")
TRAINER = ("forked", "lockstep")
SYNCED_LAYERS = ("forked", "lockstep", "proportional")
"""modes for a model with layers that exchange data in every forward pass: ranks need equally many passes"""


class Profile:
    def __init__(self, iterations: int, connection: Connection, ending: Ending) -> None:
        self._iterations, self._connection, self._ending = iterations, connection, ending
        self.divides = bool(os.environ.get(DIVIDES))
        """whether ranks may have unlike shares of a batch: then the share of memory has to be measured"""
        self.modes: tuple[str, ...] = DIVIDING_SCRIPT if self.divides else PLAIN_SCRIPT
        """modes in which the script can train on several GPUs; empty: any"""
        self.watch = Watch(self._iteration_ended)

    def attached(self) -> None:
        self.divides, self.modes = True, ANY_MODE

    def inspect(self, model: torch.nn.Module) -> None:
        if any(isinstance(layer, torch.nn.SyncBatchNorm) for layer in model.modules()):
            self.modes = SYNCED_LAYERS

    def begin(self) -> None:
        self.watch.install()

    def script_ended(self) -> None:
        """Report the iterations of a script that ended early, if they are enough."""
        rows = self.watch.rows
        if len(rows) < AT_LEAST:
            reason = f"the script ended after {len(rows)} updates of its model: too few to measure"
            self._ending.report_and_exit("failed", {"reason": reason}, FAILED)
        self._report(min(WARM, len(rows) // 2))

    def _iteration_ended(self, watch: Watch) -> None:
        if self._connection.stop_asked is not None:
            self._ending.stopped()
        if len(watch.rows) >= self._iterations + WARM:
            self._report(WARM)

    def _report(self, warm: int) -> None:
        assert self.watch.optimizer is not None
        groups = self.watch.optimizer.param_groups
        count = sum(parameter.numel() for group in groups for parameter in group["params"])
        times = measured(self.watch.rows[warm:])
        said = {"memory_share": memory_share() if self.divides else None, "modes": self.modes}
        self._ending.report_and_exit("profiled", {**times, "parameters": count, **said})
