"""The paper's examples, and one worked by hand; figures are those of the formulas, in full."""

from itertools import pairwise, product

import numpy as np
import pytest

from schemas.ids import NodeId
from services.planner.policies.hlas.grouping import grouped, unevenness
from services.planner.policies.hlas.queues import yardstick
from services.planner.policies.hlas.tasks import earliest_end, gang
from shared.domain.arrays import Floats, Ints
from tests.services.planner.planner_builders import decide, linear, silent, view
from tests.services.planner.policies.hlas.hlas_builders import (
    Toy,
    cluster,
    mean_jct,
    simulated,
    single,
    tasks_of,
    toy,
)
from tests.services.planner.policies.hlas.round_exact import Served, round_exact, task_exact

A = Toy((3.0, 3.0, 1.8, 1.8), tasks=4, rounds=1)
B = Toy((1.0, 2.0, 2.5, 1.0), tasks=6, rounds=1)
SPEED: Floats = np.array([[1 / each for each in one.task_s] for one in (A, B)])


def on(task_s: list[float], tasks: int) -> tuple[float, float]:
    """Task-GPU time and makespan."""
    given = earliest_end(task_s, tasks)
    spent = [count * each for count, each in zip(given, task_s, strict=True)]
    return sum(spent), max(spent)


# ---- figures 9 and 10


@pytest.mark.parametrize(
    ("one", "gpus", "spent_s", "makespan_s"),
    [(A, (0, 1), 12, 6), (B, (0, 1), 8, 4), (A, (2, 3), 7.2, 3.6), (B, (2, 3), 9, 5)],
)
def test_which_job_is_larger_depends_on_the_gpus(
    one: Toy, gpus: tuple[int, ...], spent_s: float, makespan_s: float
) -> None:
    assert on([one.task_s[gpu] for gpu in gpus], one.tasks) == pytest.approx((spent_s, makespan_s))


def test_with_the_tie_to_the_other_gpu_it_is_less() -> None:
    assert on([1.0, 2.5], 6)[0] == pytest.approx(7.5)


def test_the_job_that_is_smaller_on_all_gpus_goes_first() -> None:
    """One round each on all four: A first ends 3 and 5, B first 2.5 and 5."""

    def ends(*order: Toy) -> list[float]:
        free = [0.0] * 4
        found = []
        for one in order:
            for _ in range(one.tasks):
                then = [idle_at + takes_s for idle_at, takes_s in zip(free, one.task_s, strict=True)]
                free[then.index(min(then))] = min(then)
            found.append(max(free))
        return found

    assert ends(A, B) == pytest.approx([3.0, 5.0])
    assert ends(B, A) == pytest.approx([2.5, 5.0])


def test_the_best_of_all_groupings_is_found() -> None:
    pairs = {(1, 2): 4 / 9, (1, 3): 0.1, (1, 4): 1.1}
    for pair, expected in pairs.items():
        counts: Ints = np.array([[int(gpu in pair) for gpu in (1, 2, 3, 4)]] * 2, dtype=np.int32)
        counts[1] = 1 - counts[1]
        assert unevenness(counts, SPEED) == pytest.approx(expected)
    assert unevenness(np.array([[1, 1, 0, 0], [0, 0, 1, 1]], dtype=np.int32), SPEED * [[1.8], [1]]) == (
        pytest.approx(0.8)
    )
    found = grouped(SPEED, np.ones(4, dtype=np.int32), 2)
    assert sorted(map(tuple, found.tolist())) == [(0, 1, 0, 1), (1, 0, 1, 0)]
    halves = [first for first in product((0, 1), repeat=4) if first[0] and not all(first)]
    each = {
        first: unevenness(np.array([first, [1 - gpu for gpu in first]], dtype=np.int32), SPEED)
        for first in halves
    }
    assert (len(each), min(each, key=each.__getitem__)) == (7, (1, 0, 1, 0))


def test_after_a_round_each_b_is_served_first() -> None:
    sizes = [
        yardstick(float(one.tasks), float(row.sum()), 2).round_s
        for one, row in zip((A, B), SPEED, strict=True)
    ]
    assert sizes == pytest.approx([4.5, 6 / 1.45])
    assert np.round(SPEED.sum(axis=1) / 2, 3).tolist() == [0.889, 1.45]
    seen = view([toy("a", A, 4.0), toy("b", B, 6.0)], cluster(4), at=9.0)
    decision = decide("hlas", seen, silent, groups=2, hlas_thresholds="4.2")
    assert {job_id: one.priority for job_id, one in decision.standings.items()} == {"a": 2.0, "b": 1.0}
    assert [one.job_id for one in decision.choices] == ["b"]  # it needs both groups


def test_a_round_is_longer_than_the_yardstick() -> None:
    for one, groups, expected in ((A, [(0, 2), (1, 3)], [5.4, 5.4]), (B, [(0, 2), (1, 3)], [5.0, 4.0])):
        found = [on([one.task_s[gpu] for gpu in group], one.tasks)[1] for group in groups]
        assert found == pytest.approx(expected)


# ---- tasks on unlike GPUs


