"""Top-down through the layers."""

import numpy as np
import pytest
from msgspec.structs import replace

from schemas.calibration import Path
from schemas.cluster import Node
from schemas.ids import GpuType
from schemas.questions import LAYERS
from schemas.samples import ThroughputObserved
from services.estimator.lookup.columns import Estimated, Wanted
from services.estimator.lookup.layers import EvidenceThreshold, estimate
from services.estimator.store.contract import Bandwidth
from services.estimator.store.memory_store import MemoryStore
from shared.domain.iteration import OURS, Law, law_of
from tests.services.estimator.estimator_builders import GIGA, modules, node, observed, wanted, workload

NODES = (node("a0"), node("a1"), node("b0", "B"))


def answer(
    asked: Wanted, *observations: ThroughputObserved, store: MemoryStore | None = None, law: Law = OURS
) -> Estimated:
    store = store or MemoryStore(half_life_s=1e6)
    store.keep(workload(), {GpuType("A"): modules()})
    store.add(observations)
    return estimate(asked, store, EvidenceThreshold(observations=3, seconds=60.0), law=law)


def layers(found: Estimated) -> list[str]:
    return [LAYERS[one] for one in found.layer]


def test_without_evidence_theory_answers() -> None:
    found = answer(wanted({"a0": 1}, {"a0": 4}, {"a0": 1, "a1": 1}, nodes=NODES))
    assert found.throughput == pytest.approx([100.0, 4 * 100 / 1.015, 2 * 100 / 1.5])
    assert layers(found) == ["theory"] * 3
    assert np.isnan(found.variance).all()
    assert list(found.count) == [0, 0, 0]


def test_theory_takes_the_path_measured_with_as_many_gpus_a_node() -> None:
    """With 1 GPU a node, 1 GB takes 1 s; with 2 it takes a quarter, which the backward pass nearly hides."""
    paths = tuple(
        Path(distributed=True, gpus=gpus, latency_s=0.0, bandwidth=bandwidth * GIGA)
        for gpus, bandwidth in ((1, 1), (2, 4))
    )
    store = MemoryStore(half_life_s=1e6)
    measured = Bandwidth(link=None, network=None, at=0.0, measurements=2, error=0.0, paths=paths)
    store.calibrate({GpuType("A"): measured})
    found = answer(wanted({"a0": 1, "a1": 1}, {"a0": 2, "a1": 2}, nodes=NODES), store=store)
    assert found.throughput == pytest.approx([2 * 100 / 1.5, 4 * 100 / 1.05])


def test_evidence_of_the_server_itself_comes_first() -> None:
    seen = [observed("a0", throughput=rate) for rate in (50.0, 60.0, 70.0)]
    found = answer(wanted({"a0": 1}, nodes=NODES), *seen)
    assert found.throughput == pytest.approx([60.0])
    assert found.variance == pytest.approx([200 / 3])
    assert (layers(found), list(found.count)) == (["entity"], [3])


def test_one_observation_says_nothing_of_a_variance() -> None:
    once, twice = observed("a0", throughput=60.0, seconds=90.0), [observed("a0", throughput=60.0)] * 2
    for seen, variance in ([once], np.nan), ([once, *twice], 0.0):
        found = answer(wanted({"a0": 1}, {"a0": 1, "a1": 1}, nodes=NODES), *seen)
        assert (layers(found)[0], found.throughput[0]) == ("entity", 60.0)
        assert found.variance == pytest.approx([variance, np.nan], nan_ok=True)


def test_a_node_that_comes_back_with_other_gpus_is_another_server() -> None:
    seen = [observed("a0", throughput=60.0)] * 3
    before, after = (answer(wanted({"a0": 1}, nodes=[node("a0", one)]), *seen) for one in ("A", "B"))
    assert layers(before) == ["entity"]
    assert np.isnan(after.throughput).all(), "nobody has seen a B"


