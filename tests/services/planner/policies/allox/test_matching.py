"""The matching of AlloX, against exhaustive search and examples by hand."""

import json
from collections.abc import Iterator
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.planner.policies.allox.matching import LEVELS, Matching, matched
from shared.domain.arrays import Floats
from tests.paths import data

Json = dict[str, Any]
EXAMPLES: list[Json] = json.loads(data("golden/allox_examples.json").read_text())


def orders(found: Matching, kinds: int) -> list[list[int]]:
    """Jobs of each kind, the first in its turn first."""
    own: list[list[int]] = [[] for _ in range(kinds)]
    queue = sorted((-place.level, job) for job, place in enumerate(found.places) if place)
    for _, job in queue:
        place = found.places[job]
        assert place is not None
        own[place.kind].append(job)
    return own


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_the_least_cost_of_an_example_and_the_order_on_every_machine(number: int) -> None:
    """Jobs that take equally long on a machine may change places there: compared is how long each takes."""
    example = EXAMPLES[number]
    seconds = np.array(example["p"], dtype=np.float64)
    found = matched(seconds, [[float(free_in_s)] for free_in_s in example["available"]])
    assert found.cost_s == pytest.approx(example["opt_sum_completion"])
    machines = range(seconds.shape[1])
    printed = [example["order_per_machine"][str(machine)] for machine in machines]
    ours = orders(found, seconds.shape[1])
    assert [sorted(own) for own in ours] == [sorted(own) for own in printed]
    assert [seconds[ours[one], one].tolist() for one in machines] == [
        seconds[printed[one], one].tolist() for one in machines
    ]


def test_three_jobs_on_two_machines_that_are_still_in_use() -> None:
    found = matched(np.array([[38.0, 20.0], [1.0, 25.0], [35.0, 3.0]]), [[10.0], [23.0]])
    assert found.cost_s == pytest.approx(11 + 43 + 29)
    assert orders(found, 2) == [[1], [2, 0]]


def test_of_equal_jobs_the_first_comes_first() -> None:
    found = matched(np.full((4, 1), 5.0), [[0.0]])
    assert orders(found, 1) == [[0, 1, 2, 3]]


def test_a_list_may_be_longer_than_the_levels_looked_at_first() -> None:
    jobs = 3 * LEVELS
    found = matched(np.arange(1.0, jobs + 1)[:, None], [[0.0]])
    assert orders(found, 1) == [list(range(jobs))]
    assert found.cost_s == pytest.approx(sum(range(1, jobs + 1)[at] * (jobs - at) for at in range(jobs)))


def test_levels_end_with_the_number_of_jobs() -> None:
    """A million times shorter than the longest, they cost nothing on any level, to the tick."""
    jobs = 2 * LEVELS
    seconds = np.full((jobs, 1), 1e-6)
    seconds[0] = 1e8
    found = matched(seconds, [[0.0]])
    assert orders(found, 1)[0][-1] == 0
    assert sorted(place.level for place in found.places if place) == list(range(1, jobs + 1))


@pytest.mark.parametrize("seconds", tuple(permutations((1.0, 50.0, 100.0))))
def test_a_machine_that_is_never_free_leaves_the_order_of_jobs_as_it_is(seconds: tuple[float, ...]) -> None:
    found = matched(np.array(seconds)[:, None], [[1e15]])
    assert [seconds[job] for job in orders(found, 1)[0]] == sorted(seconds)


def test_a_job_that_never_ends_is_the_last_and_hides_no_other() -> None:
    seconds = np.array([[1e300], [100.0], [1.0], [50.0]])
    assert orders(matched(seconds, [[0.0]]), 1) == [[2, 3, 1, 0]]


def test_a_program_without_an_answer_is_an_error_and_not_a_lack_of_levels() -> None:
    with pytest.raises(ValueError, match="wider than the machines"):
        matched(np.full((1, 1), 5.0), [[0.0]], np.array([LEVELS + 1], dtype=np.int32))
    with pytest.raises(RuntimeError, match="BAD_COST_RANGE"):
        matched(np.full((1, 1), -1e15), [[0.0]])


