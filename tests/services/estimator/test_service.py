"""The whole service: shell, bus, core and DuckDB."""

import asyncio
import shutil
import time
from pathlib import Path

import msgspec
import numpy as np
import pytest

from schemas.events import JobQueued
from schemas.questions import Estimates
from schemas.samples import ThroughputObserved
from schemas.settings import Settings
from schemas.subjects import facts_of
from services.estimator.build import build
from services.estimator.lookup.layers import EvidenceThreshold, estimate
from services.estimator.store.contract import StoreUnavailable
from services.estimator.store.duckdb_store import DuckDbStore
from services.estimator.theory.refinement import FIRST_AT
from services.estimator.work.workers import LOOK_EVERY_S, RETRIED_WITHIN_S, StoreLane
from services.profiler.build import build as build_profiler
from shared.runtime.bus.contract import Bus
from shared.runtime.bus.memory import MemoryBus
from shared.runtime.clock import LoopClock
from shared.runtime.offload import INLINE, LiveOffload, Offload
from shared.runtime.service import Ports
from shared.runtime.shell.shell import Shell
from shared.runtime.shell.virtual import run
from tests.services.estimator.estimator_builders import (
    joined,
    node,
    observed,
    profiled,
    question,
    ran,
    submitted,
    wanted,
)


async def ask(bus: Bus) -> float:
    reply = await bus.ask(question(), 5.0)
    assert isinstance(reply, Estimates)
    return float(np.frombuffer(reply.throughput, dtype="<f8")[0])


async def queued(bus: Bus) -> None:
    async for batch in bus.read(0, facts_of("job")):
        if any(isinstance(record.event, JobQueued) for record in batch):
            return


async def first_theory_then_evidence(settings: Settings, offload: Offload = INLINE) -> tuple[float, float]:
    net = MemoryBus(LoopClock())
    bus = net.client("test")
    ports = Ports(bus=net.client("estimator"), clock=LoopClock(), offload=offload)
    service = build(settings, ports)
    running = asyncio.create_task(Shell(service, ports, settings).run())
    await bus.publish([joined(node()), submitted(), profiled(), *ran(observed())])
    async with asyncio.timeout(60.0):
        await queued(bus)
    theory = await ask(bus)
    for _ in range(3 if offload is INLINE else 100):
        await bus.send(observed(throughput=40.0))
    async with asyncio.timeout(60.0):
        while (evidence := await ask(bus)) != pytest.approx(40.0):
            await asyncio.sleep(0.1)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert service.close is not None
    await service.close()
    await net.close()
    return theory, evidence


def test_estimates_follow_observations() -> None:
    answers = run(lambda: first_theory_then_evidence(Settings()))
    assert answers == pytest.approx((100.0, 40.0))


def test_the_store_is_written_in_a_thread_of_its_own(tmp_path: Path) -> None:
    settings = Settings(store=str(tmp_path / "store.duckdb"))
    answers = asyncio.run(first_theory_then_evidence(settings, LiveOffload()))
    assert answers == pytest.approx((100.0, 40.0))
    again = asyncio.run(first_theory_then_evidence(settings, LiveOffload()))
    assert again == pytest.approx((40.0, 40.0))


def unstable(at: float) -> ThroughputObserved:
    """Two processes, of which the first reads from the disk now and then; the loader was profiled stable."""
    random = np.random.default_rng(int(at))
    times = np.where(random.random(8) < 0.25, 2.0, 0.1) * random.normal(1.0, 0.05, 8)
    alone = observed(configuration={"a9": 1, "a8": 1}, node_id="a9", at=at)
    return msgspec.structs.replace(alone, data_s=tuple(times.tolist()), wait_s=(0.1,) * 8)


async def refined_by_the_profiler() -> tuple[float, float]:
    """The estimate for one GPU before and after loading times of other configurations came in."""
    net, settings = MemoryBus(LoopClock()), Settings()
    bus = net.client("test")
    ports = [Ports(bus=net.client(name), clock=LoopClock()) for name in ("e", "p")]
    services = [build(settings, ports[0]), build_profiler(settings, ports[1])]
    running = [
        asyncio.create_task(Shell(one, its, settings).run()) for one, its in zip(services, ports, strict=True)
    ]
    await bus.publish([joined(node()), submitted(), profiled(), *ran(unstable(0.0))])
    await queued(bus)
    before = await ask(bus)
    for at in range(FIRST_AT):
        await bus.send(unstable(float(at)))
    await asyncio.sleep(2 * settings.store_flush_real_s)
    after = await ask(bus)
    for one in running:
        one.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    await net.close()
    return before, after


def test_running_mode_samples_refine_the_loading_of_every_configuration() -> None:
    """About a quarter of the iterations take 2.3 s and not 1.0 s, which the profile did not show."""
    before, after = run(refined_by_the_profiler)
    assert before == pytest.approx(100.0)
    assert 100 / 1.6 < after < 100 / 1.1
    assert run(refined_by_the_profiler) == (before, after)


