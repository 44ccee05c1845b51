"""The monitor as it runs: its own build, in the shell, on the memory bus and virtual time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from schemas.questions import ShowStatus
from schemas.settings import Settings
from schemas.subjects import FACT_SUBJECTS
from schemas.views import StatusView
from services.monitor.build import build
from services.monitor.state import State
from shared.domain.core import Asked, Reply
from shared.runtime.bus.memory import MemoryBus
from shared.runtime.clock import LoopClock, ScaledClock
from shared.runtime.service import Ports, Service
from shared.runtime.shell.shell import Shell
from shared.runtime.shell.virtual import run
from tests.fact_builders import (
    JOB,
    held,
    in_queue,
    joined,
    placement,
    plan,
    started,
    submitted,
    worker_started,
    worker_stopped,
)
from tests.services.monitor.monitor_world import heartbeat

SETTINGS = Settings(node_lease_real_s=6.0)


@asynccontextmanager
async def living(bus: MemoryBus) -> AsyncIterator[Service]:
    ports = Ports(bus=bus.client("monitor"), clock=LoopClock())
    service = build(SETTINGS, ports)
    task = asyncio.create_task(Shell(service, ports, SETTINGS).run())
    try:
        yield service
    finally:
        task.cancel()
        await asyncio.wait({task})


async def stored(bus: MemoryBus) -> list[str]:
    last = await bus.last_seq()
    async for batch in bus.read(0, FACT_SUBJECTS):
        ids = [record.event.event_id for record in batch]
        assert batch[-1].seq == last, "few enough facts to come at once"
        return ids
    return []


def test_silence_becomes_a_fact_after_the_lease() -> None:
    async def story() -> None:
        bus = MemoryBus(LoopClock())
        async with living(bus):
            await bus.publish([joined()])
            await asyncio.sleep(4)
            await bus.send(heartbeat())
            await asyncio.sleep(5.5)
            assert await stored(bus) == [joined().event_id]
            await asyncio.sleep(1)
            assert (await stored(bus))[1].startswith("node.lost/node-1/10.0")

    run(story)


def test_a_worker_s_end_becomes_the_job_s() -> None:
    async def story() -> None:
        bus = MemoryBus(LoopClock())
        async with living(bus):
            facts = [joined(), *in_queue(), plan(placement()), started(), worker_stopped(at=1)]
            await bus.publish(facts)
            await asyncio.sleep(1)
            assert (await stored(bus))[-1] == "job.completed/pl-1"

    run(story)


def test_a_question_is_answered_over_the_bus() -> None:
    async def story() -> None:
        bus = MemoryBus(LoopClock())
        async with living(bus):
            await bus.publish([joined(gpus=4), submitted(JOB)])
            await asyncio.sleep(1)
            view = await bus.ask(ShowStatus(), 1.0)
            assert isinstance(view, StatusView)
            assert (view.jobs, view.gpus) == ({"submitted": 1}, {"v100": (0, 4)})

    run(story)


def test_the_status_has_the_speed_of_the_clock() -> None:
    service = build(SETTINGS, Ports(bus=MemoryBus(LoopClock()), clock=ScaledClock(speed=60.0)))
    [reply] = service.core.handle(Asked(1, ShowStatus()), 0.0)
    assert isinstance(reply, Reply)
    assert isinstance(reply.message, StatusView)
    assert reply.message.speed == 60.0


def test_a_restarted_monitor_has_its_earlier_state() -> None:
    async def story() -> None:
        bus = MemoryBus(LoopClock())
        async with living(bus) as first:
            await bus.publish([joined(), *in_queue(), plan(placement()), started()])
            await asyncio.sleep(1)
        async with living(bus) as second:
            await asyncio.sleep(1)
            assert isinstance(second.core.state, State)
            assert second.core.state == first.core.state

    run(story)


def test_the_metrics_show_the_cluster() -> None:
    async def story() -> None:
        bus = MemoryBus(LoopClock())
        async with living(bus) as service:
            await bus.publish([joined(gpus=4), *in_queue(), *in_queue("b"), plan(placement("b"), gap=0.02)])
            await bus.publish([worker_started("b"), started("b"), *in_queue("c"), held("c"), held("b")])
            await asyncio.sleep(1)
            assert service.metrics is not None
            values = {(metric.name, *metric.labels.values()): metric.value for metric in service.metrics()}
            assert values["hopyard_jobs", "queued"] == 2
            assert values["hopyard_jobs_on_hold",] == 1
            assert values["hopyard_gpus", "v100"] == 4
            assert values["hopyard_nodes", "alive"] == 1
            assert values["hopyard_nodes_busy",] == 1
            assert values["hopyard_cluster_throughput",] == 1.0
            assert values["hopyard_plan_gap_ratio",] == 0.02

    run(story)
