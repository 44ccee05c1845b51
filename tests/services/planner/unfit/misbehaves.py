"""A policy that misbehaves at the step and in the way its options name; else it is `fifo`."""

import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Literal

import msgspec
import numpy as np

from services.planner.policies.classical.fifo import Fifo
from services.planner.policies.contract.configurations import Configurations
from services.planner.policies.contract.decision import Decision
from services.planner.policies.contract.estimates import Estimated
from services.planner.policies.contract.view import View
from services.planner.solver.problem import Solve

Step = Literal["built", "wants", "decides"]
How = Literal["raises", "hangs", "exits", "dies", "eats", "moves"]


def raises() -> None:
    raise RuntimeError("out of ideas")


def hangs() -> None:
    time.sleep(60.0)


def exits() -> None:
    sys.exit(3)


def dies() -> None:
    os._exit(3)


def eats() -> None:
    held = []
    while True:
        held.append(np.empty(2**25))  # of address space: nothing is written


def moves() -> None:
    os.chdir("/")


HOW: Mapping[How, Callable[[], None]] = {
    "raises": raises,
    "hangs": hangs,
    "exits": exits,
    "dies": dies,
    "eats": eats,
    "moves": moves,
}


class Misbehaves(Fifo):
    class Options(msgspec.Struct, frozen=True):
        when: Step = "decides"
        """in which step"""
        how: How = "raises"
        """in which way"""

    def __init__(self, options: Options) -> None:
        super().__init__()
        self.options = options
        self._step("built")

    def wants(self, view: View) -> Configurations:
        self._step("wants")
        return super().wants(view)

    def decide(
        self, view: View, wanted: Configurations, estimates: Estimated, solve: Solve | None = None
    ) -> Decision:
        self._step("decides")
        return super().decide(view, wanted, estimates, solve)

    def _step(self, step: Step) -> None:
        if self.options.when == step:
            HOW[self.options.how]()
