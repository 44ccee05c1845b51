"""The watch over the GPUs, asked through the driver's stand-in."""

import asyncio
import os
from collections.abc import Callable

from services.agent.gpus.watching import SILENT, GpuWatch, who
from services.agent.tasks import ALL_WELL, GpusSeen
from shared.runtime.clock import ScaledClock
from shared.runtime.offload import LiveOffload
from shared.runtime.offload.contract import Lane
from shared.runtime.service import Inbox
from tests.services.agent.gpus.conftest import DriverOf
from tests.services.agent.gpus.driver import GIB, StubDriver, gpus, uuid


async def _ask(_: object) -> None:
    raise AssertionError("a watch asks nothing")


class Watched:
    """A watch that looks every few milliseconds."""

    def __init__(self, driver: StubDriver, lane: Lane | None = None, limit_s: float = 30.0) -> None:
        self._seen: list[GpusSeen] = []
        uuids = tuple(gpu.uuid for gpu in driver.gpus)
        self.watch = GpuWatch(
            uuids,
            ScaledClock(),
            lane or LiveOffload().lane("gpus"),
            look_every_real_s=0.005,
            answer_limit_real_s=limit_s,
        )
        self.inbox = Inbox(put=self._seen.append, ask=_ask, replayed=lambda: True, seq=lambda: 0)

    async def until(self, holds: Callable[[GpusSeen], bool]) -> GpusSeen:
        """The first look from now on of which it holds."""
        self._seen.clear()
        async with asyncio.timeout(120):
            while not (self._seen and holds(self._seen[-1])):
                await asyncio.sleep(0.005)
        return self._seen[-1]


def watched(driver: StubDriver) -> Watched:
    return Watched(driver)


async def test_a_gpu_is_busy_while_any_process_computes_on_it(driver_of: DriverOf) -> None:
    driver = driver_of(gpus(2))
    stage = watched(driver)
    assert await stage.watch.first() == ALL_WELL
    task = asyncio.create_task(stage.watch.run(stage.inbox))
    driver.gpus[1].processes = [os.getpid()]
    driver.write()
    seen = await stage.until(lambda look: bool(look.busy))
    assert list(seen.busy) == [1]
    assert seen.busy[1] == f"in use by process {os.getpid()}{who(os.getpid())}"
    driver.gpus[1].processes, driver.gpus[1].used = [], 2 * GIB
    driver.write()
    await stage.until(lambda look: look.busy == {1: "its memory is in use by no process that can be seen"})
    driver.gpus[1].used = 0
    driver.write()
    await stage.until(lambda look: look == ALL_WELL)
    task.cancel()


async def test_a_fatal_error_stays_and_one_of_a_job_does_not(driver_of: DriverOf) -> None:
    driver = driver_of(gpus(3))
    stage = watched(driver)
    await stage.watch.first()
    task = asyncio.create_task(stage.watch.run(stage.inbox))
    driver.xids = [(uuid(0), 31), (uuid(2), 79)]
    driver.write()
    seen = await stage.until(lambda look: bool(look.broken))
    assert seen.broken == {2: "has fallen off the bus (Xid 79)"}
    driver.gpus[1].lost = True
    driver.write()
    await stage.until(lambda look: look.broken.get(1) == "the driver cannot reach it")
    driver.gpus[1].lost = False
    driver.write()
    assert list((await stage.until(lambda _: True)).broken) == [1, 2]
    task.cancel()


class SilentLane:
    """A driver that does not answer."""

    async def do(self, *_: object) -> object:
        return await asyncio.Event().wait()

    def close(self) -> None: ...


async def test_a_driver_that_does_not_answer_breaks_all_gpus(driver_of: DriverOf) -> None:
    stage = Watched(driver_of(gpus(2)), lane=SilentLane(), limit_s=0.01)  # type: ignore[arg-type]
    assert (await stage.watch.first()).broken == {0: SILENT, 1: SILENT}


def test_a_process_that_is_gone_has_no_name() -> None:
    assert who(2**22 + 1) == ""
    assert who(os.getpid()).startswith(" (")