def test_history_is_that_of_the_workload_and_outlives_the_process(tmp_path: Path) -> None:
    """Another job, another life of the service, the same store: what was learnt answers at once."""
    settings = Settings(store=str(tmp_path / "store.duckdb"))
    for life in ("1", "2"):
        store = DuckDbStore(settings.store, settings.evidence_half_life_s)
        if life == "1":
            store.add([observed(throughput=40.0)] * 3)
        else:
            fingerprint = submitted("another-job").spec.workload.fingerprint
            asked = wanted({"a0": 1}, nodes=(node(),))
            assert asked.fingerprints == (fingerprint,)
            assert estimate(asked, store, EvidenceThreshold(3, 60.0)).throughput == pytest.approx([40.0])
        store.close()


def test_a_damaged_store_stops_the_service_before_it_starts(tmp_path: Path) -> None:
    path = tmp_path / "store.duckdb"
    path.write_bytes(b"?" * 100)
    ports = Ports(bus=MemoryBus(LoopClock()).client("estimator"), clock=LoopClock())
    with pytest.raises(StoreUnavailable, match="hopyard store rebuild"):
        build(Settings(store=str(path)), ports)


async def test_a_failed_import_is_no_lasting_trouble_of_the_store() -> None:
    """An import for which there was no room: who asked has heard it, and nobody asks again."""
    full = True

    def write() -> None:
        if full:
            raise StoreUnavailable("no room")

    def import_page() -> None:
        write()

    lane = StoreLane(INLINE.lane("store"), "store", retried=(write,))
    for work in (write, import_page):
        with pytest.raises(StoreUnavailable):
            await lane.do(work)
    assert lane.troubles() == ("no room",)
    full = False
    await lane.do(write)
    assert lane.troubles() == ()


async def test_a_store_whose_file_was_taken_away_is_a_trouble_until_it_is_back(tmp_path: Path) -> None:
    path, away = tmp_path / "store.duckdb", tmp_path / "away"
    store = DuckDbStore(str(path), 1e6)
    lane = StoreLane(INLINE.lane("store"), str(path), retried=())
    assert await lane.do(store.workloads) == []
    assert lane.troubles() == ()
    path.rename(away)
    await lane.do(store.workloads)
    [trouble] = lane.troubles()
    assert trouble.startswith(f"{path} was moved, deleted or replaced")
    shutil.copy(away, path)
    await lane.do(store.workloads)
    assert lane.troubles() == (trouble,)
    away.rename(path)
    await lane.do(store.workloads)
    assert lane.troubles() == ()
    store.close()


@pytest.mark.parametrize(("after_s", "said"), [(-1.0, ("no room",)), (1.0, ())])
async def test_work_that_is_not_tried_again_is_no_lasting_trouble(
    after_s: float, said: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job whose time modules could not be written is cancelled meanwhile."""

    def learn() -> None:
        raise StoreUnavailable("no room")

    lane = StoreLane(INLINE.lane("store"), "store", retried=(learn,), retry_real_s=120.0)
    with pytest.raises(StoreUnavailable):
        await lane.do(learn)
    later = time.monotonic() + 120.0 + RETRIED_WITHIN_S + after_s
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert lane.troubles() == said


def test_where_the_store_s_file_is_is_looked_at_while_nothing_else_is_done(tmp_path: Path) -> None:
    path, away = tmp_path / "store.duckdb", tmp_path / "away"

    async def moved_and_put_back() -> None:
        bus = MemoryBus(LoopClock()).client("estimator")
        ports = Ports(bus=bus, clock=LoopClock())
        settings = Settings(store=str(path))
        service = build(settings, ports)
        running = asyncio.create_task(Shell(service, ports, settings).run())
        await asyncio.sleep(1.0)
        path.rename(away)
        await asyncio.sleep(2 * LOOK_EVERY_S)
        assert len(service.troubles()) == 1
        away.rename(path)
        await asyncio.sleep(2 * LOOK_EVERY_S)
        assert service.troubles() == ()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert service.close is not None
        await service.close()

    run(moved_and_put_back)


async def test_a_store_whose_path_cannot_be_looked_at_is_not_said_to_be_moved(tmp_path: Path) -> None:
    """Too many symbolic links stand for a network disk that is away: either is an error of the system."""
    folder = tmp_path / "folder"
    folder.mkdir()
    path = folder / "store.duckdb"
    store = DuckDbStore(str(path), 1e6)
    lane = StoreLane(INLINE.lane("store"), str(path), retried=())
    folder.rename(tmp_path / "away")
    await lane.do(store.workloads)
    assert len(lane.troubles()) == 1
    folder.symlink_to(folder)
    await lane.do(store.workloads)
    assert lane.troubles() == ()
    store.close()
