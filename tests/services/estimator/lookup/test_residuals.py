"""What gangs of other shapes teach of one that has not run."""

from collections.abc import Callable, Mapping
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.ids import GpuType
from schemas.measurements import DataMode
from schemas.samples import ThroughputObserved
from services.estimator.lookup.layers import EvidenceThreshold, estimate
from services.estimator.lookup.residuals import (
    FACTOR_MOST,
    Residuals,
    coefficients,
    common,
    described,
    gram_terms,
    statistics_of,
)
from services.estimator.store.contract import Bandwidth, Loading
from services.estimator.store.duckdb_store import DuckDbStore
from services.estimator.store.memory_store import MemoryStore
from shared.domain.iteration import OURS, Law, law_of
from tests.services.estimator.estimator_builders import modules, node, observed, wanted, workload

A, B = GpuType("A"), GpuType("B")
NODES = (node("a0"), node("a1"), node("b0", "B"))
ENOUGH = EvidenceThreshold(observations=3, seconds=60.0)
NEVER = EvidenceThreshold(observations=10**9, seconds=1e18)
MODELS = ("resnet18", "vgg", "bert", "gpt2")

SHAPES = st.tuples(st.integers(1, 8), st.integers(0, 8))
"""GPUs on the first node, and on the second"""


def gang(shape: tuple[int, int]) -> dict[str, int]:
    return {"a0": shape[0], **({"a1": shape[1]} if shape[1] else {})}


def known(*models: str) -> MemoryStore:
    store = MemoryStore(half_life_s=1e6)
    for model in models or ("resnet18",):
        store.keep(workload(model), {A: modules(), B: modules()})
    return store


def theory(store: MemoryStore, place: Mapping[str, int], model: str = "resnet18", law: Law = OURS) -> float:
    """Per GPU, whatever was observed of just that."""
    asked = wanted(place, nodes=NODES, model=model)
    return float(estimate(asked, store, NEVER, law=law).throughput[0]) / sum(place.values())


def showing(place: Mapping[str, int], ratio: float, model: str = "resnet18") -> ThroughputObserved:
    """A gang that does so many times what theory says."""
    said = _said(tuple(place.items()), model)
    return observed(configuration=place, throughput=ratio * said, model=model, seconds=120.0)


@cache
def _said(place: tuple[tuple[str, int], ...], model: str) -> float:
    return theory(known(model), dict(place), model)


@given(st.lists(SHAPES, min_size=1, max_size=5))
def test_without_evidence_theory_is_what_the_equations_say(shapes: list[tuple[int, int]]) -> None:
    store = known()
    for shape in shapes:
        assert theory(store, gang(shape)) == theory(store, gang(shape), law=law_of("residuals"))


@given(
    st.lists(st.tuples(SHAPES, st.floats(1e-3, 1e3), st.sampled_from(MODELS)), max_size=12),
    SHAPES,
    st.sampled_from(MODELS),
)
def test_the_factor_is_positive_and_bounded(
    seen: list[tuple[tuple[int, int], float, str]], shape: tuple[int, int], model: str
) -> None:
    store = known(*MODELS)
    plain = theory(store, gang(shape), model)
    store.add([showing(gang(one), ratio, of) for one, ratio, of in seen])
    factor = theory(store, gang(shape), model) / plain
    assert 1 / FACTOR_MOST - 1e-9 <= factor <= FACTOR_MOST + 1e-9


@given(st.floats(0.6, 1.5), SHAPES)
def test_with_evidence_the_factor_approaches_the_measured_ratio(ratio: float, shape: tuple[int, int]) -> None:
    store = known(*MODELS)
    places = [{"a0": gpus} for gpus in range(1, 9)] + [{"a0": gpus, "a1": gpus} for gpus in range(1, 9)]
    plain = theory(store, gang(shape))
    store.add([showing(place, ratio, model) for place in places for model in MODELS])
    assert theory(store, gang(shape)) / plain == pytest.approx(ratio, rel=0.03)


def test_slower_with_more_gpus_is_slower_still_with_even_more() -> None:
    store = known()
    plain = theory(store, {"a0": 8})
    store.add([showing({"a0": gpus}, ratio) for gpus, ratio in ((1, 1.0), (2, 0.95), (4, 0.9))])
    assert theory(store, {"a0": 8}) < 0.9 * plain


