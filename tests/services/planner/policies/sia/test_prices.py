import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from services.planner.policies.sia.prices import affordable_rounds, prices, solve_priced
from services.planner.solver import solve
from services.planner.solver.effort import Effort
from services.planner.solver.problem import NOTHING, Problem, Solution, worth

EXACT = Effort(gap=0.0, modelled=True, budget_s=1e6)


def program(*, jobs: int, capacity: tuple[int, ...], seed: int, ties: bool) -> Problem:
    """Types are nodes; values in tenths where there shall be ties."""
    draw = np.random.default_rng(seed)
    job, node, size = (part.ravel() for part in np.indices((jobs, len(capacity), 4), dtype=np.int32))
    gpus = np.array([1, 2, 4, 8], dtype=np.int32)[size]
    speed = (
        draw.uniform(1.0, 4.0, (jobs, len(capacity)))[job, node] * gpus ** draw.uniform(0.5, 1.0, jobs)[job]
    )
    gain = 1.1 - (speed / speed.min()) ** -0.5
    return Problem(
        capacity=np.array(capacity, dtype=np.int32),
        weight=np.ones(jobs),
        job=job,
        start=np.arange(len(job) + 1, dtype=np.int32),
        node=node,
        gpus=gpus,
        gain=np.round(gain, 1) + 0.05 if ties else gain,
    )


programs = st.builds(
    program,
    jobs=st.integers(1, 12),
    capacity=st.sampled_from([(4,), (8, 8), (16, 3, 8), (0, 8)]),
    seed=st.integers(0, 1000),
    ties=st.booleans(),
)


def fits(problem: Problem, found: Solution) -> bool:
    rows = found.choice[found.choice != NOTHING]
    used = np.bincount(problem.node[rows], problem.gpus[rows], len(problem.capacity))
    return bool((used <= problem.capacity).all())


@given(problem=programs)
@limits(max_examples=40, deadline=None)
def test_pricing_first_finds_what_the_solver_finds_alone(problem: Problem) -> None:
    found, alone = solve_priced(problem, EXACT, solve), solve(problem, EXACT)
    assert fits(problem, found)
    assert found.objective == pytest.approx(worth(problem, found.choice))
    assert found.objective == pytest.approx(alone.objective, rel=1e-6)
    assert found.bound >= alone.objective * (1 - 1e-9)


@given(problem=programs)
@limits(max_examples=40, deadline=None)
def test_a_choice_is_worth_at_most_the_bound_less_its_losses(problem: Problem) -> None:
    priced = prices(problem, 5)
    choice = solve(problem, EXACT).choice
    lost = priced.loss[choice[choice != NOTHING]].sum()
    assert worth(problem, choice) <= priced.bound - lost + 1e-9
    assert priced.loss.min() >= -1e-12


def test_of_many_jobs_hardly_more_than_one_configuration_each_is_solved() -> None:
    problem = program(jobs=400, capacity=(128, 128, 256), seed=1, ties=False)
    asked: list[int] = []

    def counting(part: Problem, effort: Effort) -> Solution:
        asked.append(len(part))
        return solve(part, effort)

    found = solve_priced(problem, Effort(gap=1e-4, modelled=True), counting)
    assert found.gap <= 1e-4
    assert sum(asked) < len(problem) / 3


def test_a_solver_that_gives_up_leaves_an_honest_bound() -> None:
    problem = program(jobs=20, capacity=(16, 8), seed=2, ties=False)

    def lazy(part: Problem, effort: Effort) -> Solution:  # noqa: ARG001
        nothing = np.full(part.jobs, NOTHING, dtype=np.int32)
        return Solution(choice=nothing, objective=0.0, bound=np.inf, stage=solve(part, EXACT).stage)

    found = solve_priced(problem, EXACT, lazy)
    assert found.objective == 0.0
    best = solve(problem, EXACT).objective
    assert best * (1 - 1e-9) <= found.bound <= 1.1 * best


@pytest.mark.parametrize(("seconds", "rounds"), [(0.0, 1), (0.02, 10), (10.0, 60)])
def test_pricing_keeps_to_its_time(seconds: float, rounds: int) -> None:
    assert affordable_rounds(seconds, 20_000) == rounds
