"""Groups of GPUs: against an integer program, against dealing, and from plan to plan."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st
from ortools.linear_solver import pywraplp

from schemas.ids import Fingerprint, GpuType, JobId, NodeId
from services.planner.policies.contract.view import ViewNode
from services.planner.policies.hlas.forming import Formed, formed, group_count
from services.planner.policies.hlas.grouping import dealt, grouped, on_nodes, unevenness
from services.planner.policies.hlas.memory import HlasMemory, RememberedJob
from services.planner.policies.hlas.queues import QueuePlace
from shared.domain.arrays import Floats, Ints
from tests.services.planner.policies.hlas.hlas_builders import MODES


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


# ---- from plan to plan


def cluster_of(**gpus: int) -> list[ViewNode]:
    """Nodes whose type is their name's first letter."""
    return [
        ViewNode(node_id=NodeId(name), gpu_type=GpuType(name[0]), gpus=count, idle=count, modes=MODES)
        for name, count in sorted(gpus.items())
    ]


def speeds_of(*names: str) -> dict[str, dict[GpuType, float]]:
    return {name: {GpuType("a"): 4.0, GpuType("b"): 1.0 + index} for index, name in enumerate(names)}


def afterwards(shape: Formed, **groups: tuple[int, ...]) -> HlasMemory:
    """A memory in which these jobs have these groups."""
    known = {
        JobId(name): RememberedJob(1, QueuePlace(), held, Fingerprint(""), 0.0, 1.0)
        for name, held in groups.items()
    }
    return HlasMemory(groups=shape.groups, jobs=known)


NODES = cluster_of(a0=4, b0=4)
FIRST = formed(NODES, 2, HlasMemory(), {}, speeds_of("one"))


def places(shape: Formed) -> list[dict[NodeId, int]]:
    return [group.place for group in shape.groups]


def test_as_many_groups_as_the_user_says_else_one_for_every_four_gpus() -> None:
    assert [group_count(gpus, 0) for gpus in (1, 4, 5, 160)] == [1, 1, 2, 40]
    assert group_count(160, 7) == 7
    assert group_count(3, 7) == 3
    assert places(FIRST) == [{"a0": 2, "b0": 2}] * 2


def test_groups_stay_from_plan_to_plan() -> None:
    running = {JobId("x"): {NodeId("a0"): 2}}
    again = formed(NODES, 2, afterwards(FIRST, x=(1,)), running, speeds_of("one"))
    assert again == Formed(FIRST.groups, {JobId("x"): (1,)})
    assert again.idle == [0]


def test_a_new_workload_has_idle_gpus_grouped_again_and_running_groups_later() -> None:
    running = {JobId("x"): {NodeId("a0"): 2}}
    shape = formed(NODES, 2, afterwards(FIRST, x=(1,)), running, speeds_of("one", "two"))
    [kept, fresh] = shape.groups
    assert shape.held == {JobId("x"): (0,)}
    assert kept == FIRST.groups[1]
    assert fresh.place == FIRST.groups[0].place
    assert fresh.basis != kept.basis
    later = formed(NODES, 2, HlasMemory(groups=shape.groups), {}, speeds_of("one", "two"))
    assert {group.basis for group in later.groups} == {fresh.basis}


def test_a_node_that_comes_or_goes_has_groups_formed_again() -> None:
    fewer = cluster_of(a0=4)
    assert places(formed(fewer, 1, HlasMemory(groups=FIRST.groups), {}, speeds_of("one"))) == [{"a0": 4}]
    more = cluster_of(a0=4, b0=4, b1=4)
    shape = formed(more, 3, HlasMemory(groups=FIRST.groups), {}, speeds_of("one"))
    assert sum(map(Counter, places(shape)), Counter()) == {"a0": 4, "b0": 4, "b1": 4}
    assert len(shape.groups) == 3


@pytest.mark.parametrize("place", [{"a0": 3}, {"b0": 4}])
def test_the_gpus_of_a_job_of_another_policy_are_a_group(place: dict[str, int]) -> None:
    """Or of another memory: its GPUs are not those of the groups that it had."""
    own = {NodeId(name): gpus for name, gpus in place.items()}
    shape = formed(NODES, 2, afterwards(FIRST, x=(1,)), {JobId("x"): own}, speeds_of("one"))
    [held] = shape.held[JobId("x")]
    assert shape.groups[held].place == own
    assert sum(map(Counter, places(shape)), Counter()) == {"a0": 4, "b0": 4}
