import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st
from planner_builders import MODELLED

from schemas.plans import Stage
from services.planner.greedy import greedy
from services.planner.problem import NOTHING, Problem, Solution
from services.planner.solver import solve
from services.planner.view import Effort

EXACT = Effort(gap=0.0, modelled=True)


def problem(
    capacity: list[int], weights: list[float], rows: list[tuple[int, dict[int, int], float]]
) -> Problem:
    """Rows: job, GPUs by node, gain."""
    cells = [cell for _, place, _ in rows for cell in place.items()]
    lengths = [len(place) for _, place, _ in rows]
    return Problem(
        capacity=np.array(capacity, dtype=np.int32),
        weight=np.array(weights),
        job=np.array([job for job, _, _ in rows], dtype=np.int32),
        start=np.array([0, *itertools.accumulate(lengths)], dtype=np.int32),
        node=np.array([node for node, _ in cells], dtype=np.int32),
        gpus=np.array([gpus for _, gpus in cells], dtype=np.int32),
        gain=np.array([gain for _, _, gain in rows]),
    )


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    nodes = draw(st.integers(1, 3))
    capacity = [draw(st.integers(0, 4)) for _ in range(nodes)]
    jobs = draw(st.integers(1, 4))
    places = st.dictionaries(st.integers(0, nodes - 1), st.integers(1, 4), min_size=1, max_size=2)
    rows = [
        (job, draw(places), draw(st.floats(1.0, 8.0)))
        for job in range(jobs)
        for _ in range(draw(st.integers(0, 3)))
    ]
    return problem(capacity, [draw(st.floats(0.01, 5.0)) for _ in range(jobs)], rows)


def use(instance: Problem, rows: list[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    used = np.zeros(len(instance.capacity), dtype=np.int64)
    for row in rows:
        cells = slice(instance.start[row], instance.start[row + 1])
        np.add.at(used, instance.node[cells], instance.gpus[cells])
    return used


def by_hand(instance: Problem) -> float:
    """The best of all choices there are."""
    options = [[NOTHING, *np.flatnonzero(instance.job == job).tolist()] for job in range(instance.jobs)]
    choices = ([row for row in choice if row != NOTHING] for choice in itertools.product(*options))
    return max(
        float(instance.value[rows].sum())
        for rows in choices
        if (use(instance, rows) <= instance.capacity).all()
    )


def chosen(solution: Solution) -> list[int]:
    return [row for row in solution.choice.tolist() if row != NOTHING]


def is_sound(instance: Problem, solution: Solution) -> None:
    rows = chosen(solution)
    assert (use(instance, rows) <= instance.capacity).all()
    assert all(instance.job[row] == job for job, row in enumerate(solution.choice) if row != NOTHING)
    assert solution.objective == pytest.approx(float(instance.value[rows].sum()))
    assert solution.objective <= solution.bound


@given(problems())
@limits(max_examples=60, deadline=None)
def test_the_solver_finds_what_trying_everything_finds(instance: Problem) -> None:
    solution = solve(instance, EXACT)
    is_sound(instance, solution)
    assert solution.objective == pytest.approx(by_hand(instance), abs=1e-6)
    assert solution.gap < 1e-6


@given(problems())
@limits(max_examples=60, deadline=None)
def test_a_greedy_plan_is_sound_and_its_bound_holds(instance: Problem) -> None:
    solution = greedy(instance)
    is_sound(instance, solution)
    assert solution.bound >= by_hand(instance) - 1e-9


def test_greedy_serves_the_heaviest_job_first_and_with_its_best() -> None:
    rows = [(0, {0: 2}, 1.0), (0, {0: 4}, 9.0), (1, {0: 1}, 1.0), (1, {0: 3}, 2.0)]
    assert greedy(problem([4], [1.0, 2.0], rows)).choice.tolist() == [NOTHING, 3]


def crowded(jobs: int = 60, nodes: int = 24) -> Problem:
    """A program that takes the solver seconds."""
    random = np.random.default_rng(3)
    rows = []
    for job in range(jobs):
        for gpus in sorted(random.choice(np.arange(1, 9), 4, replace=False).tolist()):
            gain = float(gpus ** random.uniform(0.7, 1.0))
            rows += [(job, {node: gpus}, gain * (1 + node % 3)) for node in range(nodes)]
    return problem([8] * nodes, random.uniform(0.1, 3.0, jobs).tolist(), rows)


def test_a_large_program_is_solved_within_the_gap_it_says() -> None:
    instance = crowded()
    solution = solve(instance, Effort(gap=0.03, modelled=True, node_limit=200))
    is_sound(instance, solution)
    assert solution.gap <= 0.03
    assert solution.stage == Stage.OPTIMAL


def test_modelled_effort_gives_the_same_answer_and_the_same_seconds_every_time() -> None:
    one, other = (solve(crowded(30, 12), Effort(gap=0.02, modelled=True, node_limit=200)) for _ in range(2))
    assert one.choice.tolist() == other.choice.tolist()
    assert (one.seconds, one.bound) == (other.seconds, other.bound)
    assert one.seconds > 0


def test_a_deadline_gives_the_incumbent_and_says_so() -> None:
    instance = crowded()
    solution = solve(instance, Effort(gap=0.0, budget_s=1.0))
    is_sound(instance, solution)
    assert solution.stage in (Stage.INCUMBENT, Stage.GREEDY)
    assert solution.seconds < 2.0


def test_no_time_at_all_gives_a_greedy_plan() -> None:
    instance = crowded()
    solution = solve(instance, Effort(gap=0.0, budget_s=0.0))
    is_sound(instance, solution)
    assert solution.stage == Stage.GREEDY


def test_a_modelled_budget_stops_the_stages() -> None:
    solution = solve(crowded(), Effort(gap=0.0, budget_s=0.3, modelled=True))
    assert solution.stage != Stage.OPTIMAL


def test_effort_can_ask_for_no_solving() -> None:
    assert solve(crowded(), Effort(greedy=True)).stage == Stage.GREEDY


def test_nothing_to_choose_from_is_an_optimal_empty_plan() -> None:
    solution = solve(problem([8], [1.0], []), MODELLED)
    assert chosen(solution) == []
    assert (solution.stage, solution.gap) == (Stage.OPTIMAL, 0.0)
