"""Hops eq. 1 to 5, against numbers worked out by hand."""

import math

import msgspec
import numpy as np
import pytest

from schemas.measurements import TimeModules
from schemas.settings import Settings
from services.estimator.store.contract import Loading
from services.estimator.theory.formula import (
    Computed,
    Gangs,
    Modules,
    expected_iteration_s,
    per_gpu_throughput,
)
from services.estimator.theory.waiting import slowest_s
from shared.domain.iteration import DEPARTURES as EQUATIONS
from shared.domain.iteration import communication_s, iteration_s, law_of, unhidden_share
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


@pytest.mark.parametrize(
    ("data_s", "exchange_s", "pattern", "expected"),
    [
        (0.1, 0.0, 1, 0.7 + 0.3),  # hidden: max(0.1, 0.5 + 0.2) + 0.3
        (0.9, 0.0, 1, 0.9 + 0.3),  # data are the bottleneck
        (0.1, 0.0, 2, 0.1 + 0.7 + 0.3),
        (0.1, 0.5, 1, 0.5 + 0.2 * 0.5 + 0.2 + 0.3),  # backward hides 0.8 of the exchange
        (0.1, 2.0, 1, 2.0 + 0.2 + 0.3),  # the exchange outlasts backward
        (0.1, 2.0, 2, 0.1 + 2.0 + 0.2 + 0.3),
    ],
)
def test_an_iteration_takes_what_equation_1_says(
    data_s: float, exchange_s: float, pattern: int, expected: float
) -> None:
    taken = iteration_s(
        data_s=data_s,
        forward_s=0.3,
        backward_s=0.5,
        update_s=0.2,
        communication_s=exchange_s,
        pattern=pattern,
    )
    assert taken == pytest.approx(expected)


def test_what_backward_cannot_hide_is_the_model_s_own() -> None:
    """0.3 + (0.5 + 0.7 · 0.5) + 0.2: more than the 0.5 of the exchange alone, or than data."""
    taken = iteration_s(
        data_s=0.1,
        forward_s=0.3,
        backward_s=0.5,
        update_s=0.2,
        communication_s=0.5,
        unhidden=0.7,
        pattern=1,
    )
    assert taken == pytest.approx(1.35)


@pytest.mark.parametrize(
    ("parameters", "bucket_bytes", "expected"),
    [
        (3.5e6, 25e6, 1.0),  # 14 MB: one bucket, nothing to hide behind
        (11.7e6, 25e6, 25 / 46.8),
        (138e6, 25e6, 0.2),  # as in the paper
        (3.5e6, 0.0, 0.2),
        (0.0, 25e6, 0.2),
    ],
)
def test_the_last_bucket_of_gradients_hides_behind_nothing(
    parameters: float, bucket_bytes: float, expected: float
) -> None:
    assert unhidden_share(parameters, bucket_bytes) == pytest.approx(expected)


def test_waiting_is_added_whole() -> None:
    taken = iteration_s(data_s=0.1, forward_s=0.3, backward_s=0.5, update_s=0.2, pattern=1, wait_s=0.4)
    assert taken == pytest.approx(1.4)


@pytest.mark.parametrize(
    ("gpus", "distributed", "expected"),
    [(1, False, 0.0), (2, False, 0.5), (4, False, 0.75), (2, True, 1.0), (16, True, 1.0)],
)
def test_gradients_travel_as_equation_2_says(gpus: int, distributed: bool, expected: float) -> None:  # noqa: FBT001
    """A quarter of a billion parameters at 4 bytes each over 1 GB/s."""
    taken = communication_s(
        parameters=0.25 * GIGA, gpus=float(gpus), distributed=distributed, bandwidth=1 * GIGA
    )
    assert taken == pytest.approx(expected)
    late = communication_s(
        parameters=0.25 * GIGA, gpus=gpus, distributed=distributed, bandwidth=1 * GIGA, latency_s=0.01
    )
    assert late == pytest.approx(expected + (0.01 if gpus > 1 else 0.0))


def test_to_the_letter_pattern_2_has_no_update() -> None:
    for pattern, expected in ((1, 0.7 + 0.3), (2, 0.1 + 0.5 + 0.3)):
        taken = iteration_s(
            data_s=0.1, forward_s=0.3, backward_s=0.5, update_s=0.2, pattern=pattern, law=law_of("update")
        )
        assert taken == pytest.approx(expected)