def test_another_server_of_the_type_is_the_second_best_source() -> None:
    found = answer(wanted({"a1": 1}, nodes=NODES), *[observed("a0", throughput=60.0)] * 3)
    assert (layers(found), list(found.throughput)) == (["type"], [60.0])


def test_evidence_of_one_gpu_count_says_nothing_of_another() -> None:
    found = answer(wanted({"a0": 2}, nodes=NODES), *[observed("a0")] * 3)
    assert layers(found) == ["theory"]


SPREAD_OUT = observed("a0", configuration={"a0": 4, "a1": 4}, throughput=40.0)


def test_distributed_evidence_is_kept_by_nodes_and_gpus() -> None:
    asked = wanted({"a0": 5, "a1": 3}, {"a0": 1, "a1": 1}, {"a0": 8}, nodes=NODES)
    found = answer(asked, *[SPREAD_OUT] * 3)
    assert found.throughput[0] == pytest.approx(8 * 40.0)
    assert layers(found) == ["entity", "theory", "theory"]


def test_to_the_letter_distributed_evidence_is_kept_by_the_number_of_nodes() -> None:
    store = MemoryStore(half_life_s=1e6, counts=False)
    asked = wanted({"a0": 1, "a1": 2}, {"a0": 4}, nodes=NODES)
    found = answer(asked, *[SPREAD_OUT] * 3, store=store, law=law_of("evidence"))
    assert found.throughput[0] == pytest.approx(3 * 40.0)
    assert layers(found) == ["entity", "theory"]


def test_to_the_letter_evidence_of_one_node_is_kept_by_gpus() -> None:
    store = MemoryStore(half_life_s=1e6, counts=False)
    asked = wanted({"a0": 4}, {"a0": 2}, nodes=NODES)
    seen = [observed("a0", configuration={"a0": 4}, throughput=40.0)] * 3
    assert layers(answer(asked, *seen, store=store, law=law_of("evidence"))) == ["entity", "theory"]


@pytest.mark.parametrize(
    ("observations", "seconds", "layer"),
    [(2, 20.0, "theory"), (3, 1.0, "entity"), (4, 1.0, "entity"), (1, 60.0, "entity"), (1, 59.0, "theory")],
)
def test_a_layer_answers_with_enough_observations_or_enough_time(
    observations: int, seconds: float, layer: str
) -> None:
    found = answer(wanted({"a0": 1}, nodes=NODES), *[observed(seconds=seconds)] * observations)
    assert layers(found) == [layer]


def test_a_gang_has_the_throughput_of_a_gpu_times_its_gpus_and_the_variance_times_their_square() -> None:
    gang = {"a0": 8, "a1": 8}
    seen = [observed("a0", configuration=gang, throughput=rate) for rate in (50.0, 60.0, 70.0)]
    found = answer(wanted(gang, nodes=NODES), *seen)
    assert found.throughput == pytest.approx([16 * 60.0])
    assert found.variance == pytest.approx([16**2 * 200 / 3])


def test_the_slowest_node_decides_for_the_whole_configuration() -> None:
    pair = {"a0": 1, "a1": 3}
    fast = [observed("a0", configuration=pair, throughput=55.0)] * 3
    slow = [observed("a1", configuration=pair, throughput=20.0)] * 4
    found = answer(wanted(pair, nodes=NODES), *fast, *slow)
    assert found.throughput == pytest.approx([4 * 20.0])
    assert list(found.count) == [4]
    assert found.variance == pytest.approx([0.0])


@pytest.mark.parametrize("rates", [(), (40.0, 40.0, 40.0)])
def test_a_node_named_twice_stands_for_two_like_it(rates: tuple[float, ...]) -> None:
    pair = {"a0": 4, "a1": 4}
    seen = [observed("a0", configuration=pair, throughput=rate) for rate in rates]
    two = wanted(pair, nodes=NODES)
    alike = replace(two, node=np.zeros(2, dtype=np.int64))
    assert answer(alike, *seen).throughput.tolist() == answer(two, *seen).throughput.tolist()


