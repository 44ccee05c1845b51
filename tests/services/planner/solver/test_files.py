"""Problems as files, and every plan's problem as one."""

import gzip
import json
import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import structlog

from schemas.plans import PlanKind
from schemas.settings import Settings
from services.planner.policies.contract.decision import Decision
from services.planner.policies.hops.policy import Hops, HopsOptions
from services.planner.solver import solve
from services.planner.solver.effort import Effort
from services.planner.solver.files import read_problem, result_of, write_problem
from services.planner.solver.problem import Problem, worth
from services.planner.work.policy_process import policy_process
from services.planner.work.steps import Decide
from shared.runtime.files import InvalidFile
from shared.runtime.offload import INLINE, LiveOffload
from tests.full_disk import full_disk
from tests.services.planner.planner_builders import MODELLED, job, linear, nodes, view
from tests.services.planner.solver.solver_builders import chosen, drawn, problem

SMALL: dict[str, Any] = {
    "schema": "hopyard.problem/v1",
    "capacity": [4, 2],
    "jobs": [
        {
            "id": "a",
            "weight": 2.0,
            "configurations": [{"gain": 0.0, "use": {"0": 1}}, {"gain": 3.0, "use": {"0": 4, "1": 2}}],
        },
        {"id": "b", "weight": 0.5, "configurations": []},
    ],
}


def written(tmp_path: Path, **changes: Any) -> Path:  # noqa: ANN401 - JSON
    path = tmp_path / "problem.json"
    path.write_text(json.dumps(SMALL | changes))
    return path


def one_job(**changes: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    return {
        "jobs": [{"id": "a", "weight": 1.0, "configurations": [{"gain": 1.0, "use": {"0": 1}} | changes]}]
    }


def same(one: Problem, other: Problem) -> bool:
    names = ("capacity", "weight", "job", "start", "node", "gpus", "gain", "present")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names)


@pytest.mark.parametrize("name", ["problem.json", "problem.json.gz"])
@pytest.mark.parametrize("instance", [drawn(1), problem([3], [1.0, 0.0], []), problem([], [], [])])
def test_a_problem_comes_back_as_it_was(tmp_path: Path, name: str, instance: Problem) -> None:
    names = tuple(f"job {index}" for index in range(instance.jobs))
    write_problem(tmp_path / name, instance, names)
    saved = read_problem(tmp_path / name)
    assert same(saved.problem, instance)
    assert saved.jobs == names
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_the_places_of_running_jobs_are_read_back(tmp_path: Path) -> None:
    instance = msgspec.structs.replace(drawn(1), present=np.array([3, 90], dtype=np.int32))
    write_problem(tmp_path / "problem.json", instance, [f"job {index}" for index in range(instance.jobs)])
    assert same(read_problem(tmp_path / "problem.json").problem, instance)


def test_the_same_problem_is_the_same_file(tmp_path: Path) -> None:
    for name in ("a.json.gz", "b.json.gz"):
        write_problem(tmp_path / name, drawn(1), [str(index) for index in range(14)])
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()


def test_a_choice_counts_within_its_own_job_as_the_file_has_it(tmp_path: Path) -> None:
    saved = read_problem(written(tmp_path))
    result = result_of(saved, solve(saved.problem, MODELLED), "hopyard")
    assert (result.choice, result.objective, result.bound) == ([1, None], 6.0, 6.0)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"schema": "hopyard.problem/v2"}, "$.schema: Invalid enum value 'hopyard.problem/v2'"),
        ({"capacity": [-1, 2]}, "$.capacity[0]: Expected `int` >= 0"),
        (one_job(use={"2": 1}), "$.jobs[0].configurations[0].use: node 2 of 2"),
        (one_job(use={"-1": 1}), "Expected `int` >= 0"),
        (one_job(use={"0": 0}), "Expected `int` >= 1"),
        (one_job(use={}), "length >= 1"),
        (one_job(gain=float("nan")), "malformed"),
        (one_job(gain=None), "got `null`"),
        (one_job(gain=-1.0), "Expected `float` >= 0"),
        (one_job(gains=1.0), "unknown field `gains`"),
        ({"jobs": [{"id": "a", "weight": 1.0, "configurations": [], "present": 0}]}, "configuration 0 of 0"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused_with_the_reason(
    tmp_path: Path, changes: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(InvalidFile, match=re.escape(complaint)):
        read_problem(written(tmp_path, **changes))


def test_half_a_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "problem.json.gz"
    path.write_bytes(gzip.compress(json.dumps(SMALL).encode())[:-12])
    with pytest.raises(InvalidFile, match="damaged gzip"):
        read_problem(path)


# ---- dumps


def step(kind: PlanKind = PlanKind.FIRST) -> Decide:
    seen = view([job("x", (2, 4)), job("y", (2, 4))], nodes(8), kind=kind, effort=Effort(gap=0.0))
    wanted = Hops(HopsOptions()).wants(seen)
    return Decide(policy="hops", view=seen, wanted=wanted, estimates=linear(wanted))


async def test_every_plan_leaves_its_problem_and_it_can_be_solved_again(tmp_path: Path) -> None:
    inline = policy_process(Settings(dump_problems=str(tmp_path / "new")), INLINE)
    for kind in (PlanKind.FIRST, PlanKind.FRAGMENT, PlanKind.FRAGMENT):
        decision = await inline.call(step(kind), 1.0)
    assert isinstance(decision, Decision)
    files = sorted(path.name for path in (tmp_path / "new").iterdir())
    names = ("000000-first-0000", "000000-fragment-0001", "000000-fragment-0002")
    assert files == [f"{name}.json.gz" for name in names]
    saved = read_problem(tmp_path / "new" / files[-1])
    again = solve(saved.problem, Effort(gap=0.0))
    assert saved.jobs == ("x", "y")
    assert again.objective == pytest.approx(decision.objective)
    assert worth(saved.problem, again.choice) == again.objective
    assert len(chosen(again)) == len(decision.choices)


async def test_the_process_beside_leaves_them_too(tmp_path: Path) -> None:
    process = policy_process(Settings(dump_problems=str(tmp_path)), LiveOffload())
    try:
        for _ in range(2):  # one has been written when the next is answered
            await process.call(step(), 5.0)
    finally:
        process.end()
    assert read_problem(tmp_path / "000000-first-0000.json.gz").jobs == ("x", "y")


async def test_a_folder_that_cannot_be_written_costs_no_plan(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with structlog.testing.capture_logs() as said:
        decision = await policy_process(Settings(dump_problems=str(blocked)), INLINE).call(step(), 1.0)
    assert isinstance(decision, Decision)
    assert [one["reason"] for one in said] == ["Not a directory"]


def files_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def test_a_full_disk_is_reported_once_and_gets_no_empty_files(tmp_path: Path) -> None:
    """Each plan left an empty file under its temporary name, and a warning."""
    process = policy_process(Settings(dump_problems=str(tmp_path)), INLINE)
    with structlog.testing.capture_logs() as said:
        with full_disk():
            for _ in range(3):
                await process.call(step(), 1.0)
        assert files_in(tmp_path) == []
        await process.call(step(), 1.0)
    assert [(one["event"], one["reason"]) for one in said] == [("problems are not saved", "File too large")]
    assert files_in(tmp_path) == ["000000-first-0000.json.gz"]


def test_an_empty_file_is_called_empty(tmp_path: Path) -> None:
    file = tmp_path / "problem.json"
    file.write_bytes(b"\n")
    with pytest.raises(InvalidFile, match="is empty"):
        read_problem(file)
