"""A runner of jobs in an agent's own process, an emulated one, that can be made ill by files.

In the folder that AILING names, as long as they are there:

| file        | on its node                                                                  |
|-------------|------------------------------------------------------------------------------|
| `slow`      | the next start takes so many cluster seconds longer; who takes it removes it  |
| `gone-NODE` | the GPU of this index has fallen off the bus, and its worker with it          |
| `busy-NODE` | others use every GPU that no worker of ours has                              |
"""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from schemas.catalogue import NOTHING_MORE
from schemas.events import StartOrdered
from schemas.ids import PlacementId
from schemas.settings import Settings
from services.agent.tasks import ALL_WELL, Failed, GpusSeen, Report
from services.agent.work.emulated import EmulatedRunner
from services.agent.work.rotas import EmulatedWorker
from services.agent.work.runner import Write
from services.agent.work.world import WorldFactory
from shared.runtime.clock import Clock
from shared.runtime.plugins import WORLDS

LOOK_EVERY_REAL_S = 0.1
LOOKS = 2
"""before what is busy counts as somebody else's"""
GPUS = 64


class Ailing(EmulatedRunner):
    def __init__(self, folder: Path, settings: Settings, clock: Clock) -> None:
        make: WorldFactory = WORLDS.load(settings.world)
        super().__init__(
            make(settings, NOTHING_MORE),
            clock,
            startup_s=settings.startup_s,
            checkpoint_s=settings.checkpoint_s,
            observe_every_s=settings.observe_every_s,
        )
        self._slow = folder / "slow"
        self._gone, self._busy = (folder / f"{what}-{settings.node}" for what in ("gone", "busy"))
        self._gpus: dict[PlacementId, tuple[int, ...]] = {}

    async def run(self, report: Callable[[Report], None], write: Write | None) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch(report))
            await super().run(report, write)

    def start(self, order: StartOrdered, gpu_indices: tuple[int, ...]) -> None:
        self._gpus[order.placement_id] = gpu_indices
        super().start(order, gpu_indices)

    def _start_s(self, worker: EmulatedWorker) -> float:
        return super()._start_s(worker) + float(_taken(self._slow) or "0")

    async def _watch(self, report: Callable[[Report], None]) -> None:
        said = ALL_WELL
        while True:
            seen = self._look()
            for _ in range(LOOKS if seen != said else 0):
                report(seen)  # type: ignore[arg-type] # an input too
            if seen.broken != said.broken:
                self._lose(*seen.broken)
            said = seen
            await asyncio.sleep(LOOK_EVERY_REAL_S)

    def _look(self) -> GpusSeen:
        busy = dict.fromkeys(range(GPUS), "python (4711)") if self._busy.exists() else {}
        broken = {int(self._gone.read_text()): "fallen off the bus"} if self._gone.exists() else {}
        return GpusSeen(busy=busy, broken=broken)

    def _lose(self, *gone: int) -> None:
        for placement_id, worker in list(self._workers.items()):
            if not set(gone).isdisjoint(self._gpus[placement_id]):
                if worker.alarm is not None:
                    worker.alarm.cancel()
                self._end(worker, Failed(placement_id, "the device is gone", exit_code=1))


def _taken(file: Path) -> str:
    """What it says; of several who look, one finds it."""
    own = file.with_name(f"{file.name}-{os.getpid()}")
    try:
        file.rename(own)
    except FileNotFoundError:
        return ""
    return own.read_text()


def ailing(settings: Settings, clock: Clock) -> Ailing:
    """A `RunnerFactory`."""
    return Ailing(Path(os.environ["AILING"]), settings, clock)