def test_the_layer_is_that_of_the_slowest_node() -> None:
    pair = {"a0": 1, "a1": 1}
    seen = [observed("a0", configuration=pair, throughput=90.0)] * 3  # a1 gets it from the type layer
    assert layers(answer(wanted(pair, nodes=NODES), *seen)) == ["entity"]
    slower = [observed("a1", configuration=pair, throughput=10.0)] * 3
    found = answer(wanted(pair, nodes=NODES), *seen, *slower)
    assert (layers(found), list(found.throughput)) == (["entity"], [20.0])


def test_unknown_throughputs_are_not_a_number() -> None:
    found = answer(wanted({"b0": 1}, {"a0": 1}, {"a0": 1, "b0": 1}, nodes=NODES))
    assert np.isnan(found.throughput).tolist() == [True, False, True]


def test_unknown_jobs_and_nodes_are_not_numbers() -> None:
    asked = wanted({"a0": 1}, nodes=NODES)
    of_unknown_job = replace(asked, fingerprints=(None,))
    on_unknown_node = replace(asked, nodes=(None, None, None))
    for unknown in (of_unknown_job, on_unknown_node):
        assert np.isnan(answer(unknown).throughput).all()


def test_a_workload_that_was_never_profiled_has_no_theory() -> None:
    found = estimate(
        wanted({"a0": 1}, {"a0": 2}, nodes=NODES), MemoryStore(half_life_s=1e6), EvidenceThreshold(3, 60.0)
    )
    assert np.isnan(found.throughput).all()


def test_to_the_letter_theory_learns_nothing_from_gangs_of_other_shapes() -> None:
    """One GPU is half as fast as it should be."""
    asked, slow = wanted({"a0": 2}, nodes=NODES), [observed("a0", throughput=50.0)] * 3
    [theory], [learnt] = answer(asked).throughput, answer(asked, *slow).throughput
    [printed] = answer(asked, *slow, law=law_of("residuals")).throughput
    assert learnt < 0.9 * theory
    assert printed == theory


def test_an_empty_question_has_an_empty_answer() -> None:
    assert len(answer(wanted(nodes=NODES)).throughput) == 0


def test_old_observations_fade() -> None:
    store = MemoryStore(half_life_s=100.0)
    old = [observed(throughput=30.0, at=0.0)] * 3
    new = [observed(throughput=60.0, at=100.0)] * 3
    found = answer(wanted({"a0": 1}, nodes=NODES), *old, *new, store=store)
    assert found.throughput == pytest.approx([(0.5 * 30 + 60) / 1.5])


def test_longer_stretches_count_more() -> None:
    seen = [observed(throughput=30.0, seconds=90.0), observed(throughput=60.0, seconds=10.0)]
    assert answer(wanted({"a0": 1}, nodes=NODES), *seen).throughput == pytest.approx([33.0])


def hosted(name: str, server: str) -> Node:
    return replace(node(name), server=server)


HOSTED = (hosted("a0", "old"), hosted("a1", "old"), hosted("a2", "new"), hosted("a3", "new"), node("b0", "B"))


def test_evidence_of_servers_of_the_same_model_comes_first() -> None:
    seen = [observed(name, throughput=rate) for name, rate in (("a1", 60.0), ("a2", 90.0)) for _ in range(3)]
    found = answer(wanted({"a0": 1}, {"a3": 1}, nodes=HOSTED), *seen)
    assert list(found.throughput) == pytest.approx([60.0, 90.0])
    assert layers(found) == ["type", "type"]
    assert list(found.count) == [3, 3]