def test_a_job_that_can_run_nowhere_has_no_place() -> None:
    found = matched(np.array([[np.inf, np.inf], [np.inf, 2.0]]), [[0.0], [0.0]])
    assert found.places[0] is None
    assert found.places[1] is not None
    assert found.cost_s == pytest.approx(2.0)


def test_gangs_of_one_size_are_matched_as_jobs_of_one_gpu_are() -> None:
    """Lanes of two GPUs: three pairs on two lanes, or three jobs on two GPUs."""
    seconds = np.array([[4.0], [3.0], [9.0]])
    one = matched(seconds, [[0.0, 7.0]])
    pairs = matched(seconds, [[0.0, 0.0, 7.0, 7.0]], np.array([2, 2, 2], dtype=np.int32))
    assert pairs.cost_s == pytest.approx(one.cost_s)
    assert pairs.places == one.places


whole = st.integers(1, 40).map(float)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[Floats, list[float]]:
    jobs, machines = draw(st.integers(1, 6)), draw(st.integers(1, 3))
    seconds = [[draw(whole) for _ in range(machines)] for _ in range(jobs)]
    free_in_s = [draw(st.sampled_from([0.0, 0.0, 8.0, 23.0])) for _ in range(machines)]
    return np.array(seconds), free_in_s


def exhaustive(seconds: Floats, free_in_s: list[float]) -> float:
    """The least sum of completion times over all schedules."""
    jobs, machines = seconds.shape

    def ends(where: tuple[int, ...], order: tuple[int, ...]) -> Iterator[float]:
        at = list(free_in_s)
        for job in order:
            at[where[job]] += seconds[job, where[job]]
            yield at[where[job]]

    if jobs <= 4:
        return min(
            sum(ends(where, order))
            for where in product(range(machines), repeat=jobs)
            for order in permutations(range(jobs))
        )
    return min(  # the shortest first is best on every machine
        sum(ends(where, tuple(np.argsort(seconds[range(jobs), where], kind="stable").tolist())))
        for where in product(range(machines), repeat=jobs)
    )


@given(clusters())
@settings(deadline=None, max_examples=60)
def test_the_matching_costs_as_little_as_the_best_of_all_schedules(
    cluster: tuple[Floats, list[float]],
) -> None:
    seconds, free_in_s = cluster
    assert matched(seconds, [[one] for one in free_in_s]).cost_s == pytest.approx(
        exhaustive(seconds, free_in_s)
    )


@given(clusters())
@settings(deadline=None, max_examples=60)
def test_no_machine_has_a_gap_in_its_list(cluster: tuple[Floats, list[float]]) -> None:
    seconds, free_in_s = cluster
    found = matched(seconds, [[one] for one in free_in_s])
    for machine in range(len(free_in_s)):
        levels = sorted(place.level for place in found.places if place and place.kind == machine)
        assert levels == list(range(1, len(levels) + 1))


@given(clusters(), st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=60)
def test_the_order_of_jobs_and_machines_costs_nothing(
    cluster: tuple[Floats, list[float]],
    random: Any,  # noqa: ANN401 - a random.Random
) -> None:
    seconds, free_in_s = cluster
    jobs, machines = list(range(len(seconds))), list(range(len(free_in_s)))
    random.shuffle(jobs)
    random.shuffle(machines)
    other = matched(seconds[np.ix_(jobs, machines)], [[free_in_s[one]] for one in machines])
    assert other.cost_s == pytest.approx(matched(seconds, [[one] for one in free_in_s]).cost_s)


@given(
    st.lists(whole, min_size=1, max_size=6),
    st.lists(st.sampled_from([0.0, 5.0, 9.0]), min_size=1, max_size=3),
)
@settings(deadline=None, max_examples=60)
def test_machines_of_one_kind_are_as_good_as_kinds_of_one_machine(
    own: list[float], free_in_s: list[float]
) -> None:
    apart = matched(np.repeat(np.array(own)[:, None], len(free_in_s), axis=1), [[one] for one in free_in_s])
    together = matched(np.array(own)[:, None], [sorted(free_in_s)])
    assert together.cost_s == pytest.approx(apart.cost_s)
