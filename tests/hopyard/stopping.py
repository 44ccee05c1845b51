"""A policy that signals its own process while it decides."""

import os
import signal
from collections.abc import Sequence

from services.planner.policies.classical.fifo import Fifo
from services.planner.policies.contract.view import View, ViewJob

NUMBER = "STOPPING_SIGNAL"
"""the variable with the signal's number"""


class Stopping(Fifo):
    def order(self, view: View) -> Sequence[ViewJob]:
        os.kill(os.getpid(), signal.Signals(int(os.environ[NUMBER])))
        return super().order(view)
