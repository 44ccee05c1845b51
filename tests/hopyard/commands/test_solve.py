"""hopyard solve: a saved problem in, a result out, and what is refused."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hopyard.commands.solve import Backend
from hopyard.lab.bench.planning.instances import Shape, instance
from services.planner.solver import BACKENDS
from services.planner.solver.files import write_problem
from tests.hopyard.cli_line import Ran, command_line

Solve = Callable[..., Ran]
"""of a problem, with options"""

PROBLEM = {
    "schema": "hopyard.problem/v1",
    "capacity": [2],
    "jobs": [
        {"id": "a", "weight": 1.0, "configurations": [{"gain": 1.0, "use": {"0": 1}}]},
        {
            "id": "b",
            "weight": 1.0,
            "configurations": [{"gain": 1.0, "use": {"0": 1}}, {"gain": 3.0, "use": {"0": 2}}],
        },
    ],
}


@pytest.fixture
def solve(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Solve:
    def run(problem: object, *options: str) -> Ran:
        path = tmp_path / "problem.json"
        path.write_text(json.dumps(problem))
        return command_line(capfd)("solve", str(path), *options)

    return run


@pytest.mark.parametrize("backend", Backend)
def test_the_result_is_pure_json(solve: Solve, backend: str) -> None:
    ran = solve(PROBLEM, "--backend", backend, "--gap", "0", "--json")
    result = json.loads(ran.out)
    assert (ran.code, ran.err) == (0, "")
    assert set(result) == {"objective", "bound", "gap", "seconds", "backend", "stage", "choice"}
    assert (result["objective"], result["choice"], result["backend"]) == (3.0, [None, 1], backend)
    assert result["stage"] == "optimal"


def test_the_result_goes_to_a_file_and_the_facts_to_the_terminal(solve: Solve, tmp_path: Path) -> None:
    ran = solve(PROBLEM, "--out", str(tmp_path / "result.json"))
    assert ran.code == 0
    assert "1 of 2" in ran.out
    assert json.loads((tmp_path / "result.json").read_text())["choice"] == [None, 1]


def test_a_solver_that_runs_on_does_not_hold_up_the_end(tmp_path: Path) -> None:
    problem = instance(Shape(gpus=128), seed=1)
    write_problem(tmp_path / "problem.json", problem, [str(index) for index in range(problem.jobs)])
    words = [sys.executable, "-m", "hopyard.cli", "solve", str(tmp_path / "problem.json")]
    options = ["--backend", "scip", "--deadline", "0.2", "--gap", "0", "--json"]
    ran = subprocess.run([*words, *options], capture_output=True, check=True, timeout=300)
    result = json.loads(ran.stdout)
    assert 0 < result["objective"] <= result["bound"]
    assert ran.stderr == b""


def test_an_invalid_problem_file_is_refused(solve: Solve) -> None:
    ran = solve(PROBLEM | {"capacity": []}, "--json")
    assert (ran.code, ran.out) == (2, "")
    assert "$.jobs[0].configurations[0].use: node 0 of 0" in ran.err


def test_every_back_end_can_be_asked_for() -> None:
    assert {backend.value for backend in Backend} == set(BACKENDS)