def test_a_workload_that_has_not_run_takes_the_common_residual() -> None:
    store = known(*MODELS)
    plain = theory(store, {"a0": 4}, "gpt2")
    for model in MODELS[:3]:
        store.add([showing({"a0": gpus}, 0.8, model) for gpus in (1, 2, 4, 8)])
    assert 0.8 < theory(store, {"a0": 4}, "gpt2") / plain < 0.86


@pytest.mark.parametrize("ratio", [0.2, 5.0])
@pytest.mark.parametrize("others", [0, 1, 10])
def test_a_workload_far_from_theory_hardly_changes_what_others_are_said_to_do(
    ratio: float, others: int
) -> None:
    usual = [f"usual-{number}" for number in range(others)]
    store = known("strange", "new", *usual)
    plain = theory(store, {"a0": 1}, "new")
    for model in usual:
        store.add([showing({"a0": gpus}, 1.0, model) for gpus in (1, 2, 4, 8)])
    store.add([showing({"a0": 1}, ratio, "strange")])
    assert theory(store, {"a0": 1}, "new") / plain == pytest.approx(1.0, abs=0.06)


@pytest.mark.parametrize("ratio", [0.4, 2.5])
def test_what_all_workloads_have_in_common_is_learnt_however_far_it_is_from_theory(ratio: float) -> None:
    ran = [f"ran-{number}" for number in range(8)]
    store = known("new", *ran)
    plain = theory(store, {"a0": 2}, "new")
    for model in ran:
        store.add([showing({"a0": gpus}, ratio, model) for gpus in (1, 4)])
    assert theory(store, {"a0": 2}, "new") / plain == pytest.approx(ratio, rel=0.15)


def test_a_workload_s_own_evidence_counts_for_more_than_the_others() -> None:
    store = known(*MODELS)
    plain = theory(store, {"a0": 3})
    for model in MODELS[1:]:
        store.add([showing({"a0": gpus}, 0.8, model) for gpus in (1, 2, 4, 8)])
    store.add([showing({"a0": gpus}, 1.0) for gpus in (1, 2, 4, 8)])
    assert theory(store, {"a0": 3}) / plain == pytest.approx(1.0, rel=0.03)


def test_a_type_that_is_slow_by_itself_slows_the_others_less() -> None:
    store = known()
    before = theory(store, {"a0": 2}), theory(store, {"b0": 2})
    store.add([showing({"a0": gpus}, 1.0) for gpus in (1, 3, 4, 8)])
    slow = [{"b0": gpus} for gpus in (1, 3, 4, 8)]
    store.add([observed("b0", "B", configuration=one, throughput=0.8 * theory(known(), one)) for one in slow])
    on_a, on_b = theory(store, {"a0": 2}) / before[0], theory(store, {"b0": 2}) / before[1]
    assert on_a > 0.96
    assert on_b < 0.85


def test_the_residual_does_not_change_direct_evidence() -> None:
    store = known()
    seen = showing({"a0": 2}, 0.8)
    store.add([seen, showing({"a0": 4}, 0.5)])
    found = estimate(wanted({"a0": 2}, nodes=NODES), store, ENOUGH)
    assert found.throughput == pytest.approx([2 * seen.throughput])


def test_to_the_letter_no_residual_is_learnt() -> None:
    store = known()
    store.add([showing({"a0": gpus}, 0.5) for gpus in (1, 2, 4)])
    assert theory(store, {"a0": 8}, law=law_of("residuals")) == theory(known(), {"a0": 8})


def test_refined_loading_and_evidence_are_not_counted_twice() -> None:
    """Residuals are of theory as it is now: once it explains what was seen, none are left."""
    store = known()
    store.add([showing({"a0": gpus}, 0.5) for gpus in (1, 2, 4)])
    twice = modules(forward_s=0.6, backward_s=1.0, update_s=0.4, parameters=0.0)
    explained = MemoryStore(half_life_s=1e6)
    explained.keep(workload(), {A: twice})
    seen = [observed(configuration={"a0": gpus}, throughput=50.0, seconds=120.0) for gpus in (1, 2, 4)]
    explained.add(seen)
    assert theory(explained, {"a0": 8}) == pytest.approx(50.0)


