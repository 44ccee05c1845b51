import time
from collections.abc import Callable
from functools import partial
from itertools import product
from statistics import median

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from schemas.plans import Stage
from services.planner.policies.kit.linear import LinearProgram, Matrix
from services.planner.policies.sia import prices as prices_module
from services.planner.policies.sia.ilp import Goal, gains
from services.planner.policies.sia.policy import GAP
from services.planner.policies.sia.prices import affordable_rounds, modelled_s, prices, solve_priced
from services.planner.policies.sia.utilities import utilities
from services.planner.solver import load, solve
from services.planner.solver.effort import Effort
from services.planner.solver.problem import NOTHING, Problem, Solution, worth
from shared.domain.arrays import Floats

EXACT = Effort(gap=0.0, modelled=True, budget_s=1e6)


def program(*, jobs: int, capacity: tuple[int, ...], seed: int, ties: bool, without: int = 0) -> Problem:
    """Types are nodes; values in tenths where there shall be ties. `without`: first jobs without any."""
    draw = np.random.default_rng(seed)
    job, node, size = (part.ravel() for part in np.indices((jobs, len(capacity), 4), dtype=np.int32))
    gpus = np.array([1, 2, 4, 8], dtype=np.int32)[size]
    speed = (
        draw.uniform(1.0, 4.0, (jobs, len(capacity)))[job, node] * gpus ** draw.uniform(0.5, 1.0, jobs)[job]
    )
    gain = 1.1 - (speed / speed.min()) ** -0.5
    return Problem(
        capacity=np.array(capacity, dtype=np.int32),
        weight=np.ones(without + jobs),
        job=job + np.int32(without),
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
    without=st.integers(0, 1),
)


def fits(problem: Problem, found: Solution) -> bool:
    rows = found.choice[found.choice != NOTHING]
    used = np.bincount(problem.node[rows], problem.gpus[rows], len(problem.capacity))
    return bool((used <= problem.capacity).all())


