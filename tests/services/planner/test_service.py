"""The whole planner, as it is built, under the shell."""

import asyncio

import pytest

from schemas.events import PlanPublished
from schemas.questions import ESTIMATOR
from schemas.settings import Settings
from services.planner.build import build
from shared.runtime.bus.memory import MemoryBus
from shared.runtime.clock import LoopClock
from shared.runtime.offload import INLINE, Beside, Offload
from shared.runtime.plugins import UnknownPlugin
from shared.runtime.service import Ports
from shared.runtime.shell import virtual
from shared.runtime.shell.shell import Shell
from tests.fact_builders import config, in_queue, joined, opened
from tests.services.planner.work.workers_builders import answer


async def first_plan(bus: MemoryBus, settings: Settings, offload: Offload) -> PlanPublished:
    clock = LoopClock()
    await bus.serve("estimator", ESTIMATOR, answer)
    ports = Ports(bus=bus, clock=clock, offload=offload)
    service = build(settings, ports)
    planner = asyncio.create_task(Shell(service, ports, settings).run())
    now = clock.now()
    await bus.publish(
        [joined(at=now), *in_queue(at=now, demand=(4,)), opened(at=now, number=int(now // 360.0))]
    )
    try:
        return await asyncio.wait_for(_plan(bus), 30.0)
    finally:
        planner.cancel()
        await asyncio.gather(planner, return_exceptions=True)
        assert service.close is not None
        await service.close()
        await bus.close()


async def _plan(bus: MemoryBus) -> PlanPublished:
    async for batch in bus.read(0, ("hopyard.plan.*.*",)):
        for record in batch:
            assert isinstance(record.event, PlanPublished)
            return record.event
    raise AssertionError("the stream ended")


def test_it_plans_on_virtual_time() -> None:
    async def main() -> PlanPublished:
        return await first_plan(MemoryBus(LoopClock()), Settings(solve_limit="work"), INLINE)

    made = virtual.run(main)
    assert made.placements[0].gang.configuration == config(node_1=4)
    assert made.notes == ()


async def test_it_plans_live_with_policies_in_a_process_of_their_own() -> None:
    made = await first_plan(MemoryBus(LoopClock()), Settings(), Beside())
    assert made.placements[0].gang.configuration == config(node_1=4)
    assert made.notes == ()


async def test_a_planner_set_to_an_unknown_policy_does_not_start() -> None:
    ports = Ports(bus=MemoryBus(LoopClock()), clock=LoopClock())
    with pytest.raises(UnknownPlugin, match=r"nonsense is unknown; there are fifo, .*hops"):
        build(Settings(policy="nonsense"), ports)
