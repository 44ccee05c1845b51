"""How long tens of thousands of estimates take (run with -m benchmark)."""

import time

import numpy as np
import pytest
from estimator_builders import mode, modules, node, observed, workload

from schemas.ids import GpuType
from services.estimator.columns import Wanted
from services.estimator.duckdb_store import DuckDbStore
from services.estimator.lookup import Enough, estimate

CONFIGURATIONS, OBSERVATIONS, WORKLOADS, NODES = 25_000, 100_000, 300, 64


def filled() -> DuckDbStore:
    draw = np.random.default_rng(1)
    store = DuckDbStore(":memory:", half_life_s=1e6)
    loader = (mode(0.01, 0.002, 0.9), mode(0.4, 0.03, 0.1))
    for k in range(WORKLOADS):
        store.keep(workload(f"m{k}"), {GpuType(f"T{t}"): modules(data=loader) for t in range(4)})
    for _ in range(OBSERVATIONS // 1000):
        where, gpus = draw.integers(0, NODES, 1000), draw.integers(1, 9, 1000)
        store.add(
            [
                observed(f"n{n}", f"T{n % 4}", configuration={f"n{n}": g}, model=f"m{k}", seconds=120.0)
                for n, g, k in zip(where, gpus.tolist(), draw.integers(0, WORKLOADS, 1000), strict=True)
            ]
        )
    return store


@pytest.mark.benchmark
def test_twenty_five_thousand_configurations_are_estimated_in_well_under_a_second() -> None:
    store = filled()
    draw = np.random.default_rng(2)
    widths = draw.choice([1, 1, 1, 2, 3], CONFIGURATIONS)
    asked = Wanted(
        fingerprints=tuple(workload(f"m{k}").fingerprint for k in range(WORKLOADS)),
        nodes=tuple(node(f"n{n}", f"T{n % 4}") for n in range(NODES)),
        job=draw.integers(0, WORKLOADS, CONFIGURATIONS),
        start=np.concatenate([[0], np.cumsum(widths)]).astype(np.int64),
        node=draw.integers(0, NODES, int(widths.sum())),
        gpus=draw.integers(1, 9, int(widths.sum())),
    )
    for name, enough in (("all layers", Enough(3, 60.0)), ("theory alone", Enough(10**6, 1e9))):
        times = []
        for _ in range(5):
            began = time.perf_counter()
            found = estimate(asked, store, enough)
            times.append(time.perf_counter() - began)
        by_layer = np.bincount(found.layer, minlength=3).tolist()
        print(f"{name}: {min(times):.3f} s at best, {max(times):.3f} s at worst, layers {by_layer}")
        assert not np.isnan(found.throughput).any()
        assert min(times) < 1.0
