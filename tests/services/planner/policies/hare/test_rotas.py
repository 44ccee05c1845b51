"""How many turns each job of a rota has, and what follows from that."""

from collections.abc import Mapping

import pytest

from services.planner.policies.hare.parts import Block
from services.planner.policies.hare.rotas import PlannedRota, RotaJob, rota_of

SLOW = Block(job=0, tasks={0: 1}, exchange_s=3.0, round_s=4.0)
QUICK = Block(job=1, tasks={0: 1}, exchange_s=0.0, round_s=4 / 3)
"""a second of computing each; in the exchange of the slow one there is time for three rounds of the quick"""


def rota(slow: Mapping[str, float], quick: Mapping[str, float], switch_s: float = 0.0) -> PlannedRota:
    jobs = {number: RotaJob(task_s=(1.0,), **each) for number, each in enumerate((slow, quick))}
    return rota_of([SLOW, QUICK], jobs, switch_s)


def turns(planned: PlannedRota) -> list[int]:
    return [one.turns for one in planned.members]


def test_what_lasts_long_has_no_more_turns_than_there_is_time_for() -> None:
    """1 : 3 makes 1/5 + 3/20 of the jobs in 4 s; 1 : 4 makes 1/5 + 4/20 in 5 s."""
    planned = rota({"rounds": 5.0}, {"rounds": 20.0})
    assert (turns(planned), planned.cycle_s) == ([1, 3], 4.0)
    assert [one.share for one in planned.members] == [0.25, 0.75]
    assert planned.left_s == pytest.approx(4.0 * (5 / 1 + 20 / 3))
    assert planned.gpus == (0,)


def test_a_job_of_great_weight_has_more() -> None:
    """1 : 3 makes 1/5 + 10 · 3/20 in 4 s; 1 : 4 makes 1/5 + 10 · 4/20 in 5 s."""
    planned = rota({"rounds": 5.0}, {"rounds": 20.0, "weight": 10.0})
    assert (turns(planned), planned.cycle_s) == ([1, 4], 5.0)
    assert planned.left_s == pytest.approx(5.0 * (5 / 1 + 10 * 20 / 4))


def test_a_job_that_is_about_to_end_has_more() -> None:
    planned = rota({"rounds": 5.0}, {"rounds": 2.0})
    assert (turns(planned), planned.cycle_s) == ([1, 4], 5.0)


def test_of_equal_proportions_the_one_with_fewest_turns_is_taken() -> None:
    """The quick one is as good as not there."""
    planned = rota({"rounds": 5.0}, {"rounds": 1e30})
    assert (turns(planned), planned.cycle_s) == ([1, 1], 4.0)


@pytest.mark.parametrize(("switch_s", "expected"), [(0.5, [1, 2]), (1.0, [1, 1])])
def test_where_switches_take_time_turns_are_fewer(switch_s: float, expected: list[int]) -> None:
    planned = rota({"rounds": 5.0}, {"rounds": 20.0}, switch_s)
    assert (turns(planned), planned.cycle_s) == (expected, 4.0)


@pytest.mark.parametrize("fit", [6, 7, 8, 9, 11])
def test_no_job_has_more_than_eight_turns(fit: int) -> None:
    """In the exchange of the first there is time for so many rounds of the second."""
    first = Block(job=0, tasks={0: 1}, exchange_s=float(fit), round_s=1.0 + fit)
    second = Block(job=1, tasks={0: 1}, exchange_s=0.0, round_s=(1.0 + fit) / fit)
    jobs = {number: RotaJob(task_s=(1.0,), rounds=rounds) for number, rounds in enumerate((5.0, 20.0))}
    planned = rota_of([first, second], jobs, 0.0)
    assert (turns(planned), planned.cycle_s) == ([1, min(fit, 8)], 1.0 + fit)


def test_turns_are_about_in_proportion_to_the_lengths_of_rounds() -> None:
    """Rounds of 2 s and 5 s: 3 : 1 is, if rounded, but 4 : 1, which would make more rounds, is not."""
    quick = Block(job=0, tasks={0: 1}, exchange_s=0.0, round_s=2.0)
    slow = Block(job=1, tasks={0: 1}, exchange_s=2.0, round_s=5.0)
    jobs = {number: RotaJob(task_s=(task_s,), rounds=10.0) for number, task_s in enumerate((2.0, 3.0))}
    planned = rota_of([quick, slow], jobs, 0.0)
    assert (turns(planned), planned.cycle_s) == ([3, 1], 9.0)


def test_gpus_of_a_rota_on_which_no_job_has_tasks_count_as_its_own() -> None:
    jobs = {0: RotaJob(task_s=(1.0, 2.0, 3.0), rounds=5.0), 1: RotaJob(task_s=(1.0, 2.0, 0.5), rounds=5.0)}
    both = [
        Block(job=0, tasks={0: 2, 1: 1}, exchange_s=0.0, round_s=2.0),
        Block(job=1, tasks={1: 1}, exchange_s=0.0, round_s=2.0),
    ]
    planned = rota_of(both, jobs, 0.0, gpus=(0, 1, 2))
    assert planned.gpus == (0, 1, 2)
    assert [one.share for one in planned.members] == [pytest.approx(4 / 6), pytest.approx(2 / 6)]
    assert rota_of(both, jobs, 0.0).gpus == (0, 1)
