"""What running teaches about loading and waiting, against numbers worked out by hand."""

import msgspec
import numpy as np
import pytest

from schemas.ids import GpuType
from schemas.samples import ThroughputObserved
from services.estimator.lookup.layers import EvidenceThreshold, estimate
from services.estimator.store.contract import RUNNING, Loading, Running, shows_wait
from services.estimator.store.memory_store import MemoryStore
from services.estimator.theory.formula import Gangs, Modules, expected_iteration_s
from services.estimator.theory.refinement import due, refined
from shared.domain.iteration import law_of
from tests.services.estimator.estimator_builders import GIGA, mode, modules, node, observed, wanted, workload

A = GpuType("A")
STABLE, UNSTABLE = (mode(0.1),), (mode(0.1, probability=0.8), mode(2.0, probability=0.2))


def waited(*wait_s: float, gpus: int = 2) -> ThroughputObserved:
    return msgspec.structs.replace(
        observed(configuration={"a0": gpus}), data_s=(0.1,) * len(wait_s), wait_s=wait_s
    )


def running(*seen: ThroughputObserved) -> Running:
    return Running(seen, tuple(filter(shows_wait, seen)))


def loading(data: tuple[object, ...] = STABLE, *, factor: float = 1.0, extra_s: float = 0.0) -> Loading:
    return Loading(data=data, wait_factor=factor, wait_s=extra_s, iterations=64)  # type: ignore[arg-type]


def iteration_s(one: Loading, gpus: int = 2) -> float:
    gangs = Gangs(
        modules=[Modules(modules(data=UNSTABLE, parameters=0.0), one)],
        which=np.array([0]),
        batch_size=np.array([100]),
        gpus=np.array([gpus]),
        distributed=np.array([False]),
        latency_s=np.array([0.0]),
        bandwidth=np.array([10 * GIGA]),
    )
    return float(expected_iteration_s(gangs)[0])


def test_a_fit_is_due_again_after_four_times_as_many_observations() -> None:
    assert [count for count in range(1, 600) if due(count)] == [8, 32, 128, 512]


def test_the_wait_of_an_unstable_loader_is_scaled_to_the_measured_one() -> None:
    """Two processes, both hit with 0.64: the slower is at 0.64 · 0.7 + 0.36 · 2.0 = 1.168 s, a process itself
    at 0.8 · 0.7 + 0.2 · 2.0 = 0.96 s. Drawn 0.208 s, measured 0.104 s: half."""
    found = refined(modules(parameters=0.0), UNSTABLE, running(waited(0.2, 0.008)), node(), None)
    assert found.wait_factor == pytest.approx(0.5, abs=1e-4)
    assert (found.data, found.wait_s, found.iterations) == (UNSTABLE, 0.0, 2)


def test_to_the_letter_waiting_is_recorded_in_each_condition() -> None:
    seen = msgspec.structs.replace(
        observed(configuration={"a0": 2}), data_s=(0.1, 0.11, 2.1, 1.9), wait_s=(0.5, 0.3, 0.02, 0.04)
    )
    alone = msgspec.structs.replace(observed(configuration={"a0": 1}), data_s=(0.1,), wait_s=(9.0,))
    found = refined(modules(), UNSTABLE, running(seen, alone), node(), None, law=law_of("waiting"))
    assert found.waits_s == pytest.approx((0.4, 0.03))
    assert refined(modules(), UNSTABLE, running(alone), node(), None, law=law_of("waiting")).waits_s == ()
    never = refined(modules(), UNSTABLE, running(waited(0.2, 0.4)), node(), None, law=law_of("waiting"))
    assert never.waits_s == pytest.approx((0.3, 0.3))  # nobody missed: the mean of all


def test_the_wait_of_a_stable_loader_is_added() -> None:
    found = refined(modules(), STABLE, running(waited(0.02, 0.04), waited(0.05, 0.01)), node(), None)
    assert [found.wait_factor, found.wait_s] == pytest.approx([1.0, 0.03])


def test_a_single_process_teaches_nothing_about_waiting() -> None:
    found = refined(modules(), STABLE, running(waited(0.5, gpus=1)), node(), None)
    assert (found.wait_factor, found.wait_s) == (1.0, 0.0)


def test_what_gangs_showed_is_not_taken_back_by_jobs_on_one_gpu() -> None:
    store = MemoryStore(half_life_s=1e6)
    store.add([waited(0.02, 0.04, gpus=3), *[waited(0.0, 0.0, gpus=1)] * RUNNING])
    found = refined(modules(), STABLE, store.running(workload().fingerprint, A), node(), None)
    assert (found.wait_factor, found.wait_s) == (1.0, 0.03)


def test_refined_loading_takes_the_place_of_the_profile() -> None:
    """Profiled unstable, 1.0 · 0.8 + 2.3 · 0.2 for one process; running shows it is stable: 1.0."""
    assert iteration_s(loading(UNSTABLE), gpus=1) == pytest.approx(1.26)
    assert iteration_s(loading(), gpus=1) == pytest.approx(1.0)


def test_the_factor_and_the_addition_reach_the_iteration() -> None:
    """E(T_iter) of two: own 1.26 + drawn 0.208."""
    assert iteration_s(loading(UNSTABLE)) == pytest.approx(1.468, abs=1e-4)
    assert iteration_s(loading(UNSTABLE, factor=0.5)) == pytest.approx(1.364, abs=1e-4)
    assert iteration_s(loading(extra_s=0.25)) == pytest.approx(1.25)
    assert iteration_s(loading(extra_s=0.25), gpus=1) == pytest.approx(1.0)


def test_the_theory_layer_answers_with_the_refined_loading() -> None:
    store = MemoryStore(half_life_s=1e6)
    store.keep(workload(), {A: modules(parameters=0.0)})
    store.refine(workload().fingerprint, A, loading(extra_s=1.0))
    found = estimate(wanted({"a0": 1}, {"a0": 2}, nodes=(node(),)), store, EvidenceThreshold(3, 60.0))
    assert found.throughput == pytest.approx([100.0, 2 * 100 / 2.0])