def test_cached_residuals_give_the_same_answer() -> None:
    store, residuals = known(*MODELS), Residuals()
    asked = wanted({"a0": 8}, {"a0": 4, "a1": 4}, nodes=NODES)
    for number, model in enumerate([*MODELS, *MODELS]):
        store.add([showing({"a0": 1 + number}, 0.7 + 0.05 * number, model)])
        kept = estimate(asked, store, NEVER, residuals=residuals).throughput.tolist()
        assert kept == estimate(asked, store, NEVER).throughput.tolist()


def test_cached_residuals_give_the_same_answer_after_any_change() -> None:
    store, residuals = known(*MODELS), Residuals()
    store.add([showing({"a0": gpus}, 0.8, model) for gpus in (1, 2) for model in MODELS])
    asked = wanted({"a0": 8}, {"a0": 4, "a1": 4}, nodes=NODES)
    slow = Loading(
        data=(DataMode(probability=1.0, mean_s=9.0, std_s=0.1),), wait_factor=1.0, wait_s=0.0, iterations=9
    )
    paths = Bandwidth(link=1e6, network=1e5, at=0.0, measurements=1, error=0.0)
    steps: list[Callable[[], None]] = [
        lambda: store.keep(workload("resnet18"), {A: modules(forward_s=2.0)}),
        lambda: store.keep(workload("vgg"), {A: modules(forward_s=2.0)}),
        lambda: store.add([showing({"a0": 4}, 0.6, "vgg")]),
        lambda: store.refine(workload("vgg").fingerprint, A, slow),
        lambda: store.forget([workload("vgg").fingerprint]),
        lambda: store.calibrate({A: paths}),
    ]
    said = [estimate(asked, store, NEVER, residuals=residuals).throughput.tolist()]
    for step in steps:
        step()
        kept = estimate(asked, store, NEVER, residuals=residuals).throughput.tolist()
        assert kept == estimate(asked, store, NEVER).throughput.tolist()
        said.append(kept)
    assert len({tuple(one) for one in said}) == len(said), "each step says something else"


def test_cached_residuals_give_the_same_answer_for_some_types() -> None:
    store, residuals = known(*MODELS), Residuals()

    def see(name: str, gpu_type: str, gpus: int, *models: str) -> None:
        own = {name: gpus}
        store.add(
            [observed(name, gpu_type, configuration=own, throughput=40.0 + gpus, model=one) for one in models]
        )

    for gpus in (1, 2):
        see("a0", "A", gpus, *MODELS)
        see("b0", "B", gpus, *MODELS)
    slow = Loading(
        data=(DataMode(probability=1.0, mean_s=9.0, std_s=0.1),), wait_factor=1.0, wait_s=0.0, iterations=9
    )
    asked = {
        "A": wanted({"a0": 8}, {"a0": 4, "a1": 4}, nodes=NODES[:2]),
        "B": wanted({"b0": 8}, nodes=NODES[2:]),
        "both": wanted({"a0": 8}, {"b0": 8}, nodes=NODES),
    }

    def answers(residuals: Residuals | None) -> dict[str, list[float]]:
        each = {name: estimate(one, store, NEVER, residuals=residuals) for name, one in asked.items()}
        return {name: one.throughput.tolist() for name, one in each.items()}

    steps: list[tuple[str, Callable[[], None]]] = [
        ("A", lambda: see("a0", "A", 4, "vgg")),
        ("B", lambda: see("b0", "B", 4, "vgg")),
        ("A", lambda: store.refine(workload("vgg").fingerprint, A, slow)),
        ("B", lambda: store.keep(workload("vgg"), {B: modules(forward_s=2.0)})),
    ]
    for concerned, step in steps:
        before = answers(residuals)
        step()
        kept = answers(residuals)
        assert kept == answers(None)
        assert {name for name in asked if kept[name] != before[name]} == {concerned, "both"}


def test_shapes_of_workloads_are_found_again_after_another_is_forgotten() -> None:
    store, alone = known(*MODELS), known(*MODELS[1:])
    for model in MODELS:
        shown_by = [showing({"a0": gpus}, 0.5 + 0.1 * gpus, model) for gpus in (1, 2)]
        store.add(shown_by)
        if model != MODELS[0]:
            alone.add(shown_by)
        store.shape_means(workload(model).fingerprint)
    store.forget([workload(MODELS[0]).fingerprint])
    store.add([showing({"a0": gpus}, 0.9, MODELS[0]) for gpus in (4, 8)])
    assert [one.gpus for one in store.shape_means(workload(MODELS[0]).fingerprint).shapes] == [4, 8]
    for model in MODELS[1:]:
        found, meant = (one.shape_means(workload(model).fingerprint) for one in (store, alone))
        assert (found.shapes, found.mean.tolist()) == (meant.shapes, meant.mean.tolist())


