"""Gangs whose nodes take unlike parts of the batch."""

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from schemas.calibration import Path
from schemas.cluster import Node
from schemas.ids import GpuType
from schemas.questions import LAYERS
from schemas.samples import ThroughputObserved
from services.estimator.lookup.columns import Estimated, Wanted
from services.estimator.lookup.layers import EvidenceThreshold, estimate
from services.estimator.store.contract import Bandwidth, Correction
from services.estimator.store.memory_store import MemoryStore
from tests.services.estimator.estimator_builders import GIGA, modules, node, observed, wanted, workload

B = workload().batch_size
NODES = (node("a0"), node("a1"), node("b0", "B"))
FAST = modules(forward_s=0.05, backward_s=0.1, update_s=0.0, parameters=0.0)
SLOW = modules(forward_s=0.1, backward_s=0.2, update_s=0.0, parameters=0.0)


def known_store() -> MemoryStore:
    """A is twice as fast as B, and nothing is exchanged."""
    store = MemoryStore(half_life_s=1e6)
    store.keep(workload(), {GpuType("A"): FAST, GpuType("B"): SLOW})
    return store


def sharing(configuration: Mapping[str, int], *samples: int, nodes: tuple[Node, ...] = NODES) -> Wanted:
    return replace(wanted(configuration, nodes=nodes), samples=np.array(samples))


def answer(asked: Wanted, store: MemoryStore, *seen: ThroughputObserved) -> Estimated:
    store.add(seen)
    return estimate(asked, store, EvidenceThreshold(observations=1, seconds=60.0))


def test_speeds_add_up_where_shares_follow_them() -> None:
    asked = sharing({"a0": 1, "b0": 2}, B, B)
    single = answer(wanted({"a0": 1}, {"b0": 1}, nodes=NODES), known_store()).throughput
    assert answer(asked, known_store()).throughput == pytest.approx([single[0] + 2 * single[1]])


def test_equal_shares_are_lockstep() -> None:
    places: tuple[dict[str, int], ...] = ({"a0": 1, "b0": 1}, {"a0": 2, "b0": 1}, {"a0": 4})
    for place in places:
        equal = sharing(place, *(B * gpus for gpus in place.values()))
        plain = answer(wanted(place, nodes=NODES), known_store())
        found = answer(equal, known_store())
        assert found.throughput == pytest.approx(plain.throughput)
        assert found.layer.tolist() == plain.layer.tolist()


def test_the_gpu_with_most_samples_decides_within_a_node() -> None:
    even = answer(sharing({"b0": 2}, 2 * B - 2), known_store()).throughput
    odd = answer(sharing({"b0": 2}, 2 * B - 3), known_store()).throughput
    assert odd / even == pytest.approx((2 * B - 3) / (2 * B - 2))


