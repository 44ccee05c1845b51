"""Every service's core, driven as by its shell: with bytes from the bus, turn by turn, with its timers.

No message may make it raise. What cannot be read is counted as a dead letter, as on the bus.
"""

from collections.abc import Callable, Mapping

import msgspec

from schemas.codec import Malformed, decode_question
from schemas.placement import Lockstep
from schemas.settings import Settings
from services.admission.core import Admission
from services.agent.core import Agent, Superseded
from services.estimator.core import Estimator
from services.monitor.core import Monitor
from services.placer.core import Placer
from services.planner.core.planner import Planner
from services.planner.core.tasks import Leadership
from services.planner.solver.effort import Effort
from services.profiler.core import Profiler
from shared.domain.core import Asked, Core
from shared.domain.invariants import read_fact, read_sample
from shared.runtime.bus.contract import Record
from shared.runtime.service import Service
from shared.runtime.shell.handling import Handling
from tests.fact_builders import a_node

CORES: Mapping[str, Callable[[], Core]] = {
    "admission": lambda: Admission(Settings()),
    "agent": lambda: Agent(a_node("xp-00", gpus=2), "life", frozenset({Lockstep})),
    "estimator": lambda: Estimator(flush_s=10.0),
    "monitor": lambda: Monitor(lease_s=40.0, interruptions_max=3, raqlr_window_s=3600.0, speed=1.0),
    "placer": lambda: Placer(start_timeout_s=60.0, profile_iterations=20),
    "planner": lambda: Planner(Settings(), effort=Effort(gap=0.01, budget_s=1.0), grace_s=10.0),
    "profiler": lambda: Profiler(round_s=200.0, timeout_s=30.0, attempts=2),
}
TURNS_AT_AN_INSTANT = 50


class Fed:
    """A core with its handling; `reborn` begins its next life."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.dead = 0
        self.read = 0
        self._now = 0.0
        self._begin()

    def fact(self, seq: int, data: bytes) -> None:
        try:
            event = read_fact(data)
        except Malformed:
            self.dead += 1
            return
        if event is not None:
            self.read += 1
            # It is stored at about its own time, if that is not far from now.
            self._now = max(self._now, min(event.at, self._now + 100.0))
            self._turn(Record(seq, event))

    def sample(self, data: bytes) -> None:
        """Some kinds are for one service; the others must ignore them."""
        self._input(read_sample, data)

    def question(self, data: bytes) -> None:
        self._input(lambda each: Asked(1, decode_question(each)), data)

    def _input(self, read: Callable[[bytes], object], data: bytes) -> None:
        try:
            message = read(data)
        except Malformed:
            self.dead += 1
            return
        self.read += 1
        self._turn(message)

    def reborn(self) -> None:
        """Begin the next life, from a snapshot."""
        blob = self._handling.snapshot()
        self._begin()
        self._handling.restore(blob)
        self._handling.core.resume(self._now)

    def _begin(self) -> None:
        core = CORES[self.name]()
        self._handling = Handling(Service(name=self.name, core=core, facts=()), 10_000)
        core.resume(self._now)
        core.handle(Leadership(token=1, announce=False), self._now)

    def _turn(self, message: object) -> None:
        try:
            effects = self._handling.turn([message], self._now)
            for _ in range(TURNS_AT_AN_INSTANT):
                if self._handling.due is None or self._handling.due > self._now:
                    break
                effects += self._handling.turn([], self._now)
            else:
                raise AssertionError(f"{self.name} does not come to rest")
            msgspec.msgpack.encode(effects)  # what it says can travel
        except Superseded:
            assert self.name == "agent", "only an agent may have to end for another"
            self._begin()