@pytest.mark.parametrize("name", ["a1", "a3"])
def test_servers_that_a_question_does_not_name_count_as_well(name: str) -> None:
    store = MemoryStore(half_life_s=1e6)
    store.keep(workload(), {GpuType("A"): modules(), GpuType("B"): modules()})
    store.add(
        [observed(one, throughput=rate) for one, rate in (("a0", 60.0), ("b0", 90.0)) for _ in range(3)]
    )
    [own] = (one for one in HOSTED if one.node_id == name)
    asked = [wanted({name: 1}, {name: 2}, nodes=nodes) for nodes in (HOSTED, [own])]
    every, one = (estimate(each, store, EvidenceThreshold(3, 60.0), cluster=HOSTED) for each in asked)
    assert one.throughput.tolist() == every.throughput.tolist()
    assert layers(one) == (["type", "theory"] if own.server == "old" else ["theory", "theory"])


def test_evidence_of_servers_of_one_model_is_pooled_by_length() -> None:
    seen = [observed("a0", throughput=60.0, seconds=40.0), observed("a1", throughput=90.0, seconds=20.0)]
    other = hosted("a4", "old")
    found = answer(wanted({"a4": 1}, nodes=(*HOSTED, other)), *seen)
    assert list(found.throughput) == pytest.approx([70.0])
    assert list(found.variance) == pytest.approx([200.0])


def test_old_evidence_of_one_server_fades_beside_new_evidence_of_another() -> None:
    store, other = MemoryStore(half_life_s=100.0), hosted("a4", "old")
    old, new = ([observed(name, throughput=60.0 * n, at=100.0 * n)] * 3 for n, name in ((1, "a0"), (2, "a1")))
    found = answer(wanted({"a4": 1}, nodes=(*HOSTED, other)), *old, *new, store=store)
    assert layers(found) == ["type"]
    assert list(found.throughput) == pytest.approx([(0.5 * 60 + 120) / 1.5])


def test_a_server_that_is_alone_with_its_model_is_not_taken_for_another() -> None:
    found = answer(wanted({"b0": 1}, nodes=HOSTED), *[observed("a3", throughput=60.0)] * 3)
    assert np.isnan(found.throughput).all()


@pytest.mark.parametrize(("showed", "own", "other"), [("a0", "a1", "a2"), ("a2", "a3", "a0")])
def test_without_evidence_of_its_model_theory_is_corrected_by_the_other_model_s(
    showed: str, own: str, other: str
) -> None:
    """Theory says 100."""
    found = answer(wanted({other: 1}, {own: 2}, nodes=HOSTED), *[observed(showed, throughput=60.0)] * 3)
    assert layers(found) == ["theory", "theory"]
    of_other, of_own = found.throughput[0], found.throughput[1] / 2
    ideal = answer(wanted({own: 2}, nodes=HOSTED)).throughput[0] / 2
    assert 60 < of_other < 100
    assert of_own / ideal < of_other / 100, "a server of the same model is nearer"


@pytest.mark.parametrize(("showed", "asks"), [("a0", "a2"), ("a2", "a0")])
def test_evidence_of_one_server_model_does_not_answer_for_another(showed: str, asks: str) -> None:
    found = answer(wanted({asks: 1}, nodes=HOSTED), *[observed(showed, throughput=60.0)] * 3)
    assert layers(found) == ["theory"]


def test_servers_of_two_models_get_the_same_answer_together_as_alone() -> None:
    seen = [observed("a0", throughput=60.0)] * 3
    places: list[dict[str, int]] = [{"a1": 2}, {"a3": 2}]
    alone = [answer(wanted(place, nodes=HOSTED), *seen).throughput[0] for place in places]
    assert answer(wanted(*places, nodes=HOSTED), *seen).throughput.tolist() == alone
    assert alone[0] < alone[1]


TYPES = tuple(map(GpuType, "ABC"))


def test_evidence_of_a_type_with_one_server_model_comes_before_theory() -> None:
    store = MemoryStore(half_life_s=1e6)
    store.keep(workload(), dict.fromkeys(TYPES, modules()))
    store.add([observed("b0", "B", throughput=60.0)] * 3)
    asked = wanted({"b1": 1}, nodes=(*HOSTED, node("b1", "B")))
    found = estimate(asked, store, EvidenceThreshold(observations=3, seconds=60.0))
    assert (layers(found), list(found.throughput)) == (["type"], [60.0])


