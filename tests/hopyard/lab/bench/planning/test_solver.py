"""Instances are the planner's own, of any size, and back ends are measured side by side on them."""

from pathlib import Path

import msgspec
import numpy as np
import pytest

from hopyard.failures import Invalid
from hopyard.lab.bench.planning.instances import Shape, instance
from hopyard.lab.bench.planning.solver import COLUMNS, Trials, solver
from hopyard.lab.bench.planning.solving import run_attempt
from schemas.plans import PlanKind
from services.planner.solver import solve
from services.planner.solver.effort import Effort
from services.planner.solver.files import read_problem, write_problem
from services.planner.solver.problem import NOTHING, Problem


def same(one: Problem, other: Problem) -> bool:
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in Problem.__struct_fields__)


def test_the_same_seed_makes_the_same_instance() -> None:
    shape = Shape(gpus=64, unlike=True)
    assert same(instance(shape, 1), instance(shape, 1))
    assert not same(instance(shape, 1), instance(shape, 2))


@pytest.mark.parametrize("gpus", [64, 512])
def test_a_first_plan_sees_every_gpu_and_more_jobs_than_fit(gpus: int) -> None:
    problem = instance(Shape(gpus=gpus), 1)
    assert problem.capacity.sum() == gpus
    assert problem.jobs > gpus / 8
    assert (problem.weight > 0).all()


def test_a_fragment_plan_sees_only_idle_gpus() -> None:
    first, fragment = (instance(Shape(gpus=512, kind=kind), 1) for kind in PlanKind)
    assert 0 < fragment.capacity.sum() < first.capacity.sum()
    assert 0 < fragment.jobs < first.jobs


def test_servers_of_a_type_differ_only_where_they_are_to() -> None:
    alike, unlike = (instance(Shape(gpus=64, unlike=differ), 1) for differ in (False, True))
    counts = [len(np.unique(one.gain[one.job == 0].round(5))) for one in (alike, unlike)]
    assert counts[0] < counts[1]


def written(folder: Path, problem: Problem) -> Path:
    path = folder / "problem.json"
    write_problem(path, problem, [str(index) for index in range(problem.jobs)])
    return path


def test_a_made_instance_is_the_same_problem_out_of_its_file(tmp_path: Path) -> None:
    problem = instance(Shape(gpus=64), 1)
    assert len(problem.present)
    assert same(read_problem(written(tmp_path, problem)).problem, problem)


def test_a_solve_in_its_own_process_begins_with_the_present_places(tmp_path: Path) -> None:
    """To a gap of 1 a solve ends with what it begins with: here the best plan, which the jobs hold."""
    problem = instance(Shape(gpus=64), 1)
    best = solve(problem, Effort(gap=0.0))
    held = msgspec.structs.replace(problem, present=np.sort(best.choice[best.choice != NOTHING]))
    assert solve(problem, Effort(gap=1.0)).objective < best.objective
    trial = run_attempt(written(tmp_path, held), "hopyard", 1.0, 20.0)
    assert trial is not None
    assert trial.objective == pytest.approx(best.objective)


def test_a_solve_in_its_own_process_reports_time_gap_and_memory(tmp_path: Path) -> None:
    problem = instance(Shape(gpus=64), 1)
    trial = run_attempt(written(tmp_path, problem), "hopyard", 0.01, 20.0)
    assert trial is not None
    assert trial.gap <= 0.01
    assert trial.seconds > 0
    assert 20 << 20 < trial.peak_bytes < 1 << 30
    assert trial.configurations == len(problem)


def test_a_back_end_that_fails_is_reported_and_the_others_are_measured(tmp_path: Path) -> None:
    assert run_attempt(written(tmp_path, instance(Shape(gpus=64), 1)), "nobody", 0.01, 1.0) is None


@pytest.mark.parametrize("name", ["notes.txt", ".000012-first-0000.json.gz.partial", "problem.json.bak"])
def test_a_folder_without_problems_is_no_benchmark(tmp_path: Path, name: str) -> None:
    """It gave an empty table, and what is not a problem was read as one."""
    (tmp_path / name).write_text("no problem")
    with pytest.raises(Invalid, match=r"it holds no saved problem \(\.json or \.json\.gz\)"):
        solver(tmp_path, print, Trials(problems=tmp_path))


@pytest.mark.benchmark
def test_back_ends_stand_side_by_side(tmp_path: Path) -> None:
    said: list[str] = []
    measured = solver(tmp_path, said.append, Trials(sizes=(64, 128), deadline_s=20.0))
    assert measured.grid is not None
    rows = [dict(zip(COLUMNS, row, strict=True)) for row in measured.grid.rows]
    print(*said, sep="\n")
    assert len(rows) == 2 * 2 * 2 * 4
    assert all(row["certified"] == "1/1" for row in rows)
