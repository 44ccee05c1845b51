"""A runner on an emulated world under virtual time, and what it reported when."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from schemas.events import StartOrdered
from schemas.ids import JobId, NodeId, PlacementId
from services.agent.tasks import (
    Report,
)
from services.agent.work.emulated import EmulatedRunner
from shared.runtime.clock import LoopClock
from shared.runtime.shell.virtual import run
from tests.services.agent.agent_bench import FixedWorld

R = TypeVar("R", bound=Report)
P1, JOB, BEFORE = PlacementId("p1"), JobId("job-of-p1"), NodeId("a")
STARTUP_S, CHECKPOINT_S, OBSERVE_EVERY_S = 10.0, 5.0, 120.0
SWITCH_S = 0.5
"""of `FixedWorld`"""


def _now() -> float:
    """The virtual loop comes to a timer within microseconds."""
    return round(asyncio.get_running_loop().time(), 3)


class Play:
    """A runner, and what it reported at which time. The world gives 2 samples/s a GPU."""

    def __init__(self) -> None:
        self.reports: list[tuple[float, Report]] = []
        self.printed: list[tuple[float, JobId, int, str]] = []
        self.runner = EmulatedRunner(
            FixedWorld(),
            LoopClock(),
            startup_s=STARTUP_S,
            checkpoint_s=CHECKPOINT_S,
            observe_every_s=OBSERVE_EVERY_S,
        )

    def note(self, report: Report) -> None:
        self.reports.append((_now(), report))

    def print(self, job_id: JobId, rank: int, text: str) -> None:
        self.printed.append((_now(), job_id, rank, text))

    async def trained(self, order: StartOrdered) -> None:
        """Start it and let its gang form as soon as it is up."""
        self.runner.start(order, (0,))
        await asyncio.sleep(STARTUP_S)
        await asyncio.sleep(0)
        self.runner.train(order.placement_id, "")

    def of(self, kind: type[R]) -> list[tuple[float, R]]:
        return [(at, report) for at, report in self.reports if isinstance(report, kind)]


def played(scene: Callable[[Play], Awaitable[None]], *, until_s: float = 10_000.0) -> Play:
    """Play the scene and whatever follows it."""

    async def main() -> Play:
        play = Play()
        running = asyncio.create_task(play.runner.run(play.note, play.print))
        await asyncio.sleep(0)
        await scene(play)
        await asyncio.sleep(until_s)
        running.cancel()
        await asyncio.wait({running})
        return play

    return run(main)
