"""An emulated runner with faults that tests cause by files.

In the folder that FAULTS_FOLDER names, as long as they are there:

| file        | on its node                                                                  |
|-------------|------------------------------------------------------------------------------|
| `slow`      | the next start takes so many cluster seconds longer, and removes the file     |
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
"""reports after which a busy GPU counts as used by others"""
GPUS = 64


class FaultyRunner(EmulatedRunner):
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
        reported = ALL_WELL
        while True:
            seen = self._look()
            for _ in range(LOOKS if seen != reported else 0):
                report(seen)  # type: ignore[arg-type] # an input too
            if seen.broken != reported.broken:
                self._lose(*seen.broken)
            reported = seen
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
    """The content of a file, which is removed; of several agents only one gets it."""
    own = file.with_name(f"{file.name}-{os.getpid()}")
    try:
        file.rename(own)
    except FileNotFoundError:
        return ""
    return own.read_text()


def faulty(settings: Settings, clock: Clock) -> FaultyRunner:
    """A `RunnerFactory`."""
    return FaultyRunner(Path(os.environ["FAULTS_FOLDER"]), settings, clock)
