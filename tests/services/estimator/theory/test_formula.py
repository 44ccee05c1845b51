"""Hops eq. 3 to 5, against numbers worked out by hand."""

import math

import msgspec
import numpy as np
import pytest

from schemas.measurements import TimeModules
from services.estimator.store.contract import Loading
from services.estimator.theory.formula import (
    Gangs,
    Modules,
    expected_iteration_s,
    per_gpu_throughput,
)
from services.estimator.theory.waiting import slowest_s
from shared.domain.iteration import law_of
from tests.services.estimator.estimator_builders import GIGA, mode, modules


def gangs(
    one: TimeModules,
    *,
    gpus: int = 1,
    distributed: bool = False,
    bandwidth: float = 10 * GIGA,
    latency_s: float = 0.0,
    loading: Loading | None = None,
) -> Gangs:
    return Gangs(
        modules=[Modules(one, loading)],
        which=np.array([0]),
        batch_size=np.array([100]),
        gpus=np.array([gpus]),
        distributed=np.array([distributed]),
        latency_s=np.array([latency_s]),
        bandwidth=np.array([bandwidth]),
    )


def test_to_the_letter_a_gang_waits_as_recorded_in_each_condition() -> None:
    """0.8 · (1.0 + 0.1) + 0.2 · (2.3 + 0.4); before anything is recorded, and alone, nobody waits."""
    loader = (mode(0.1, probability=0.8), mode(2.0, probability=0.2))
    one = modules(data=loader, parameters=0.0)
    seen = Loading(data=loader, wait_factor=9.0, wait_s=9.0, iterations=64, waits_s=(0.1, 0.4))
    for known, gpus, expected in ((seen, 2, 1.42), (seen, 16, 1.42), (seen, 1, 1.26), (None, 2, 1.26)):
        pair = msgspec.structs.replace(gangs(one, gpus=gpus, loading=known), law=law_of("waiting"))
        assert expected_iteration_s(pair) == pytest.approx(expected)


def test_to_the_letter_a_gang_with_a_stable_loader_waits_as_recorded() -> None:
    seen = Loading(data=(mode(0.1),), wait_factor=9.0, wait_s=9.0, iterations=64, waits_s=(0.3,))
    one = gangs(modules(parameters=0.0), gpus=2, loading=seen)
    pair = msgspec.structs.replace(one, law=law_of("waiting"))
    assert expected_iteration_s(pair) == pytest.approx(1.3)


def test_throughput_is_the_batch_over_the_expected_iteration() -> None:
    assert per_gpu_throughput(gangs(modules())) == pytest.approx(100 / 1.0)


def test_an_aggregated_gang_pays_for_its_ring() -> None:
    """T_c = 0.1 s · 3/4; max(0.5 + 0.2 · 0.075, 0.075) + 0.2 + 0.3."""
    assert expected_iteration_s(gangs(modules(), gpus=4)) == pytest.approx(1.015)


def test_a_distributed_gang_pays_for_the_network() -> None:
    """T_c = 1 s outlasts T_b + 0.2 s = 0.7 s: 1 + 0.2 + 0.3."""
    pair = gangs(modules(), gpus=2, distributed=True, bandwidth=1 * GIGA)
    assert expected_iteration_s(pair) == pytest.approx(1.5)
    assert per_gpu_throughput(pair) == pytest.approx(100 / 1.5)


@pytest.mark.parametrize(("pattern", "expected"), [(1, 0.8 * 1.0 + 0.2 * 2.3), (2, 0.8 * 1.1 + 0.2 * 3.0)])
def test_hits_and_misses_are_weighted_as_equation_4_says(pattern: int, expected: float) -> None:
    loader = (mode(0.1, probability=0.8), mode(2.0, probability=0.2))
    assert expected_iteration_s(gangs(modules(data=loader, pattern=pattern))) == pytest.approx(expected)


@pytest.mark.parametrize("gpus", [2, 16])
@pytest.mark.parametrize(("pattern", "hit_s", "miss_s"), [(1, 1.0, 2.3), (2, 1.1, 3.0)])
def test_with_more_processes_some_process_misses_more_often(
    gpus: int, pattern: int, hit_s: float, miss_s: float
) -> None:
    """All of N processes hit with 0.8^N; else all take as long as a miss. The exchange costs nothing."""
    loader = (mode(0.1, probability=0.8), mode(2.0, probability=0.2))
    gang = gangs(modules(data=loader, parameters=0.0, pattern=pattern), gpus=gpus)
    assert expected_iteration_s(gang) == pytest.approx(0.8**gpus * hit_s + (1 - 0.8**gpus) * miss_s)


@pytest.mark.parametrize(("pattern", "expected"), [(1, 0.25 + 0.2 + 0.15), (2, 0.05 + 0.25 + 0.2 + 0.15)])
def test_half_a_batch_takes_half_as_long_but_for_the_update(pattern: int, expected: float) -> None:
    whole = gangs(modules(data=(mode(0.1),), pattern=pattern))
    half = msgspec.structs.replace(whole, share=np.array([0.5]))
    assert expected_iteration_s(half) == pytest.approx(expected)
    assert per_gpu_throughput(half) == pytest.approx(50 / expected)


def slowest(processes: int, floor_s: float, *, mean_s: float = 1.0, std_s: float = 0.1) -> float:
    return float(
        slowest_s(
            probability=np.array([[1.0]]),
            mean_s=np.array([[mean_s]]),
            std_s=np.array([[std_s]]),
            processes=np.array([processes]),
            floor_s=np.array([floor_s]),
        )[0]
    )


def test_a_single_process_does_not_wait() -> None:
    assert slowest(1, 0.0) == pytest.approx(1.0, abs=1e-6)


def test_the_slower_of_two_normal_draws_is_known_in_closed_form() -> None:
    assert slowest(2, 0.0) == pytest.approx(1.0 + 0.1 / np.sqrt(np.pi), abs=1e-6)


def test_a_data_time_below_the_floor_is_hidden() -> None:
    assert slowest(8, 3.0) == pytest.approx(3.0)


def test_a_normal_above_a_floor_is_known_in_closed_form() -> None:
    """E[max(X, μ)] = μ + σ / √(2π)."""
    assert slowest(1, 1.0) == pytest.approx(1.0 + 0.1 / np.sqrt(2 * np.pi), abs=1e-6)


@pytest.mark.parametrize("processes", [1, 3, 16, 512, 4096])
def test_the_slowest_of_many_agrees_with_a_fine_grid(processes: int) -> None:
    times = np.linspace(0.0, 2.0, 20_001)
    reached = np.array([0.5 * math.erfc(-(one - 1.0) / (0.1 * math.sqrt(2))) for one in times.tolist()])
    assert slowest(processes, 0.0) == pytest.approx(np.trapezoid(1 - reached**processes, times), abs=1e-4)


def test_two_narrow_components_far_apart_are_not_missed() -> None:
    far = slowest_s(
        probability=np.array([[0.9, 0.1]]),
        mean_s=np.array([[0.01, 5.0]]),
        std_s=np.array([[1e-4, 1e-3]]),
        processes=np.array([4]),
        floor_s=np.array([0.5]),
    )
    miss = 1 - 0.9**4
    assert far == pytest.approx(miss * 5.0 + (1 - miss) * 0.5, abs=1e-3)
