import pytest
from msgspec.structs import replace

from services.planner.policies.kit.priority import RULES, PriorityRule, left_share, power_of, ranked, weights
from tests.services.planner.planner_builders import FAST, SLOW, job, node, nodes, view


@pytest.mark.parametrize(
    ("rule", "priority"),
    [
        ("lr", 0.5),  # waited 100 s, runs for 200 s
        ("las", -30.0),
        ("sjf", -200.0),
        ("srtf", -150.0),  # a quarter is done
        ("fifo", -40.0),
        # 8 GPUs and nobody else: it alone would use its largest demand, 4, and take 1000 / (4 · 2) = 125 s;
        # it has been there for 60 s, and three quarters are left
        ("ftf", (60.0 + 0.75 * 125.0) / 125.0),
    ],
)
def test_each_rule_by_hand(rule: PriorityRule, priority: float) -> None:
    one = job(
        demand=(2, 4),
        wait_s=100.0,
        age_s=200.0,
        attained_gpu_s=30.0,
        samples_done=250.0,
        submitted_at=40.0,
        single_gpu={FAST: 2.0},
    )
    assert RULES[rule](one, view([one], nodes(8))) == pytest.approx(priority)


def test_finish_time_fairness_shares_with_all_jobs_present_and_mixes_the_types() -> None:
    one = job(demand=(2, 4), submitted_at=40.0, single_gpu={FAST: 10.0, SLOW: 2.0})
    cluster = (node("a0"), node("b0", gpu_type=SLOW), node("c0", gpu_type="not for it"))
    crowd = view([one, *(job(str(other)) for other in range(7))], cluster)
    # 16 GPUs of its types among 8 jobs: 2 of them, at 6 samples/s on the mean
    assert RULES["ftf"](one, crowd) == pytest.approx(60.0 / (1000.0 / 12.0) + 1.0)


def test_finish_time_fairness_shares_with_jobs_that_a_fragment_plan_does_not_show() -> None:
    one = job(demand=(2, 4), submitted_at=40.0, single_gpu={FAST: 10.0})
    seen = replace(view([one], nodes(8)), jobs_present=8)
    # 8 GPUs among 8 jobs: 1 of them, at 10 samples/s
    assert RULES["ftf"](one, seen) == pytest.approx(60.0 / (1000.0 / 10.0) + 1.0)


def test_finish_time_fairness_counts_all_nodes_of_a_type() -> None:
    one = job(demand=(2, 16), submitted_at=40.0, single_gpu={FAST: 10.0})
    # 16 GPUs in two nodes and nobody else
    assert RULES["ftf"](one, view([one], nodes(8, 8))) == pytest.approx(60.0 / (1000.0 / 160.0) + 1.0)


def test_finish_time_fairness_counts_at_least_one_job() -> None:
    one = job(demand=(2, 4), submitted_at=40.0, single_gpu={FAST: 10.0})
    alone = view([one], nodes(8))
    assert RULES["ftf"](one, replace(alone, jobs_present=0)) == RULES["ftf"](one, alone)


def test_the_latency_ratio_of_a_job_of_no_length_is_finite() -> None:
    none = job(wait_s=10.0, age_s=0.0)
    assert RULES["lr"](none, view([none])) == pytest.approx(10_000.0)


def test_the_latency_ratio_of_a_job_of_milliseconds_is_by_its_own_length() -> None:
    short = job(wait_s=10.0, age_s=0.01)
    assert RULES["lr"](short, view([short])) == pytest.approx(1000.0)


def test_a_job_that_no_gpu_is_there_for_comes_last_in_finish_time_fairness() -> None:
    away, here = job("away", single_gpu={SLOW: 2.0}), job("here", single_gpu={FAST: 2.0}, submitted_at=99.0)
    ranking = [(entry.job_id, ratio) for entry, ratio in ranked(view([away, here], nodes(8)), "ftf")]
    assert ranking == [("here", pytest.approx(1.0, abs=0.2)), ("away", 0.0)]


def test_a_job_that_did_more_than_its_samples_has_none_left() -> None:
    assert left_share(job(samples_done=250.0)) == 0.75
    assert left_share(job(samples_done=1001.0)) == 0.0


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
