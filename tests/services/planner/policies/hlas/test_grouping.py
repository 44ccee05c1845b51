"""Groups of GPUs: against an integer program, and against dealing."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st
from ortools.linear_solver import pywraplp

from schemas.ids import NodeId
from services.planner.policies.hlas.grouping import dealt, grouped, on_nodes, unevenness
from shared.domain.arrays import Floats, Ints


def normalised(speed: Floats) -> Floats:
    scaled: Floats = speed / speed.max(axis=1, keepdims=True)
    return scaled


def optimum(speed: Floats, supply: Ints, groups: int) -> float:
    """(4) over counts of GPUs by group and type."""
    program = pywraplp.Solver.CreateSolver("SCIP")
    counts = [[program.IntVar(0, int(most), "") for most in supply] for _ in range(groups)]
    worst = program.NumVar(0, program.infinity(), "")
    for kind, most in enumerate(supply.tolist()):
        program.Add(sum(row[kind] for row in counts) == most)
    for rates in normalised(speed).tolist():
        high, low = (program.NumVar(0, program.infinity(), "") for _ in range(2))
        for row in counts:
            total = sum(rate * count for rate, count in zip(rates, row, strict=True))
            program.Add(total <= high)
            program.Add(total >= low)
        program.Add(high - low <= worst)
    program.Minimize(worst)
    assert program.Solve() == pywraplp.Solver.OPTIMAL
    return float(program.Objective().Value())


def drawn(seed: int) -> tuple[Floats, Ints, int]:
    """Two or three types of up to seven GPUs, four jobs, two to four groups."""
    draw = np.random.default_rng(seed)
    kinds = int(draw.integers(2, 4))
    supply = draw.integers(1, 8, kinds).astype(np.int32)
    speed = draw.uniform(1.0, 7.0, (4, kinds))
    return speed, supply, int(draw.integers(2, min(5, int(supply.sum()) + 1)))


@pytest.mark.parametrize("seed", range(20))
def test_small_cases_are_optimal(seed: int) -> None:
    speed, supply, groups = drawn(seed)
    found = unevenness(grouped(speed, supply, groups), normalised(speed))
    assert found == pytest.approx(optimum(speed, supply, groups), abs=1e-6)


def test_dealing_alone_is_not() -> None:
    """A fifth of the fastest GPU's speed is missing in the mean."""
    cases = list(map(drawn, range(20)))
    deals = [unevenness(dealt(supply, groups), normalised(speed)) for speed, supply, groups in cases]
    found = [unevenness(grouped(*each), normalised(each[0])) for each in cases]
    assert np.mean(deals) > np.mean(found) + 0.1


@st.composite
def clusters(draw: st.DrawFn) -> tuple[Floats, Ints, int]:
    kinds = draw(st.integers(1, 4))
    supply = np.array(draw(st.lists(st.integers(1, 6), min_size=kinds, max_size=kinds)), dtype=np.int32)
    rows = st.lists(st.floats(0.0, 9.0), min_size=kinds, max_size=kinds)
    speed = np.array(draw(st.lists(rows, min_size=1, max_size=4)), dtype=np.float64)
    return speed, supply, draw(st.integers(1, int(supply.sum())))


@given(clusters())
@limits(deadline=None, max_examples=80)
def test_every_gpu_is_in_one_group_and_dealing_is_never_better(cluster: tuple[Floats, Ints, int]) -> None:
    speed, supply, groups = cluster
    counts = grouped(speed, supply, groups)
    assert counts.shape == (groups, len(supply))
    assert (counts >= 0).all()
    assert (counts.sum(axis=0) == supply).all()
    known = speed[speed.max(axis=1) > 0]
    if len(known):
        assert (
            unevenness(counts, normalised(known))
            <= unevenness(dealt(supply, groups), normalised(known)) + 1e-9
        )


@given(st.integers(1, 6), st.integers(1, 5), st.floats(0.1, 50.0))
def test_like_gpus_in_groups_of_one_size_are_even(groups: int, size: int, speed: float) -> None:
    counts = grouped(np.array([[speed]]), np.array([groups * size], dtype=np.int32), groups)
    assert unevenness(counts, np.array([[1.0]])) == 0.0


def test_a_fast_model_does_not_decide_alone() -> None:
    """Times 1000 its speeds, and the groups are the same."""
    speed, supply, groups = drawn(3)
    faster = speed * np.array([[1000.0], [1.0], [1.0], [1.0]])
    assert (grouped(faster, supply, groups) == grouped(speed, supply, groups)).all()


@given(clusters())
@limits(deadline=None, max_examples=50)
def test_groups_take_gpus_of_nodes_once(cluster: tuple[Floats, Ints, int]) -> None:
    speed, supply, groups = cluster
    counts = grouped(speed, supply, groups)
    nodes = [
        (NodeId(f"{kind}-{index}"), kind, gpus)
        for kind, whole in enumerate(supply.tolist())
        for index, gpus in enumerate([whole - whole // 2, whole // 2])
        if gpus
    ]
    found = Counter[NodeId]()
    for place in on_nodes(counts, nodes):
        assert min(place.values(), default=1) > 0
        found.update(place)
    assert found == {node_id: gpus for node_id, _, gpus in nodes}
