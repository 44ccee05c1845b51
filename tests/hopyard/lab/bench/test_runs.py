"""Each measurement, small, on real processes (run with -m benchmark)."""

from pathlib import Path

import pytest

from hopyard.lab.bench.suite import BENCHMARKS, BenchRun

pytestmark = pytest.mark.benchmark


def values(name: str, data: Path) -> dict[str, float]:
    benchmark = BENCHMARKS[name](BenchRun(data, 0.05, print, times=1))
    assert benchmark is not None
    found = {figure.name: figure.value for figure in benchmark.figures}
    print(benchmark.conditions, found)
    return found


def test_a_job_gets_to_running(tmp_path: Path) -> None:
    found = values("latency", tmp_path)
    assert 0 < found["submitted to queued, as seen p50"] < found["submitted to running, as seen p50"]


def test_submissions_are_answered_and_stored(tmp_path: Path) -> None:
    assert values("submissions", tmp_path)["durable submissions"] > 0


def test_facts_are_published_and_read(tmp_path: Path) -> None:
    found = values("dispatch", tmp_path)
    assert found["facts published"] >= found["facts published and read"] > 0


def test_a_snapshot_spares_most_of_a_replay(tmp_path: Path) -> None:
    found = values("restart", tmp_path)
    assert found["placer, snapshot: facts by then"] < found["placer, no snapshot: facts by then"]
    assert found["placer, snapshot: ready"] > found["placer, snapshot: of that replay"] > 0


def test_a_simulated_run_is_faster_than_time(tmp_path: Path) -> None:
    found = values("simulation", tmp_path)
    assert found["hops on hops-64: simulated seconds"] > 1
    assert 0 < found["hops on hops-64: without the solver"] < found["hops on hops-64: CPU"]