@pytest.mark.parametrize("first_loss", [prices_module.FIRST_LOSS, 0.0])
@given(problem=programs)
@limits(max_examples=40, deadline=None)
def test_pricing_first_finds_what_the_solver_finds_alone(first_loss: float, problem: Problem) -> None:
    """At once, or only among the configurations that a better plan could hold."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(prices_module, "FIRST_LOSS", first_loss)
        found = solve_priced(problem, EXACT, solve)
    alone = solve(problem, EXACT)
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


def relaxed(problem: Problem) -> tuple[float, Floats]:
    """The program over fractions of configurations: its value, and such fractions."""
    column = np.arange(len(problem))
    answer = LinearProgram(
        cost=-problem.value,
        matrix=Matrix(
            np.concatenate([problem.job, problem.jobs + problem.node]).astype(np.int32),
            np.concatenate([column, column]).astype(np.int32),
            np.concatenate([np.ones(len(problem)), problem.gpus]),
        ),
        row_lower=np.full(problem.jobs + len(problem.capacity), -np.inf),
        row_upper=np.concatenate([np.ones(problem.jobs), problem.capacity]),
    ).solve()
    assert answer.state == "optimal"
    return -answer.objective, answer.x


@given(problem=programs)
@limits(max_examples=40, deadline=None)
def test_the_best_prices_are_those_of_the_program_over_fractions(problem: Problem) -> None:
    """By duality the bounds are equal, and none of what it takes has a loss."""
    priced, (value, taken) = prices(problem), relaxed(problem)
    assert priced.bound == pytest.approx(value, rel=1e-5)
    assert priced.loss @ taken <= 1e-5 * value


def test_with_many_jobs_little_more_than_one_configuration_each_is_solved() -> None:
    problem = program(jobs=400, capacity=(128, 128, 256), seed=1, ties=False)
    asked: list[int] = []

    def counting(part: Problem, effort: Effort) -> Solution:
        asked.append(len(part))
        return solve(part, effort)

    found = solve_priced(problem, Effort(gap=1e-4, modelled=True), counting)
    assert found.gap <= 1e-4
    assert found.stage == Stage.OPTIMAL
    assert sum(asked) < len(problem) / 3


def test_a_solver_that_gives_up_leaves_an_honest_bound() -> None:
    problem = program(jobs=20, capacity=(16, 8), seed=2, ties=False)

    def lazy(part: Problem, effort: Effort) -> Solution:  # noqa: ARG001
        nothing = np.full(part.jobs, NOTHING, dtype=np.int32)
        return Solution(choice=nothing, objective=0.0, bound=np.inf, stage=solve(part, EXACT).stage)

    found = solve_priced(problem, EXACT, lazy)
    assert (found.objective, found.stage) == (0.0, Stage.INCUMBENT)
    best = solve(problem, EXACT).objective
    assert best * (1 - 1e-9) <= found.bound <= 1.1 * best


def test_a_second_solve_that_finds_less_does_not_count() -> None:
    problem = program(jobs=12, capacity=(16, 3, 8), seed=4, ties=False)
    found: list[Solution] = []

    def tires(part: Problem, effort: Effort) -> Solution:
        nothing = np.full(part.jobs, NOTHING, dtype=np.int32)
        less = Solution(choice=nothing, objective=0.0, bound=np.inf, stage=Stage.INCUMBENT)
        found.append(less if found else solve(part, effort))
        return found[-1]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(prices_module, "FIRST_LOSS", 0.0)
        best = solve_priced(problem, EXACT, tires)
    assert len(found) == 2
    assert best.objective == found[0].objective > 0.0


def test_each_solve_has_the_time_that_those_before_it_left() -> None:
    problem, lasts_s = program(jobs=20, capacity=(16, 8), seed=2, ties=False), 2.0
    had_s: list[float] = []

    def lazy(part: Problem, effort: Effort) -> Solution:
        had_s.append(effort.budget_s)
        nothing = np.full(part.jobs, NOTHING, dtype=np.int32)
        return Solution(choice=nothing, objective=0.0, bound=np.inf, stage=Stage.INCUMBENT, seconds=lasts_s)

    found = solve_priced(problem, Effort(gap=0.0, modelled=True, budget_s=5.0), lazy)
    priced_s = modelled_s(prices(problem).rounds, len(problem))
    assert had_s == pytest.approx([5.0 - priced_s, 3.0 - priced_s])
    assert found.seconds == pytest.approx(priced_s + 2 * lasts_s)
    had_s.clear()
    solve_priced(problem, Effort(gap=0.0, modelled=True, budget_s=1.5), lazy)
    assert len(had_s) == 1


@pytest.mark.parametrize(("seconds", "rounds"), [(0.0, 1), (0.02, 10), (10.0, 60)])
def test_pricing_stays_within_its_time(seconds: float, rounds: int) -> None:
    assert affordable_rounds(seconds, 20_000) == rounds


# ---- speed

INSTANCES = 5


def asked(seed: int, *, jobs: int, gpus: int) -> Problem:
    """A program of three types: every job may have up to eight counts of 1 to 16 on each, as users ask."""
    draw = np.random.default_rng(seed)
    rows = [
        (job, kind, int(count), speed * int(count) ** scaling)
        for job in range(jobs)
        for scaling in [draw.uniform(0.5, 1.0)]
        for counts in [draw.choice(np.arange(1, 17), draw.integers(1, 9), replace=False)]
        for (kind, speed), count in product(enumerate(draw.uniform(1.0, 4.0, 3)), sorted(counts))
    ]
    job, kind, count = (np.array(part, dtype=np.int32) for part in list(zip(*rows, strict=True))[:3])
    speed = np.array([row[3] for row in rows])
    slowest = np.minimum.reduceat(speed, np.flatnonzero(np.diff(job, prepend=-1)))
    return Problem(
        capacity=np.full(3, gpus // 3, dtype=np.int32),
        weight=np.ones(jobs),
        job=job,
        start=np.arange(len(job) + 1, dtype=np.int32),
        node=kind,
        gpus=count,
        gain=gains(utilities(speed / slowest[job], Goal().power), Goal()),
    )


def cpu_s(call: Callable[[], Solution]) -> tuple[float, Solution]:
    began = time.process_time()
    found = call()
    return time.process_time() - began, found


@pytest.mark.benchmark
@pytest.mark.parametrize(("jobs", "gpus"), [(64, 64), (256, 512), (1024, 512), (2048, 2048)])
def test_pricing_first_takes_less_than_the_whole_program(jobs: int, gpus: int) -> None:
    load("hopyard"), load("highs")
    effort = Effort(gap=GAP, budget_s=60.0)
    whole = Effort(gap=GAP, budget_s=60.0, backend="highs")
    taken = []
    for seed in range(INSTANCES):
        problem = asked(seed, jobs=jobs, gpus=gpus)
        ours_s, ours = cpu_s(partial(solve_priced, problem, effort, solve))
        highs_s, highs = cpu_s(partial(solve, problem, whole))
        assert ours.gap <= GAP
        assert ours.objective >= highs.objective * (1 - 2 * GAP)
        taken.append((ours_s, highs_s))
    shown = [f"{median(each):.2f}, {max(each):.2f}" for each in zip(*taken, strict=True)]
    print(f"{jobs:5} jobs{gpus:5} GPUs: priced {shown[0]} s, HiGHS {shown[1]} s")
    assert median(ours_s for ours_s, _ in taken) < 2.0
