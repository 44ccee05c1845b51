"""What `hopyard` adds to Hops: each term by hand, and that without them its queue is that of Hops."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from schemas.plans import PlanKind
from services.planner.policies.contract.configurations import configurations_for
from services.planner.policies.contract.decision import Decision, Trigger
from services.planner.policies.contract.view import View, ViewJob
from services.planner.policies.hops.hopyard import CRITICAL_AT_MOST, Hopyard, HopyardOptions, counted
from services.planner.policies.hops.policy import Hops
from services.planner.policies.kit.priority import ranked
from services.planner.policies.registry import Registry, UnfitPolicy
from tests.services.planner.planner_builders import chosen, decide, job, nodes, view

PLAIN = HopyardOptions(
    head_start_s=0.0,
    slow=0.0,
    left_least=1.0,
    critical=0.0,
    fill=0.0,
    moves_for_waiting=False,
    window_factor=1.0,
)


def priorities(options: HopyardOptions, seen: View) -> dict[str, float]:
    return {str(one.job_id): value for one, value in Hopyard(options)._ranks(seen)}


def decided(policy: str, jobs: Sequence[ViewJob]) -> Decision:
    return decide(policy, view(jobs, nodes(8)))


def names(decision: Decision) -> set[str]:
    return set(map(str, chosen(decision)))


def weighed(options: HopyardOptions, seen: View, throughput: Sequence[float]) -> dict[str, float]:
    """`throughput`: samples/s of each configuration that is wanted."""
    policy = Hopyard(options)
    wanted = policy.wants(seen)
    found = policy._weights(policy._outlook(seen), wanted, np.array(throughput))
    return dict(zip(map(str, wanted.jobs), found.tolist(), strict=True))


def order(options: HopyardOptions, *jobs: ViewJob) -> list[str]:
    return list(priorities(options, view(jobs, nodes(8))))


@given(st.lists(st.tuples(st.integers(0, 90), st.integers(1, 500), st.integers(0, 1000)), max_size=8))
def test_without_its_terms_it_is_the_latency_ratio(drawn: list[tuple[int, int, int]]) -> None:
    jobs = [
        job(f"j{index}", wait_s=float(wait), age_s=float(age), samples_done=float(done))
        for index, (wait, age, done) in enumerate(drawn)
    ]
    seen = view(jobs, nodes(8))
    mine, theirs = Hopyard(PLAIN)._ranks(seen), ranked(seen, "lr")
    assert [one.job_id for one, _ in mine] == [one.job_id for one, _ in theirs]
    assert [value for _, value in mine] == pytest.approx([value for _, value in theirs])


def test_a_head_start_puts_short_jobs_first_before_anybody_has_waited() -> None:
    long = job("long", age_s=1000.0, wait_s=0.0, submitted_at=0.0)
    short = job("short", age_s=10.0, wait_s=0.0, submitted_at=90.0)
    assert order(PLAIN, long, short) == ["long", "short"]
    assert order(replace(PLAIN, head_start_s=60.0), long, short) == ["short", "long"]


def test_slow_running_counts_beside_waiting() -> None:
    """There for 100 s, waited 20, and done is what takes 30 s at the pace of its age: 50 s behind."""
    slow = job("slow", wait_s=20.0, age_s=100.0, samples=100.0, samples_done=30.0, submitted_at=0.0)
    assert view([slow]).at == 100.0
    seen = view([slow], nodes(8))
    assert priorities(replace(PLAIN, slow=0.2), seen)["slow"] == pytest.approx((20.0 + 0.2 * 50.0) / 100.0)


def test_a_job_that_is_ahead_of_its_age_has_no_lag() -> None:
    quick = job("quick", wait_s=20.0, age_s=1000.0, samples=100.0, samples_done=90.0, submitted_at=0.0)
    assert priorities(replace(PLAIN, slow=1.0), view([quick], nodes(8)))["quick"] == pytest.approx(0.02)


def test_what_is_nearly_through_comes_before_what_has_just_begun() -> None:
    jobs = [
        job(name, wait_s=10.0, samples=100.0, samples_done=done) for name, done in (("a", 0.0), ("b", 80.0))
    ]
    found = priorities(replace(PLAIN, left_least=0.25), view(jobs, nodes(8)))
    assert found["b"] == pytest.approx(4 * found["a"])  # a fifth is left, and is taken for a quarter


def test_the_job_that_outlasts_all_others_weighs_more() -> None:
    """8 GPUs at 10 samples/s; the long one takes 1,000 s, all would be through in 10,100 / 80 = 126 s."""
    long = job("long", (1,), wait_s=10.0, age_s=1000.0, samples=10_000.0)
    short = job("short", (1,), wait_s=10.0, age_s=1000.0, samples=100.0)
    found = weighed(replace(PLAIN, critical=0.5), view([long, short], nodes(8)), [10.0, 10.0])
    assert found == pytest.approx({"long": 0.01 * (1 + 0.5 * CRITICAL_AT_MOST), "short": 0.01})


def test_a_gang_that_gains_little_makes_a_job_outlast_others_too() -> None:
    """Two jobs of 1,000 samples: drained in 25 s; eight GPUs together at 16 samples/s take 62.5 s."""
    jobs = [job(name, (1, 8), wait_s=10.0, sensitivity=9.0) for name in ("costly", "good")]
    found = weighed(replace(PLAIN, critical=1.0), view(jobs, nodes(8)), [10.0, 16.0, 10.0, 80.0])
    assert found == pytest.approx({"costly": 0.1 * (1 + 62.5 / 25 - 0.5), "good": 0.1})


def test_a_job_of_unknown_speed_decides_no_makespan() -> None:
    unmeasured = job("x", (1,), wait_s=10.0, single_gpu={})
    for seen in (view([unmeasured], nodes(8)), view([unmeasured, job("y", (1,), wait_s=10.0)], nodes(8))):
        throughput = [math.nan] * len(seen.jobs)
        assert set(weighed(replace(PLAIN, critical=1.0), seen, throughput).values()) == {0.1}


def test_the_queue_is_the_same_whoever_decides_the_makespan() -> None:
    long, short = job("long", wait_s=9.0, samples=1e9), job("short", wait_s=10.0, samples=1.0)
    assert order(replace(PLAIN, critical=5.0), long, short) == ["short", "long"]


def test_gpus_in_use_count_beside_the_gain() -> None:
    """Two jobs on 8 GPUs: at best 1.5 · 4 and 3 · 2, so a GPU is worth 12 / 8; a place of 4 counts 6 then,
    which is a gain of 4 to the job that weighs 1.5."""
    wanted = configurations_for(
        [job("x", (1, 4), sensitivity=9.0), job("y", (2,), sensitivity=9.0)], nodes(8), 1.4
    )
    found = counted(wanted, np.array([1.5, 3.0]), np.array([1.0, 4.0, 2.0]), 8)
    assert found.tolist() == pytest.approx([1.0, 4.0, 1.0])


def test_a_place_without_an_estimate_changes_nothing_of_what_gpus_are_worth() -> None:
    wanted = configurations_for([job("x", (1, 2), sensitivity=9.0)], nodes(8), 1.4)
    found = counted(wanted, np.array([1.0]), np.array([1.0, np.nan]), 8)
    assert found.tolist() == pytest.approx([1 / 8, 2 / 8])


def test_a_plan_that_leaves_no_gpu_idle_beats_a_like_one_that_does() -> None:
    """The small job has waited a little longer, and five GPUs would idle beside it."""
    jobs = [job("small", (3,), wait_s=52.0), job("large", (8,), wait_s=50.0)]
    assert names(decided("hopyard+fill=0+head_start_s=0+critical=0", jobs)) == {"small"}
    assert names(decided("hopyard+fill=0.5+head_start_s=0+critical=0", jobs)) == {"large"}


def test_a_job_that_arrives_calls_for_a_first_plan_at_once() -> None:
    at_arrivals, by_rounds = Hopyard(HopyardOptions()), Hopyard(PLAIN)
    whole = {trigger for trigger, kind in at_arrivals.calls.items() if kind is PlanKind.FIRST}
    assert (whole, at_arrivals.moves_for_waiting) == ({Trigger.ROUND, Trigger.ARRIVAL}, True)
    assert (by_rounds.calls, by_rounds.moves_for_waiting) == (Hops.calls, False)


def test_a_left_least_near_0_is_refused_and_the_least_one_plans() -> None:
    with pytest.raises(UnfitPolicy, match="left_least: it must be a number ≥ 1e-06, ≤ 1, but is '1e-300'"):
        Registry().find("hopyard+left_least=1e-300")
    done = [job(f"j{index}", samples_done=done) for index, done in enumerate((0.0, 1000.0))]
    assert names(decided("hopyard+left_least=1e-6+priority_power=10", done)) == {"j0", "j1"}
