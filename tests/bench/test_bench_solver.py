"""Instances are the planner's own, of any size, and back ends are measured side by side on them."""

from pathlib import Path

import numpy as np
import pytest

from hopyard.bench.instances import Shape, instance
from hopyard.bench.solver import COLUMNS, Trials, solver
from hopyard.bench.solving import keep, tried
from schemas.plans import PlanKind
from services.planner.problem import Problem


def same(one: Problem, other: Problem) -> bool:
    return np.array_equal(one.gain, other.gain) and np.array_equal(one.node, other.node)


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


def test_a_fragment_plan_sees_what_is_idle() -> None:
    first, fragment = (instance(Shape(gpus=512, kind=kind), 1) for kind in PlanKind)
    assert 0 < fragment.capacity.sum() < first.capacity.sum()
    assert 0 < fragment.jobs < first.jobs


def test_servers_of_a_type_differ_only_where_they_are_to() -> None:
    alike, unlike = (instance(Shape(gpus=64, unlike=differ), 1) for differ in (False, True))
    counts = [len(np.unique(one.gain[one.job == 0].round(5))) for one in (alike, unlike)]
    assert counts[0] < counts[1]


def test_a_solve_in_a_process_of_its_own_tells_time_gap_and_memory(tmp_path: Path) -> None:
    problem = instance(Shape(gpus=64), 1)
    keep(problem, tmp_path / "problem.npz")
    trial = tried(tmp_path / "problem.npz", "hopyard", 0.01, 20.0)
    assert trial is not None
    assert trial.gap <= 0.01
    assert trial.seconds > 0
    assert 20 << 20 < trial.peak_bytes < 1 << 30
    assert trial.configurations == len(problem)


def test_a_back_end_that_fails_is_told_and_measured_on(tmp_path: Path) -> None:
    keep(instance(Shape(gpus=64), 1), tmp_path / "problem.npz")
    assert tried(tmp_path / "problem.npz", "nobody", 0.01, 1.0) is None


@pytest.mark.benchmark
def test_back_ends_stand_side_by_side(tmp_path: Path) -> None:
    said: list[str] = []
    measured = solver(tmp_path, said.append, Trials(sizes=(64, 128), deadline_s=20.0))
    assert measured.grid is not None
    rows = [dict(zip(COLUMNS, row, strict=True)) for row in measured.grid.rows]
    print(*said, sep="\n")
    assert len(rows) == 2 * 2 * 2 * 4
    assert all(row["certified"] == "1/1" for row in rows)