def test_to_the_letter_a_gang_waits_as_recorded_in_each_condition() -> None:
    """0.8 · (1.0 + 0.1) + 0.2 · (2.3 + 0.4); before anything is recorded, and alone, nobody waits."""
    loader = (mode(0.1, probability=0.8), mode(2.0, probability=0.2))
    one = modules(data=loader, parameters=0.0)
    seen = Loading(data=loader, wait_factor=9.0, wait_s=9.0, iterations=64, waits_s=(0.1, 0.4))
    for known, gpus, expected in ((seen, 2, 1.42), (seen, 16, 1.42), (seen, 1, 1.26), (None, 2, 1.26)):
        pair = msgspec.structs.replace(gangs(one, gpus=gpus, loading=known), law=law_of("waiting"))
        assert expected_iteration_s(pair) == pytest.approx(expected)


@pytest.mark.parametrize("word", EQUATIONS)
def test_every_equation_can_be_had_to_the_letter_by_itself(word: str) -> None:
    every = msgspec.structs.asdict(law_of("all"))
    assert not any(every.values())
    [changed] = [name for name, ours in msgspec.structs.asdict(law_of(word)).items() if not ours]
    assert changed in every
    assert msgspec.convert({"equations_as_printed": f"{word} all"}, Settings)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"equations_as_printed": word + "x"}, Settings)


def test_throughput_is_the_batch_over_the_expected_iteration() -> None:
    assert per_gpu_throughput(gangs(modules())) == pytest.approx(100 / 1.0)


def test_an_aggregated_gang_pays_for_its_ring() -> None:
    """T_c = 0.1 s · 3/4; max(0.5 + 0.2 · 0.075, 0.075) + 0.2 + 0.3."""
    assert expected_iteration_s(gangs(modules(), gpus=4)) == pytest.approx(1.015)


def test_a_distributed_gang_pays_for_the_network() -> None:
    """T_c = 1 s outlasts T_b + 0.2 s = 0.7 s: 1 + 0.2 + 0.3."""
    pair = gangs(modules(), gpus=2, distributed=True, bandwidth=1 * GIGA)
    assert expected_iteration_s(pair) == pytest.approx(1.5)


@pytest.mark.parametrize(("pattern", "expected"), [(1, 0.8 * 1.0 + 0.2 * 2.3), (2, 0.8 * 1.1 + 0.2 * 3.0)])
def test_hits_and_misses_are_weighted_as_equation_4_says(pattern: int, expected: float) -> None:
    loader = (mode(0.1, probability=0.8), mode(2.0, probability=0.2))
    assert expected_iteration_s(gangs(modules(data=loader, pattern=pattern))) == pytest.approx(expected)


def test_with_more_processes_somebody_misses_more_often() -> None:
    """Two processes both hit with 0.64: 0.64 · 1.0 + 0.36 · 2.3, beside an exchange that costs nothing."""
    loader = (mode(0.1, probability=0.8), mode(2.0, probability=0.2))
    pair = gangs(modules(data=loader, parameters=0.0), gpus=2)
    assert expected_iteration_s(pair) == pytest.approx(0.64 * 1.0 + 0.36 * 2.3)


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


def test_one_process_waits_for_nobody() -> None:
    assert slowest(1, 0.0) == pytest.approx(1.0, abs=1e-6)


def test_the_slower_of_two_normal_draws_is_known_in_closed_form() -> None:
    assert slowest(2, 0.0) == pytest.approx(1.0 + 0.1 / np.sqrt(np.pi), abs=1e-6)


def test_what_lies_below_the_floor_is_hidden() -> None:
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


def test_what_was_computed_before_is_what_would_be_computed() -> None:
    """Rows that are new and rows that are not, of two workloads, in one question."""
    random, computed = np.random.default_rng(1), Computed(limit=30)
    known = [Modules(modules(), None), Modules(modules(forward_s=0.7), None)]
    for _ in range(5):
        gpus = random.integers(1, 9, 20)
        asked = Gangs(
            modules=known,
            which=random.integers(0, 2, 20),
            batch_size=np.full(20, 100),
            gpus=gpus,
            distributed=(gpus > 4) & (random.random(20) < 0.5),
            latency_s=random.choice([0.0, 0.1], 20),
            bandwidth=random.choice([GIGA, 10 * GIGA], 20),
        )
        assert computed.per_gpu_throughput(asked).tolist() == per_gpu_throughput(asked).tolist()