def test_an_answer_does_not_depend_on_the_other_questions() -> None:
    """Type A is in servers of three models, of which two showed something; C is in servers of one."""
    models = ("old", "new", "newest")
    cluster = [
        *(hosted(f"a{number}", models[number % 3]) for number in range(24)),
        *(node(f"c{number}", "C") for number in range(4)),
    ]
    store = MemoryStore(half_life_s=1e6)
    store.keep(workload(), dict.fromkeys(TYPES, modules()))
    store.add([observed(one, throughput=rate) for one, rate in {"a0": 60.0, "a2": 90.0}.items()] * 3)
    places = [
        *({str(one.node_id): gpus} for one in cluster for gpus in (1, 2, 4)),
        *({f"a{one}": least, f"a{one + 3}": 8 - least} for one in range(3) for least in (1, 2, 3, 4)),
    ]

    def answers(*asked: dict[str, int]) -> list[tuple[float, str]]:
        found = estimate(
            wanted(*asked, nodes=cluster), store, EvidenceThreshold(observations=3, seconds=60.0)
        )
        return list(zip(found.throughput.tolist(), layers(found), strict=True))

    together = answers(*places)
    assert together == [one for place in places for one in answers(place)]
    at_two = {answer for answer, place in zip(together, places, strict=True) if list(place.values()) == [2]}
    assert len(at_two) == len([*models, "C"])


def test_without_theory_a_server_of_another_model_answers_for_its_type() -> None:
    store = MemoryStore(half_life_s=1e6)
    store.add([observed("a0", throughput=60.0)] * 3)
    found = estimate(wanted({"a2": 1}, nodes=HOSTED), store, EvidenceThreshold(observations=3, seconds=60.0))
    assert (layers(found), list(found.throughput)) == (["type"], [60.0])


def test_to_the_letter_the_model_of_a_server_makes_no_difference() -> None:
    seen = [observed("a0", throughput=60.0)] * 3
    found = answer(wanted({"a2": 1}, nodes=HOSTED), *seen, law=law_of("residuals"))
    assert (layers(found), list(found.throughput)) == (["type"], [60.0])


def test_the_node_with_the_fewest_gpus_slows_an_exchange() -> None:
    """3 + 1 GPUs are slower than 2 + 2, where a card of few GPUs was measured to be slow."""
    store = MemoryStore(half_life_s=1e6)
    path = [Path(distributed=True, gpus=gpus, latency_s=0.0, bandwidth=gpus * GIGA) for gpus in (1, 2)]
    measured = Bandwidth(link=GIGA, network=GIGA, at=0.0, measurements=2, error=0.0, paths=tuple(path))
    store.calibrate({node("a0").gpu_type: measured})
    found = answer(wanted({"a0": 2, "a1": 2}, {"a0": 3, "a1": 1}, nodes=NODES), store=store)
    even, odd = found.throughput.tolist()
    assert odd < even


def test_the_path_of_a_node_that_theory_does_not_know_decides_in_no_order_of_nodes() -> None:
    """Nothing is exchanged, so no path of the nodes that theory knows is slower than another."""
    store, gang = MemoryStore(half_life_s=1e6), {"a0": 1, "b0": 1}
    store.keep(workload(), {GpuType("A"): modules(parameters=0.0)})
    store.add([observed("b0", "B", configuration=gang, throughput=500.0)] * 3)
    path = Path(distributed=True, gpus=1, latency_s=50.0, bandwidth=GIGA)
    measured = Bandwidth(link=None, network=GIGA, at=0.0, measurements=1, error=0.0, paths=(path,))
    store.calibrate({GpuType("B"): measured})
    threshold = EvidenceThreshold(observations=3, seconds=60.0)
    for configuration in (gang, dict(reversed(gang.items()))):
        assert estimate(wanted(configuration, nodes=NODES), store, threshold).throughput == [200.0]
