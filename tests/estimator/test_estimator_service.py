"""The whole service: shell, bus, core and DuckDB."""

import asyncio
from pathlib import Path

import numpy as np
import pytest
from estimator_builders import joined, node, observed, profiled, question, submitted

from schemas.events import JobQueued
from schemas.questions import Estimates
from schemas.settings import Settings
from schemas.subjects import facts_of
from services.estimator.build import FLUSH_SIMULATED_S, build
from services.estimator.store import StoreUnavailable
from shared.runtime.bus import Bus
from shared.runtime.clock import LoopClock
from shared.runtime.memory import MemoryBus
from shared.runtime.service import Ports
from shared.runtime.shell import Shell
from shared.runtime.virtual import run


async def ask(bus: Bus) -> float:
    reply = await bus.ask(question(), 5.0)
    assert isinstance(reply, Estimates)
    return float(np.frombuffer(reply.throughput, dtype="<f8")[0])


async def queued(bus: Bus) -> None:
    async for batch in bus.read(0, facts_of("job")):
        if any(isinstance(record.event, JobQueued) for record in batch):
            return


async def first_theory_then_evidence(settings: Settings, *, simulated: bool) -> tuple[float, float]:
    net = MemoryBus(LoopClock())
    bus = net.client("test")
    ports = Ports(bus=net.client("estimator"), clock=LoopClock(), simulated=simulated)
    service = build(settings, ports)
    running = asyncio.create_task(Shell(service, ports, settings).run())
    await bus.publish([joined(node()), submitted(), profiled()])
    async with asyncio.timeout(10.0):
        await queued(bus)
    theory = await ask(bus)
    for _ in range(100 if not simulated else 3):
        await bus.send(observed(throughput=40.0))
    await asyncio.sleep(2 * FLUSH_SIMULATED_S if simulated else 0.3)
    evidence = await ask(bus)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert service.close is not None
    await service.close()
    await net.close()
    return theory, evidence


def test_estimates_follow_what_was_observed() -> None:
    answers = run(lambda: first_theory_then_evidence(Settings(), simulated=True))
    assert answers == pytest.approx((100.0, 40.0))


def test_the_store_is_written_in_a_thread_of_its_own(tmp_path: Path) -> None:
    settings = Settings(store=str(tmp_path / "store.duckdb"))
    answers = asyncio.run(first_theory_then_evidence(settings, simulated=False))
    assert answers == pytest.approx((100.0, 40.0))
    again = asyncio.run(first_theory_then_evidence(settings, simulated=False))
    assert again == pytest.approx((40.0, 40.0))


def test_a_damaged_store_stops_the_service_before_it_starts(tmp_path: Path) -> None:
    path = tmp_path / "store.duckdb"
    path.write_bytes(b"?" * 100)
    ports = Ports(bus=MemoryBus(LoopClock()).client("estimator"), clock=LoopClock())
    with pytest.raises(StoreUnavailable, match="Restore the file"):
        build(Settings(store=str(path)), ports)
