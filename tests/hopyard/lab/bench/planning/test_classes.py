"""The zoo's classes are what they say they are, and ours is measured against the others on them."""

from pathlib import Path

import numpy as np
import pytest

from hopyard.lab.bench.planning.classes import COLUMNS, Classes, classes
from hopyard.lab.bench.planning.solving import OURS, Attempt, run_attempt
from hopyard.lab.bench.planning.zoo import CLASSES, problem_of
from services.planner.solver import solve
from services.planner.solver.effort import Effort
from services.planner.solver.files import write_problem
from services.planner.solver.problem import Problem


def sizes(problem: Problem) -> set[int]:
    """The GPU counts of all configurations."""
    return set(np.add.reduceat(problem.gpus, problem.start[:-1]).tolist())


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_is_drawn_from_its_seed_and_name(name: str) -> None:
    one, same, other = problem_of(name, 1), problem_of(name, 1), problem_of(name, 2)
    assert all(
        np.array_equal(getattr(one, field), getattr(same, field)) for field in Problem.__struct_fields__
    )
    assert not np.array_equal(one.gain, other.gain)
    assert CLASSES[name].jobs[0] <= one.jobs <= CLASSES[name].jobs[1]
    assert (one.weight > 0).all()
    assert (one.gain > 0).all()


def test_the_hardest_class_is_as_it_was_met() -> None:
    """512 GPUs on 64 servers, exponential priorities, counts up to 16, 22,000 to 25,000 configurations."""
    problems = [problem_of("priorities", seed) for seed in range(1, 11)]
    assert {(one.capacity.sum(), len(one.capacity)) for one in problems} == {(512, 64)}
    assert 22_000 <= np.median([len(one) for one in problems]) <= 25_000
    assert max(max(sizes(one)) for one in problems) == 16
    assert np.concatenate([one.weight for one in problems]).mean() == pytest.approx(1.0, abs=0.1)


def test_each_class_has_the_property_in_its_name() -> None:
    assert np.ptp(problem_of("equal", 1).weight) == 0
    assert problem_of("heavy-tailed", 1).weight.max() > 20 * np.median(problem_of("heavy-tailed", 1).weight)
    assert sizes(problem_of("singles", 1)) == {1}
    assert sizes(problem_of("whole-nodes", 1)) == {8, 16, 24, 32}
    assert len(problem_of("sia", 1).capacity) == 5
    assert problem_of("half-idle", 1).capacity.sum() == pytest.approx(256, rel=0.2)
    assert set(problem_of("servers-mixed", 1).capacity.tolist()) == {2, 4, 8, 16}
    assert all(size % 8 for size in sizes(problem_of("odd-gangs", 1)))


@pytest.mark.parametrize("name", sorted(set(CLASSES) - {"equal-gains"}))
def test_every_class_is_solved_with_little_work(name: str) -> None:
    """Modelled seconds, so the machine does not matter; HiGHS and SCIP take two to twenty."""
    solution = solve(problem_of(name, 1), Effort(modelled=True, budget_s=60.0))
    assert solution.gap <= 0.01
    assert solution.seconds < 0.5


def test_ours_is_set_against_the_fastest_of_the_others(tmp_path: Path) -> None:
    said: list[str] = []
    asked = Classes(names=("singles",), instances=2, backends=("highs", "scip"), patience=1000.0)
    measured = classes(tmp_path, said.append, asked)
    assert measured.grid is not None
    row = dict(zip(COLUMNS, measured.grid.rows[0], strict=True))
    assert len(said) == 2
    assert row["class"] == "singles"
    assert row["certified"] == "2/2"
    assert row["fastest direct"] in ("highs", "scip")
    assert float(str(row["ratio worst"])) > 1


def test_a_back_end_cut_at_its_limit_is_a_lower_bound(tmp_path: Path) -> None:
    asked = Classes(names=("priorities",), backends=("highs",), patience=1.0)
    measured = classes(tmp_path, lambda _: None, asked)
    assert measured.grid is not None
    row = dict(zip(COLUMNS, measured.grid.rows[0], strict=True))
    assert row["fastest direct"] == "none"
    assert str(row["ratio p50"]).startswith("≥ ")


def attempt(tmp_path: Path, backend: str, limit_s: float) -> Attempt:
    problem, file = problem_of("half-idle", 1), tmp_path / "problem.json"
    write_problem(file, problem, [str(index) for index in range(problem.jobs)])
    found = run_attempt(file, backend, 0.001, limit_s)
    assert found is not None
    return found


def test_intermediate_solutions_are_reported_in_order_of_time(tmp_path: Path) -> None:
    ours = attempt(tmp_path, OURS, 20.0)
    seconds = [step.seconds for step in ours.steps]
    assert seconds == sorted(seconds)
    assert [step.objective for step in ours.steps] == sorted(step.objective for step in ours.steps)
    assert ours.objective_at(seconds[-1]) == ours.objective
    assert ours.objective_at(-1.0) == 0.0


def test_a_solve_ends_at_its_limit_of_cpu_seconds(tmp_path: Path) -> None:
    cut = attempt(tmp_path, "cp-sat", 0.2)
    assert cut.gap > 0.001
    assert cut.seconds < 5.0
