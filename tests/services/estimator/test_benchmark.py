"""How long estimates take, and what they hold up meanwhile (run with -m benchmark).

CPU time is asserted and wall time printed: the machine may be shared.
"""

import asyncio
import time
from collections.abc import Iterator

import msgspec
import numpy as np
import pytest

from schemas.ids import GpuType
from schemas.questions import EstimateQuestion, Estimates
from schemas.samples import ThroughputObserved
from services.estimator.build import build
from services.estimator.lookup.columns import Estimated, Wanted, estimates, wanted
from services.estimator.lookup.layers import EvidenceThreshold, estimate
from services.estimator.store.duckdb_store import DuckDbStore
from shared.runtime.clock import LoopClock
from shared.runtime.service import Ports
from shared.runtime.shell.shell import Shell
from tests.bus_nets import JetStreamNet
from tests.services.estimator.estimator_builders import joined, mode, modules, node, observed, workload
from tests.services.estimator.estimator_scale import GPU_TYPES, NODES, WORKLOADS, answered, question, whole

OBSERVATIONS, BATCH = 1_000_000, 20_000
ENOUGH, NEVER = EvidenceThreshold(3, 60.0), EvidenceThreshold(10**6, 1e9)
LIMIT_S = 0.3


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store with a million observations."""
    path = str(tmp_path_factory.mktemp("store") / "store.duckdb")
    store = DuckDbStore(path, half_life_s=1e6)
    loader = (mode(0.01, 0.002, 0.9), mode(0.4, 0.03, 0.1))
    for number in range(WORKLOADS):
        store.keep(
            workload(f"m{number}"), {GpuType(f"T{kind}"): modules(data=loader) for kind in range(GPU_TYPES)}
        )
    began = time.perf_counter()
    for batch in observations():
        store.add(batch)
    store.close()
    print(f"{OBSERVATIONS} observations written in {time.perf_counter() - began:.1f} s")
    return path


def observations() -> Iterator[list[ThroughputObserved]]:
    draw = np.random.default_rng(1)
    for start in range(0, OBSERVATIONS, BATCH):
        columns = (
            draw.integers(0, NODES, BATCH),
            draw.integers(1, 9, BATCH),
            draw.integers(0, WORKLOADS, BATCH),
        )
        rows = zip(*(column.tolist() for column in columns), strict=True)
        yield [
            msgspec.structs.replace(
                observed(
                    f"n{n}", f"T{n % GPU_TYPES}", configuration={f"n{n}": g}, model=f"m{k}", seconds=120.0
                ),
                at=float(start + index),
            )
            for index, (n, g, k) in enumerate(rows)
        ]


def taken(store: DuckDbStore, asked: EstimateQuestion, enough: EvidenceThreshold) -> tuple[float, Estimated]:
    """The best CPU time of a few."""
    nodes = tuple(node(one, f"T{int(one[1:]) % GPU_TYPES}") for one in asked.nodes)
    times = []
    for _ in range(4):
        began = time.process_time()
        columns: Wanted = wanted(asked, tuple(asked.workloads), nodes)
        found = estimate(columns, store, enough)
        estimates(found)
        times.append(time.process_time() - began)
    return min(times), found


@pytest.mark.benchmark
@pytest.mark.parametrize("configurations", [50_000, 1_000_000])
def test_many_configurations_are_estimated_from_a_million_observations(
    path: str, configurations: int
) -> None:
    store = DuckDbStore(path, half_life_s=1e6)
    asked = question(configurations)
    began = time.perf_counter()
    store.theory(asked.workloads)
    print(f"\nthe workloads' rows read in {time.perf_counter() - began:.2f} s")
    for name, enough in (("all layers", ENOUGH), ("theory alone", NEVER)):
        seconds, found = taken(store, asked, enough)
        by_layer = np.bincount(found.layer, minlength=3).tolist()
        print(f"{configurations} configurations, {name}: {seconds:.3f} s of CPU, layers {by_layer}")
        assert not np.isnan(found.throughput).any()
        assert seconds < LIMIT_S
    store.close()


@pytest.mark.benchmark
@pytest.mark.parametrize("configurations", [50_000, 1_000_000])
async def test_the_event_loop_stays_responsive_during_a_large_question(
    path: str, live: JetStreamNet, configurations: int
) -> None:
    settings = msgspec.structs.replace(live.settings, store=path)
    ports = Ports(bus=await live.client("estimator"), clock=LoopClock())
    service = build(settings, ports)
    client = await live.client("test")
    await client.publish([joined(node(f"n{n}", f"T{n % GPU_TYPES}")) for n in range(NODES)])
    running = asyncio.create_task(Shell(service, ports, settings).run())
    asked = question(configurations)
    assert whole(await answered(client, asked), configurations)  # reads the workloads' rows
    lags: list[float] = []
    beating = asyncio.create_task(beat(lags))
    began = time.perf_counter()
    reply = await answered(client, asked)
    print(f"\n{configurations} configurations over NATS and back: {time.perf_counter() - began:.3f} s")
    beating.cancel()
    print(f"the loop of both ends was late by {max(lags) * 1e3:.0f} ms at most")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert isinstance(reply, Estimates)
    assert max(lags) < LIMIT_S


async def beat(lags: list[float]) -> None:
    while True:
        due = time.perf_counter() + 0.005
        await asyncio.sleep(0.005)
        lags.append(time.perf_counter() - due)