def test_updates_take_as_long_for_any_share() -> None:
    store = MemoryStore(half_life_s=1e6)
    times = modules(forward_s=0.1, backward_s=0.2, update_s=0.3, parameters=0.0)
    store.keep(workload(), {GpuType("A"): times})
    asked = sharing({"a0": 1, "a1": 1}, B // 2, B + B // 2)
    assert answer(asked, store).throughput == pytest.approx([2 * B / (1.5 * 0.3 + 0.3)])


def test_all_exchange_over_the_slowest_path() -> None:
    slow = Path(distributed=True, gpus=1, latency_s=1.0, bandwidth=1e12)
    paths = Bandwidth(link=None, network=None, at=0.0, measurements=1, error=0.0, paths=(slow,))
    store = MemoryStore(half_life_s=1e6)
    big = replace(SLOW, parameters=1.0, backward_s=0.0)
    store.keep(workload(), {GpuType("A"): replace(big, forward_s=0.3), GpuType("B"): big})
    store.calibrate({GpuType("A"): paths})
    on_b = answer(sharing({"a0": 1, "b0": 1}, 1, 2 * B - 1), store).throughput[0]
    assert 2 * B / on_b == pytest.approx((2 * B - 1) / B * big.forward_s + 1.0, rel=1e-3)


def far_apart() -> MemoryStore:
    """B is on a slow network; 1 GB of gradients takes 1 s to B, and a tenth of that between two A."""
    store = MemoryStore(half_life_s=1e6)
    big = {"parameters": 0.25 * GIGA, "update_s": 0.1}
    store.keep(workload(), {GpuType("A"): replace(FAST, **big), GpuType("B"): replace(SLOW, **big)})
    for name, speed in (("A", 10.0), ("B", 1.0)):
        path = Path(distributed=True, gpus=1, latency_s=0.0, bandwidth=speed * GIGA)
        found = Bandwidth(link=None, network=None, at=0.0, measurements=1, error=0.0, paths=(path,))
        store.calibrate({GpuType(name): found})
    return store


def test_a_fast_card_waits_for_the_exchange_of_a_slow_one() -> None:
    """B computes faster than A here, so that A, whose own card is fast, is the slowest node."""
    store, place, pair = far_apart(), {"a0": 1, "b0": 1}, {"a0": 1, "a1": 1}
    store.keep(workload(), {GpuType("B"): replace(FAST, parameters=0.25 * GIGA, forward_s=0.01)})
    found = answer(wanted(pair, place, pair, nodes=NODES), store).throughput.tolist()
    assert found[1] == pytest.approx(2 * B / (0.05 + 1.0 + 0.1))
    assert found[0] == found[2] == pytest.approx(2 * B / (0.05 + 0.1 + 0.2 * 0.1 + 0.1)), "its own card"
    assert answer(sharing(place, B, B), store).throughput == pytest.approx(found[1])


def test_evidence_of_a_node_in_lockstep_counts_for_its_share_too() -> None:
    store = known_store()
    plain = answer(wanted({"a0": 1, "b0": 1}, nodes=NODES), store)
    halved = observed("b0", "B", configuration={"b0": 1, "x": 1}, throughput=float(plain.throughput[0]) / 4)
    share = sharing({"a0": 1, "b0": 1}, B + B // 4, B - B // 4)
    before = answer(share, store).throughput[0]
    after = answer(share, store, halved)
    assert LAYERS[after.layer[0]] == "entity"
    assert 2 * B / after.throughput[0] == pytest.approx((B - B // 4) / B * 0.3 * 2)
    assert after.throughput[0] < before


def test_a_type_that_was_not_measured_is_unknown() -> None:
    nodes = (node("a0"), node("c0", "C"))
    asked = sharing({"a0": 1, "c0": 1}, B, B, nodes=nodes)
    assert np.isnan(answer(asked, known_store()).throughput).all()


def test_evidence_without_theory_is_scaled_by_the_share() -> None:
    nodes = (node("a0"), node("c0", "C"))
    seen = observed("c0", "C", configuration={"a0": 1, "c0": 1}, throughput=10.0)
    asked = sharing({"a0": 1, "c0": 1}, B, B, nodes=nodes)
    assert answer(asked, known_store(), seen).throughput == pytest.approx([2 * 10.0])


def test_a_correction_is_of_the_types_and_of_unlike_shares_alone() -> None:
    store = known_store()
    asked = sharing({"a0": 1, "b0": 2}, B, 2 * B)
    before = answer(asked, store).throughput
    store.correct(workload().fingerprint, "A+B", Correction(factor=0.9, observations=1))
    assert answer(asked, store).throughput == pytest.approx(0.9 * before)
    alone = sharing({"a0": 1, "a1": 1}, B - 1, B + 1)
    assert answer(alone, store).throughput == answer(alone, known_store()).throughput
    plain = wanted({"a0": 1, "b0": 2}, nodes=NODES)
    assert answer(plain, store).throughput == answer(plain, known_store()).throughput


SHARES = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 200)), min_size=1, max_size=3)


@given(st.lists(SHARES, min_size=1, max_size=6))
def test_many_questions_get_the_same_answers_together_as_alone(rows: list[list[tuple[int, int]]]) -> None:
    store = far_apart()
    names = ("a0", "a1", "b0")
    places = [dict(zip(names, (gpus for gpus, _ in row), strict=False)) for row in rows]
    taken = [
        [gpus * each for gpus, each in row] if index % 3 else [0] * len(row) for index, row in enumerate(rows)
    ]
    together = replace(wanted(*places, nodes=NODES), samples=np.array([one for row in taken for one in row]))
    alone = [
        answer(sharing(place, *own), store).throughput[0] for place, own in zip(places, taken, strict=True)
    ]
    assert answer(together, store).throughput.tolist() == alone
