"""The whole planner, as it is built, under the shell."""

import asyncio

import pytest

from schemas.events import PlanPublished
from schemas.questions import ESTIMATOR, JudgePolicy, PolicyVerdict
from schemas.settings import Settings
from services.planner.build import build
from shared.runtime.bus.contract import Unavailable
from shared.runtime.bus.memory import MemoryBus
from shared.runtime.clock import LoopClock
from shared.runtime.offload import INLINE, LiveOffload, Offload
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
        return await asyncio.wait_for(_plan(bus), 120.0)
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


def test_the_planner_plans_on_virtual_time() -> None:
    async def main() -> PlanPublished:
        return await first_plan(MemoryBus(LoopClock()), Settings(solve_limit="work"), INLINE)

    made = virtual.run(main)
    assert made.placements[0].gang.configuration == config(node_1=4)
    assert made.notes == ()


async def test_the_planner_plans_live_with_policies_in_their_own_process() -> None:
    made = await first_plan(MemoryBus(LoopClock()), Settings(), LiveOffload())
    assert made.placements[0].gang.configuration == config(node_1=4)
    assert made.notes == ()


async def test_a_planner_set_to_an_unknown_policy_does_not_start() -> None:
    ports = Ports(bus=MemoryBus(LoopClock()), clock=LoopClock())
    with pytest.raises(UnknownPlugin, match=r"nonsense is unknown; there are allox, .*hops"):
        build(Settings(policy="nonsense"), ports)


VERDICTS = {
    "hops+moving_cost_s=15": "",
    "fifo": "",
    "hops+nonsense=1": "policy hops has no option nonsense; it has priority_power",
    "hops+moving_cost_s=much": "policy hops, option moving_cost_s: it must be a number",
    "hops+moving_cost_s=-1": "policy hops, option moving_cost_s: it must be a number ≥ 0",
    "hops+priority_rule=lrr": "did you mean lr",
    "fifo+x=1": "policy fifo has no option x; it has ",
    "nobody+x=1": "no such policy nobody",
    "json:loads": "no such policy json:loads",
}
"""by what is asked about: part of what it lacks"""


async def test_the_planner_judges_whether_a_policy_can_plan_with_its_options() -> None:
    bus, clock, settings = MemoryBus(LoopClock()), LoopClock(), Settings()
    ports = Ports(bus=bus, clock=clock, offload=LiveOffload())
    service = build(settings, ports)
    planner = asyncio.create_task(Shell(service, ports, settings).run())
    try:
        said = {policy: await _verdict(bus, policy) for policy in VERDICTS}
    finally:
        planner.cancel()
        await asyncio.gather(planner, return_exceptions=True)
        assert service.close is not None
        await service.close()
        await bus.close()
    assert {policy: bool(unfit) for policy, unfit in said.items()} == {
        policy: bool(part) for policy, part in VERDICTS.items()
    }
    assert [policy for policy, part in VERDICTS.items() if part not in said[policy]] == []


async def _verdict(bus: MemoryBus, policy: str) -> str:
    async with asyncio.timeout(60.0):
        while True:
            try:
                verdict = await bus.ask(JudgePolicy(policy=policy), 30.0)
            except Unavailable:  # the planner is starting
                await asyncio.sleep(0.01)
            else:
                assert isinstance(verdict, PolicyVerdict)
                return verdict.unfit