def test_tasks_are_divided_by_speed_or_one_to_each() -> None:
    nodes = [NodeId("k80"), NodeId("v100")]
    place, task_s = {nodes[0]: 1, nodes[1]: 3}, {nodes[0]: 1.05, nodes[1]: 0.15}
    spread, waves = (gang(place, task_s, 4, fill) for fill in ("spread", "one-each"))
    assert tasks_of(spread) == {"v100": (2, 1, 1)}
    assert tasks_of(waves) == {"k80": (1,), "v100": (1, 1, 1)}
    seconds = [
        max(task_s[NodeId(node)] * max(counts) for node, counts in tasks_of(each).items())
        for each in (spread, waves)
    ]
    assert seconds == pytest.approx([0.30, 1.05])
    six = gang(place, task_s, 6, "one-each")
    assert tasks_of(six) == {"k80": (2,), "v100": (2, 1, 1)}


# ---- two groups of two, every task takes a second

SECOND = (1.0,) * 4
TRIO = {
    "1": Toy(SECOND, tasks=3, rounds=2),
    "2": Toy(SECOND, tasks=2, rounds=3),
    "3": Toy(SECOND, tasks=2, rounds=1, arrives_at=0.5),
}


def test_round_by_round_on_groups() -> None:
    found = round_exact([(0, 1), (2, 3)], TRIO, (1.0, 3.0))
    assert found.ends == pytest.approx({"1": 3.0, "2": 5.0, "3": 2.0})
    assert found.rounds == [
        Served(0.0, "1", (0, 1)),
        Served(1.0, "2", (0,)),
        Served(1.0, "3", (1,)),
        Served(2.0, "1", (0, 1)),
        Served(3.0, "2", (0,)),
        Served(4.0, "2", (0,)),
    ]


def test_task_by_task_on_single_gpus() -> None:
    assert task_exact(TRIO, (1.0, 3.0)) == pytest.approx({"1": 3.0, "2": 4.0, "3": 2.0})


def test_the_policy_leaves_running_jobs_where_they_are() -> None:
    """At 20 s job 2 keeps its group though job 1 is before it: job 1 has the other, and both end at 40 s."""
    jobs = {name: one._replace(task_s=(10.0,), arrives_at=10 * one.arrives_at) for name, one in TRIO.items()}
    run = simulated("hlas", [single(0, gpus=4)], jobs, groups=2, hlas_thresholds="10 30")
    assert run.ends == pytest.approx({"1": 40.0, "2": 40.0, "3": 20.0})


# ---- figure 12

UNITS = " ".join(map(str, range(1, 12)))
THREE = {name: Toy((1.0,), tasks=1, rounds=rounds) for name, rounds in (("1", 2), ("2", 3), ("3", 4))}


def at_each_second(held: list[tuple[float, dict[str, list[str]]]], until: float) -> str:
    """Who runs, by second."""
    spans = pairwise([*held, (until, {})])
    return "".join("".join(who) * round(end - start) for (start, who), (end, _) in spans)


def test_hlas_without_predictions() -> None:
    run = simulated("hlas", cluster(1), THREE, hlas_thresholds=UNITS)
    assert at_each_second(run.held, 9.0) == "123123233"
    assert run.ends == pytest.approx({"1": 4.0, "2": 7.0, "3": 9.0})
    assert mean_jct(run, THREE) == pytest.approx(20 / 3)


def test_figure_12_is_the_same_if_a_job_that_keeps_its_queue_goes_to_its_end() -> None:
    found = round_exact([(0,)], THREE, range(1, 12), enters_anew=True)
    assert "".join(each.job for each in found.rounds) == "123123233"


def test_re_entering_a_queue_after_each_round_alternates_jobs() -> None:
    """In one queue for all: who runs goes on, or two take turns of a round."""
    two = {name: Toy((1.0,), tasks=1, rounds=3) for name in ("1", "2")}
    kept, turns = (round_exact([(0,)], two, (100.0,), enters_anew=anew).rounds for anew in (False, True))
    assert ["".join(each.job for each in rounds) for rounds in (kept, turns)] == ["111222", "121212"]


def test_shortest_remaining_time_first() -> None:
    """By names the longest would be first; the estimator has 10 tasks a second."""
    jobs = {
        name: THREE[number]._replace(task_s=(0.1,)) for name, number in (("a", "3"), ("b", "2"), ("c", "1"))
    }
    run = simulated("srtf", cluster(1), jobs, estimator=linear)
    assert run.ends == pytest.approx({"c": 0.2, "b": 0.5, "a": 0.9})
    assert mean_jct(run, jobs) == pytest.approx(1.6 / 3)


def three_more(name: str, rounds: int) -> int:
    return 3 if name == "3" and rounds == 0 else 0


def test_with_three_rounds_predicted_round_by_round() -> None:
    found = round_exact([(0,)], THREE, range(1, 12), three_more)
    assert "".join(each.job for each in found.rounds) == "121223333"
    assert found.ends == {"1": 3.0, "2": 5.0, "3": 9.0}
    assert "".join(each.job for each in round_exact([(0,)], THREE, range(1, 12)).rounds) == "123123233"
