"""The whole service: shell, bus and core, on virtual time and on wall time."""

import asyncio
from collections.abc import Callable

import pytest
from profiler_builders import ROUND_S, joined, measured, submitted

from schemas.base import Event
from schemas.events import JobProfiled, ProfilingPlanned
from schemas.settings import Settings
from schemas.subjects import FACT_SUBJECTS
from services.profiler.build import build
from shared.runtime.bus import Bus
from shared.runtime.clock import LoopClock
from shared.runtime.memory import MemoryBus
from shared.runtime.service import Ports
from shared.runtime.shell import Shell
from shared.runtime.virtual import run

LIMIT_S = 2 * ROUND_S


async def first(bus: Bus, wanted: Callable[[Event], bool]) -> Event:
    async with asyncio.timeout(LIMIT_S):
        async for batch in bus.read(0, FACT_SUBJECTS):
            for record in batch:
                if wanted(record.event):
                    return record.event
    raise AssertionError


async def measure_one_job(settings: Settings, *, simulated: bool) -> JobProfiled:
    net = MemoryBus(LoopClock())
    bus = net.client("test")
    ports = Ports(bus=net.client("profiler"), clock=LoopClock(), simulated=simulated)
    await bus.publish([joined(), submitted()])
    service = asyncio.create_task(Shell(build(settings, ports), ports, settings).run())
    planned = await first(bus, lambda fact: isinstance(fact, ProfilingPlanned) and bool(fact.runs))
    assert isinstance(planned, ProfilingPlanned)
    await bus.publish([measured(run) for run in planned.runs])
    profiled = await first(bus, lambda fact: isinstance(fact, JobProfiled))
    assert isinstance(profiled, JobProfiled)
    service.cancel()
    await asyncio.gather(service, return_exceptions=True)
    await net.close()
    return profiled


@pytest.mark.parametrize("simulated", [True, False])
def test_a_job_is_measured_and_profiled(*, simulated: bool) -> None:
    settings = Settings(round_s=ROUND_S if simulated else 0.3)

    async def main() -> JobProfiled:
        return await measure_one_job(settings, simulated=simulated)

    profiled = run(main) if simulated else asyncio.run(main())
    assert list(profiled.modules) == ["A"]
