"""Among plans that are good enough, the one that moves fewer jobs."""

import itertools
from collections.abc import Mapping

import msgspec
import numpy as np
import pytest

from services.planner.solver import solve
from services.planner.solver.budget import Budget
from services.planner.solver.effort import Effort
from services.planner.solver.problem import NOTHING, Problem, feasible, worth
from services.planner.solver.staying import stayed
from shared.domain.arrays import Ints
from tests.services.planner.solver.solver_builders import drawn, is_sound, problem

FREE = Effort(gap=0.02, modelled=True)


def moved(instance: Problem, choice: Ints) -> int:
    """Jobs that do not keep what they hold."""
    homes = zip(instance.job[instance.present].tolist(), instance.present.tolist(), strict=True)
    return sum(int(choice[job]) != row for job, row in homes)


def holding(instance: Problem, rows: Ints) -> Problem:
    return msgspec.structs.replace(instance, present=np.sort(rows).astype(np.int32))


def alike(jobs: int, gains: Mapping[tuple[int, int], float] | None = None) -> Problem:
    """Each job takes a whole server, and any will do, but for the `gains` of a job on a server."""
    places = itertools.product(range(jobs), repeat=2)
    rows = [(job, {node: 8}, (gains or {}).get((job, node), 1.0)) for job, node in places]
    return problem([8] * jobs, [1.0] * jobs, rows)


def turned(instance: Problem, by: int) -> Ints:
    """Job i on server i + `by`: its configurations are those on server 0, 1, …"""
    jobs = instance.jobs
    return np.array([job * jobs + (job + by) % jobs for job in range(jobs)], dtype=np.int32)


def test_servers_alike_are_no_reason_to_move() -> None:
    instance = alike(6)
    at_home = holding(instance, turned(instance, 0))
    assert moved(at_home, turned(instance, 1)) == 6
    assert moved(at_home, stayed(at_home, turned(instance, 1), 6.0, Budget())) == 0


def test_a_job_moves_where_staying_would_lose_value() -> None:
    """Job 3 gains on server 0 what nobody else does: sending it home costs as much."""
    instance = alike(4, {(3, 0): 1.5})
    at_home, choice = holding(instance, turned(instance, 0)), turned(instance, 1)
    assert worth(instance, choice) == 4.5
    kept = stayed(at_home, choice, 4.5, Budget())
    assert worth(instance, kept) == 4.5
    assert kept[3] == choice[3]
    assert moved(at_home, kept) == 2
    assert moved(at_home, stayed(at_home, choice, 4.0, Budget())) == 0


@pytest.mark.parametrize("seed", range(6))
def test_the_plan_holds_and_moves_no_more_jobs(seed: int) -> None:
    instance = drawn(seed, jobs=30, nodes=10)
    now = solve(msgspec.structs.replace(instance, weight=instance.weight[::-1].copy()), FREE).choice
    running = holding(instance, now[now != NOTHING])
    choice = solve(instance, FREE).choice
    least = 0.97 * worth(instance, choice)
    kept = stayed(running, choice, least, Budget())
    assert feasible(instance, kept)
    assert worth(instance, kept) >= least
    assert moved(running, kept) <= moved(running, choice)
    for job in instance.job[running.present].tolist():
        if choice[job] in running.present:
            assert kept[job] == choice[job]


def test_without_a_budget_no_job_is_put_back() -> None:
    instance = alike(6)
    at_home, choice = holding(instance, turned(instance, 0)), turned(instance, 1)
    assert stayed(at_home, choice, 6.0, Budget(seconds=0.0)).tolist() == choice.tolist()


def test_a_solution_keeps_jobs_in_place_where_any_server_will_do() -> None:
    instance = alike(6)
    running = holding(instance, turned(instance, 2))
    solution = solve(running, FREE)
    is_sound(running, solution)
    assert moved(running, solution.choice) == 0