def test_a_replaced_set_of_gangs_of_equal_number_is_noticed() -> None:
    store, residuals = known(), Residuals()
    asked = wanted({"a0": 8}, nodes=NODES)
    store.add([showing({"a0": gpus}, 0.8) for gpus in (1, 2)])
    before = estimate(asked, store, NEVER, residuals=residuals).throughput.tolist()
    store.forget([workload().fingerprint])
    store.keep(workload(), {A: modules(), B: modules()})
    store.add([showing({"a0": gpus}, 0.8) for gpus in (1, 4)])
    kept = estimate(asked, store, NEVER, residuals=residuals).throughput.tolist()
    assert kept == estimate(asked, store, NEVER).throughput.tolist() != before


def test_a_file_that_is_opened_again_gives_the_same(tmp_path: object) -> None:
    path = f"{tmp_path}/store.duckdb"
    asked = wanted({"a0": 8}, {"a0": 4, "a1": 4}, nodes=NODES)
    store = DuckDbStore(path, 1e6)
    for model in MODELS:
        store.keep(workload(model), {A: modules()})
        store.add([showing({"a0": gpus}, 0.8, model) for gpus in (1, 2)])
    before = estimate(asked, store, NEVER).throughput.tolist()
    store.close()
    again = DuckDbStore(path, 1e6)
    assert estimate(asked, again, NEVER).throughput.tolist() == before
    assert before != estimate(asked, known(), NEVER).throughput.tolist()
    again.close()


def test_what_is_kept_does_not_grow_with_the_workloads_that_were_ever_seen(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = 3
    for module in ("store.duckdb_store", "lookup.residuals", "lookup.ideals"):
        monkeypatch.setattr(f"services.estimator.{module}.WORKLOADS_IN_MEMORY", most)
    monkeypatch.setattr("services.estimator.lookup.residuals.COMMON_WORKLOADS", most)
    store, residuals, alone = DuckDbStore(f"{tmp_path}/store.duckdb", 1e6), Residuals(), known(*MODELS)
    models = [f"m{number}" for number in range(10)]
    for number, model in enumerate([*models, *models]):
        seen = observed(
            configuration={"a0": 1 + number // 10},
            throughput=80.0,
            model=model,
            at=float(number),
            seconds=9.0,
        )
        for each in (store, alone):
            each.keep(workload(model), {A: modules()})
            each.add([seen])
        asked = wanted({"a0": 8}, {"a0": 4, "a1": 4}, nodes=NODES, model=model)
        kept = estimate(asked, store, NEVER, residuals=residuals).throughput.tolist()
        assert kept == estimate(asked, alone, NEVER).throughput.tolist()
    [of_places], memory = residuals._kept.values(), store._memory
    for one in (of_places.seen, residuals.ideals._kept, memory._changed, memory._workloads._codes):
        assert len(one) <= 2 * most
    store.close()


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 64), st.floats(0.9, 1.1)), min_size=1, max_size=9)
)
def test_a_workload_by_itself_is_ridge_regression_on_the_sum_of_both_deviations(
    rows: list[tuple[int, int, float]],
) -> None:
    """β_w of a single workload has the variance of both levels, so 2 · SPREAD², where it is not far off."""
    from services.estimator.lookup.residuals import ERROR, SPREAD  # noqa: PLC0415

    nodes, gpus = np.array([one for one, _, _ in rows]), np.array([one for _, one, _ in rows])
    ratio = np.array([one for _, _, one in rows])
    x = described([(A, "")], [(A, "")] * len(rows), nodes, gpus)
    only = statistics_of(x, gram_terms(x), ratio)
    expected = np.linalg.solve(
        x.T @ x / ERROR**2 + np.eye(4) / (2 * SPREAD**2), x.T @ np.log(ratio) / ERROR**2
    )
    assert coefficients(common([only], 4), [only])[0] == pytest.approx(expected, abs=1e-6)
