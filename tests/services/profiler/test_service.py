"""The whole service: shell, bus and core, on virtual time and on wall time."""

import asyncio
from collections.abc import Callable

import pytest

from schemas.base import Event
from schemas.events import JobProfiled, ProfilingAdded, ProfilingPlanned
from schemas.settings import Settings
from schemas.subjects import FACT_SUBJECTS
from services.profiler.build import build
from shared.runtime.bus.contract import Bus
from shared.runtime.bus.memory import MemoryBus
from shared.runtime.clock import LoopClock
from shared.runtime.offload import INLINE, LiveOffload, Offload
from shared.runtime.service import Ports
from shared.runtime.shell.shell import Shell
from shared.runtime.shell.virtual import run
from tests.services.profiler.profiler_builders import ROUND_S, joined, measured, submitted

LIMIT_S = 2 * ROUND_S


async def first(bus: Bus, wanted: Callable[[Event], bool]) -> Event:
    async with asyncio.timeout(LIMIT_S):
        async for batch in bus.read(0, FACT_SUBJECTS):
            for record in batch:
                if wanted(record.event):
                    return record.event
    raise AssertionError


async def measure_one_job(settings: Settings, *, offload: Offload) -> JobProfiled:
    net = MemoryBus(LoopClock())
    bus = net.client("test")
    ports = Ports(bus=net.client("profiler"), clock=LoopClock(), offload=offload)
    await bus.publish([joined(), submitted()])
    built = build(settings, ports)
    service = asyncio.create_task(Shell(built, ports, settings).run())
    planned = await first(
        bus, lambda fact: isinstance(fact, ProfilingPlanned | ProfilingAdded) and bool(fact.runs)
    )
    assert isinstance(planned, ProfilingPlanned | ProfilingAdded)
    await bus.publish([measured(run) for run in planned.runs])
    profiled = await first(bus, lambda fact: isinstance(fact, JobProfiled))
    assert isinstance(profiled, JobProfiled)
    service.cancel()
    await asyncio.gather(service, return_exceptions=True)
    assert built.close is not None
    await built.close()
    await net.close()
    return profiled


@pytest.mark.parametrize("offload", [INLINE, LiveOffload()], ids=["inline", "beside"])
def test_a_job_is_measured_and_profiled(offload: Offload) -> None:
    settings = Settings(round_s=ROUND_S if offload is INLINE else 0.3)

    async def main() -> JobProfiled:
        return await measure_one_job(settings, offload=offload)

    profiled = run(main) if offload is INLINE else asyncio.run(main())
    assert list(profiled.modules) == ["A"]
