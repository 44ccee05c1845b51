import pytest
from planner_builders import job, nodes, view

from services.planner.priority import RULES, power_of, ranked, weights


@pytest.mark.parametrize(
    ("rule", "priority"),
    [
        ("lr", 0.5),  # waited 100 s, runs for 200 s
        ("las", -30.0),
        ("sjf", -200.0),
        ("srtf", -150.0),  # a quarter is done
        ("fifo", -40.0),
        # 8 GPUs, one job with R = {2, 4}: a fair share of 4 GPUs, mean demand 3, so it alone would take
        # 200 · 3 / 4 = 150 s; it has been there for 60 s, and three quarters of 150 s are left
        ("ftf", (60.0 + 112.5) / 150.0),
    ],
)
def test_each_rule_by_hand(rule: str, priority: float) -> None:
    one = job(
        demand=(2, 4), wait_s=100.0, age_s=200.0, attained_gpu_s=30.0, samples_done=250.0, submitted_at=40.0
    )
    assert RULES[rule](one, view([one], nodes(8))) == pytest.approx(priority)


def test_the_queue_begins_with_the_most_urgent_and_breaks_ties_by_submission_then_id() -> None:
    jobs = [
        job("late", wait_s=10.0, submitted_at=9.0),
        job("b", wait_s=10.0, submitted_at=1.0),
        job("a", wait_s=10.0, submitted_at=1.0),
        job("urgent", wait_s=20.0, submitted_at=10.0),
    ]
    assert [entry.job_id for entry, _ in ranked(view(jobs), "lr")] == ["urgent", "a", "b", "late"]


def test_positive_priorities_are_the_weights() -> None:
    assert weights([0.5, 2.0], 1.0).tolist() == [0.5, 2.0]


@pytest.mark.parametrize(
    ("priorities", "expected"), [([0.0, 1.0], [0.01, 1.01]), ([-5.0, -2.0], [0.01, 3.01])]
)
def test_a_priority_that_is_not_positive_moves_all_by_the_bias(
    priorities: list[float], expected: list[float]
) -> None:
    assert weights(priorities, 1.0).tolist() == pytest.approx(expected)


def test_lambda_magnifies_differences_and_at_zero_removes_them() -> None:
    assert weights([2.0, 3.0], 2.0).tolist() == [4.0, 9.0]
    assert weights([2.0, 3.0], 0.0).tolist() == [1.0, 1.0]


def test_lambda_is_two_with_finish_time_fairness() -> None:
    assert (power_of("lr", 1.0), power_of("ftf", 1.0)) == (1.0, 2.0)


def test_no_jobs_have_no_weights() -> None:
    assert weights([], 1.0).tolist() == []
