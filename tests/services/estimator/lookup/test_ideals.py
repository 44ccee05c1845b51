"""What is kept of theory's throughputs is what would be computed."""

import numpy as np

from schemas.ids import GpuType
from services.estimator.lookup.ideals import Alike, Ideals
from services.estimator.lookup.theory_table import gangs_of, theory_table
from services.estimator.store.contract import Shape
from services.estimator.store.memory_store import MemoryStore
from services.estimator.theory.formula import per_gpu_throughput
from tests.services.estimator.estimator_builders import modules, node, workload

A, B = GpuType("A"), GpuType("B")
NODES = (node("a0"), node("a1"), node("b0", "B"))
MODELS = [workload(name).fingerprint for name in ("resnet18", "vgg")]


def known() -> MemoryStore:
    store = MemoryStore(half_life_s=1e6)
    for model, forward_s in (("resnet18", 0.3), ("vgg", 0.7)):
        store.keep(workload(model), {A: modules(forward_s=forward_s), B: modules(forward_s=2 * forward_s)})
    return store


def test_throughputs_that_are_kept_are_those_that_would_be_computed() -> None:
    """Rows that are new and rows that are not, of two workloads and kinds of node, in one question."""
    store, random, ideals = known(), np.random.default_rng(1), Ideals(limit=30)
    table = theory_table(MODELS, NODES, store)
    for _ in range(6):
        nodes, fewest = random.integers(1, 4, 20), random.integers(1, 5, 20)
        alike = Alike(
            workload=random.integers(0, 2, 20),
            kind=random.integers(0, 2, 20),
            path=random.integers(0, 2, 20),
            nodes=nodes,
            gpus=nodes * fewest + random.integers(0, 3, 20) * (nodes > 1),
            fewest=fewest,
        )
        gangs = gangs_of(
            table,
            alike.workload,
            alike.kind,
            path=alike.path,
            nodes=nodes,
            gpus=alike.gpus,
            fewest=alike.fewest,
        )
        assert ideals.of(alike, table, MODELS, store).tolist() == per_gpu_throughput(gangs).tolist()


def test_a_shape_and_a_gang_of_it_have_the_same_throughput() -> None:
    store, ideals = known(), Ideals()
    table = theory_table(MODELS, NODES, store)
    shapes = [Shape(gpu_type, nodes, 4 * nodes) for gpu_type in (A, B) for nodes in (1, 2, 3)]
    alike = Alike(
        workload=np.ones(6, dtype=np.int64),
        kind=np.repeat([0, 1], 3),
        path=np.repeat([0, 1], 3),
        nodes=np.array([one.nodes for one in shapes]),
        gpus=np.array([one.gpus for one in shapes]),
        fewest=np.full(6, 4),
    )
    of_shapes = ideals.of_shapes(MODELS[1], shapes, table, store)
    assert of_shapes == Ideals().of(alike, table, MODELS, store).tolist()
    assert of_shapes == ideals.of(alike, table, MODELS, store).tolist()


def test_once_more_throughputs_than_allowed_are_kept_all_are_forgotten() -> None:
    store, ideals, kept = known(), Ideals(limit=2), []
    table = theory_table(MODELS, NODES, store)
    for gpus in (1, 2, 2, 3, 4, 1, 5, 6):
        ideals.of_shapes(MODELS[0], [Shape(A, 1, gpus)], table, store)
        on_types = [one for types in ideals._kept.values() for one in types.values()]
        kept.append(sum(len(counts) for one in on_types for counts in one.by_paths.values()))
    assert kept == [1, 2, 2, 3, 1, 2, 3, 1]
