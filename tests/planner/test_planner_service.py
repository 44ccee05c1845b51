"""The whole planner, as it is built, under the shell."""

import asyncio

import pytest
from desk_builders import answer
from fact_builders import config, in_queue, joined, opened

from schemas.events import PlanPublished
from schemas.questions import ESTIMATOR
from schemas.settings import Settings
from services.planner.build import build
from services.planner.registry import UnknownPolicy
from shared.runtime import virtual
from shared.runtime.clock import LoopClock
from shared.runtime.memory import MemoryBus
from shared.runtime.service import Ports
from shared.runtime.shell import Shell


async def first_plan(bus: MemoryBus, *, simulated: bool) -> PlanPublished:
    settings, clock = Settings(), LoopClock()
    await bus.serve("estimator", ESTIMATOR, answer)
    ports = Ports(bus=bus, clock=clock, simulated=simulated)
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


def test_it_plans_in_simulation() -> None:
    async def main() -> PlanPublished:
        return await first_plan(MemoryBus(LoopClock()), simulated=True)

    made = virtual.run(main)
    assert made.placements[0].configuration == config(node_1=4)
    assert made.notes == ()


async def test_it_plans_live_with_policies_in_a_process_of_their_own() -> None:
    made = await first_plan(MemoryBus(LoopClock()), simulated=False)
    assert made.placements[0].configuration == config(node_1=4)
    assert made.notes == ()


async def test_a_planner_set_to_an_unknown_policy_does_not_start() -> None:
    ports = Ports(bus=MemoryBus(LoopClock()), clock=LoopClock())
    with pytest.raises(UnknownPolicy, match=r"nonsense is unknown; there are fifo, .*hops"):
        build(Settings(policy="nonsense"), ports)
