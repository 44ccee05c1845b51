"""Each figure from a small log whose answer can be worked out by hand."""

import math
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.base import Event
from schemas.events import GpusWithheld, Outcome, PreemptReason
from schemas.ids import JobId, NodeId
from schemas.placement import Forked, Gang
from schemas.plans import Stage
from shared.domain.ledger import Ledger, fold, forget_jobs, ledger_of
from shared.domain.ledger.jobs import drop_runs
from shared.domain.metrics import (
    expected_wait_s,
    fragments_mean,
    gaps,
    job_counts,
    latency_ratio,
    latency_ratios,
    percentile,
    plan_figures,
    raqlr,
    summary,
)
from shared.domain.metrics.curves import busy_gpus_curve, cdf, throughput_curve
from shared.domain.metrics.fairness import isolated_s, jain
from shared.domain.metrics.use import cluster_throughput_now, cru, gru
from tests.fact_builders import (
    JOB,
    K80,
    NODE,
    V100,
    cancelled,
    checkpointed,
    completed,
    config,
    held,
    in_queue,
    joined,
    left_out,
    lost,
    placement,
    plan,
    preempted,
    queued,
    start_ordered,
    started,
    submitted,
    type_estimated,
    whole_life,
    worker_started,
    worker_stopped,
)


def figures(*facts: Event) -> dict[str, float | None]:
    return summary(ledger_of(facts))


def finished(job_id: str, *, sub: float, start: float, end: float) -> list[Event]:
    place = f"pl-{job_id}"
    return [
        *in_queue(job_id, at=sub),
        started(job_id, at=start, place=place),
        completed(job_id, at=end, place=place),
    ]


def two_jobs() -> list[Event]:
    return [*finished("a", sub=0, start=10, end=60), *finished("b", sub=20, start=50, end=150)]


def test_figures_without_data_are_none_and_not_nan() -> None:
    assert {name: value for name, value in figures().items() if value is not None} == {
        "restarts": 0.0,
        "lost_work_gpu_s": 0.0,
        "merges": 0.0,
    }


@given(st.integers(min_value=0, max_value=11))
def test_no_figure_is_ever_nan(length: int) -> None:
    found = [value for value in figures(*whole_life()[:length]).values() if value is not None]
    assert all(math.isfinite(value) for value in found)


def test_jobs_count_by_their_priority() -> None:
    """a: 100 s; b: 200 s, three times."""
    facts = [
        *in_queue("a"),
        *in_queue("b", priority=3.0),
        started("a", at=0),
        started("b", at=0, place="pl-2"),
        completed("a", at=100),
        completed("b", at=200, place="pl-2"),
    ]
    assert figures(*facts)["weighted_jct_s"] == 100 + 3 * 200


def test_only_starts_after_a_job_s_first_are_switches() -> None:
    facts = [
        *in_queue("a"),
        start_ordered("a", at=0),
        started("a", at=20),
        preempted("a", at=100),
        start_ordered("a", at=150, place="pl-2"),
        started("a", at=153, place="pl-2"),
    ]
    assert figures(*facts[:3])["switch_s_mean"] is None
    assert figures(*facts)["switch_s_mean"] == 3.0


def test_makespan_runs_from_the_first_submission_to_the_last_completion() -> None:
    assert figures(*two_jobs())["makespan_s"] == 150


def test_time_before_the_first_submission_is_not_part_of_the_makespan() -> None:
    assert figures(*finished("a", sub=100, start=110, end=160))["makespan_s"] == 60


def test_the_total_time_of_a_batch_is_its_makespan() -> None:
    batch = [*in_queue("a"), *in_queue("b"), started("a", at=5), completed("a", at=80)]
    assert figures(*batch)["ttd_s"] == 80


def test_a_job_that_is_submitted_as_the_first_starts_is_of_the_batch() -> None:
    batch = [*in_queue("a"), *in_queue("b", at=5), started("a", at=5), completed("a", at=80)]
    assert figures(*batch)["ttd_s"] == 80


def test_jobs_that_trickle_in_are_no_batch() -> None:
    assert figures(*two_jobs())["ttd_s"] is None


def test_jct_and_waiting_are_means_over_completed_jobs() -> None:
    found = figures(*two_jobs(), submitted("c"), cancelled("c", at=500))
    assert found["jct_s_mean"] == (60 + 130) / 2
    assert found["jct_s_max"] == 130
    assert found["wt_s_mean"] == (10 + 30) / 2


def test_percentiles_of_jct_lie_between_the_jobs() -> None:
    found = figures(*two_jobs(), *finished("c", sub=0, start=0, end=100))  # 60, 100 and 130 s
    assert [found[f"jct_s_p{rank}"] for rank in (50, 95, 99)] == pytest.approx([100, 127, 129.4])


def test_a_job_whose_end_is_dated_before_its_submission_took_no_time() -> None:
    facts = [*in_queue("a", at=10), started("a", at=10), completed("a", at=9)]
    assert figures(*facts)["jct_s_max"] == 0


def test_the_latency_ratio_is_waiting_over_age() -> None:
    found = figures(*two_jobs())  # age 100 s each
    assert found["lr_mean"] == pytest.approx(0.2)
    assert found["lr_max"] == pytest.approx(0.3)


def test_a_job_without_an_age_has_no_latency_ratio() -> None:
    assert latency_ratio(ledger_of([submitted("a")]).jobs[JobId("a")], 10) is None


def test_jobs_that_have_not_ended_are_not_among_the_latency_ratios() -> None:
    ledger = ledger_of([*two_jobs(), *in_queue("c", at=60)])  # c has an age, and waits still
    assert latency_ratios(ledger.jobs.values()) == pytest.approx([0.1, 0.3])


def test_raqlr_looks_at_the_jobs_that_ended_lately() -> None:
    ledger = ledger_of(two_jobs())
    assert raqlr(ledger, now=160, window_s=50) == pytest.approx(0.3)
    assert raqlr(ledger, now=200, window_s=50) == pytest.approx(0.3)  # ended just then
    assert raqlr(ledger, now=160, window_s=5) is None


@pytest.mark.parametrize(("after_s", "lately"), [(14_400, [0.1, 0.3]), (14_401, [0.3]), (14_491, [])])
def test_by_default_raqlr_looks_back_four_hours(after_s: float, lately: list[float]) -> None:
    """From so long after the end of a; b ended 90 s later."""
    found = summary(ledger_of(two_jobs()), now=60 + after_s)["raqlr"]
    assert found == (pytest.approx(sum(lately) / len(lately)) if lately else None)


def test_raqlr_counts_jobs_with_any_end() -> None:
    ledger = ledger_of([*two_jobs(), *in_queue("c", at=60), cancelled("c", at=150)])  # waited 90 s in vain
    assert raqlr(ledger, now=160, window_s=50) == pytest.approx((0.3 + 0.9) / 2)


def test_a_waiting_job_waits_roughly_as_long_as_jobs_of_late_did_for_their_length() -> None:
    ledger = ledger_of([*two_jobs(), *in_queue("c", at=160), *in_queue("d", at=160), started("d", at=161)])
    jobs = ledger.jobs
    assert expected_wait_s(jobs[JobId("c")], 0.3) == pytest.approx(30)  # age 100 s
    assert expected_wait_s(jobs[JobId("c")], None) is None
    assert [expected_wait_s(jobs[JobId(name)], 0.3) for name in "ad"] == [None, None]
    fold(ledger, held("c", at=162))
    assert expected_wait_s(jobs[JobId("c")], 0.3) is None


def test_fragments_are_a_mean_over_rounds_of_the_mean_over_plans() -> None:
    waits = (left_out("a"),)
    ledger = ledger_of(
        [
            *in_queue("a"),
            plan(at=1, round=0, left_out=waits, idle_gpus=6),
            plan(at=2, round=0, left_out=waits, idle_gpus=3),
            plan(at=3, round=1, idle_gpus=8),
        ]
    )
    assert fragments_mean(ledger) == (4.5 + 0) / 2


def test_fragments_are_of_the_plans_from_the_first_submission_to_the_last_end() -> None:
    idle = {9: 6, 10: 2, 60: 4, 61: 8}
    plans = [
        plan(at=at, round=at, left_out=(left_out("b"),), idle_gpus=gpus, plan_id=f"plan-{at}")
        for at, gpus in idle.items()
    ]
    assert fragments_mean(ledger_of([*finished("a", sub=10, start=20, end=60), *plans])) == (2 + 4) / 2


def test_gaps_of_plans_by_order_alone_do_not_count() -> None:
    made = {stage: gaps(ledger_of([plan(gap=0.01, stage=stage)])) for stage in Stage}
    assert made.pop(Stage.QUEUE) == []
    assert list(made.values()) == [[0.01]] * len(made)


def test_a_job_alone_all_the_time_and_without_waiting_is_treated_fairly() -> None:
    alone = [
        joined(gpus=1),
        *in_queue("a", demand=(1,)),
        started("a", at=0),
        completed("a", at=100),
    ]  # 1000 samples at 10/s on the one GPU there is
    found = figures(*alone)
    assert found["ftf_rho_max"] == pytest.approx(1.0)
    assert found["ftf_unfair_share"] == 0


def test_fairness_counts_the_jobs_that_shared_the_cluster() -> None:
    facts = [
        joined(gpus=1),
        *in_queue("a", demand=(1,)),
        *in_queue("b", demand=(1,)),
        started("a", at=0),
        completed("a", at=100),
        started("b", at=100, place="pl-2"),
        completed("b", at=200, place="pl-2"),
    ]
    found = figures(*facts)
    assert found["ftf_rho_max"] == pytest.approx(200 / 150)  # b shared with a for half its life
    assert found["ftf_unfair_share"] == 0.5
    assert found["jain_index"] == pytest.approx(jain([0.5, 200 / 150]))
    assert found["jain_equal"] == pytest.approx(jain([100.0, 200.0])), "on half a GPU both take 200 s alone"


def test_equal_shares_are_not_limited_by_a_job_s_demand() -> None:
    """On half of four GPUs each takes 50 s, on the one that it asks for 100 s; they took 100 and 200 s."""
    jobs = [*in_queue("a", demand=(1,)), *in_queue("b", demand=(1,))]
    runs = [started("a", at=0), started("b", at=0, place="pl-2"), completed("a", at=100)]
    found = figures(joined(gpus=4), *jobs, *runs, completed("b", at=200, place="pl-2"))
    assert found["jain_equal"] == pytest.approx(jain([100 / 50, 200 / 50]))
    assert (found["ftf_rho_mean"], found["ftf_unfair_share"]) == (1.5, 0.5)
    assert found["merges"] == 0
    assert found["copy_share_max"] is None


LIFE: list[Event] = [*in_queue(at=0, demand=(1, 8, 16)), started(at=0), completed(at=100)]
"""1000 samples at 10/s on a GPU"""


def withheld(at: float, gpus: int) -> GpusWithheld:
    return GpusWithheld(at=at, node_id=NodeId(NODE), gpus=dict.fromkeys(range(gpus), "busy"))


@pytest.mark.parametrize(
    ("before", "after", "gpus"),
    [
        ([joined(gpus=8)], [], 8),
        ([joined("gone", gpus=8, at=-90), lost("gone", at=-50), joined(gpus=8)], [], 8),
        ([joined(gpus=8)], [withheld(200, 7)], 8),
        ([joined(gpus=8)], [lost(at=200)], 8),
        ([joined(gpus=8), joined("late", gpus=8, at=50)], [], 12),
        ([joined(gpus=8), joined("late", gpus=8, at=150)], [], 8),
        ([joined(gpus=8), withheld(75, 4)], [], 7),
        ([joined(gpus=8), joined(gpus=8, gpu_type=K80, at=50, life="2")], [], 4),
    ],
)
def test_fairness_counts_the_gpus_that_were_there_in_a_job_s_life(
    before: list[Event], after: list[Event], gpus: int
) -> None:
    """A job that takes 100 s on all GPUs of its type has ρ 1 with one of them."""
    found = figures(*before, *LIFE, *after)
    assert found["ftf_rho_mean"] == gpus


def test_equal_shares_count_the_gpus_that_were_there_in_each_job_s_life() -> None:
    jobs = [*in_queue("a", at=0), *in_queue("b", at=50), started("a", at=0), completed("a", at=50)]
    facts = [joined(gpus=8), *jobs, started("b", at=50, place="pl-2"), completed("b", at=100, place="pl-2")]
    grows = joined("late", gpus=8, at=50)
    assert figures(*facts)["jain_equal"] == 1
    assert figures(grows, *facts)["jain_equal"] == pytest.approx(jain([1.0, 2.0]))


def test_a_node_whose_first_intervals_are_not_kept_counts_as_in_the_oldest_one_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shared.domain.ledger.cluster.INTERVALS_KEPT", 1)
    away = [fact for at in (20, 40) for fact in (lost(at=at), joined(gpus=4, at=at, life=str(at)))]
    assert figures(joined(gpus=4), *in_queue(at=0), *away, *LIFE[-2:])["ftf_rho_mean"] == 4


def alone_s(**fields: Any) -> float | None:  # noqa: ANN401 - arguments of isolated_s
    defaults = {"samples": 1200.0, "largest": 100, "single_gpu": {V100: 10.0}, "sharers": 1.0}
    return isolated_s(**{**defaults, **fields})


def test_the_isolated_run_mixes_the_types_by_their_shares() -> None:
    assert alone_s(single_gpu={V100: 10.0, K80: 2.0}, gpus={V100: 4, K80: 4}, sharers=2) == 1200 / (4 * 6)
    assert alone_s(single_gpu={V100: 10.0, K80: 2.0}, gpus={V100: 12, K80: 4}, sharers=4) == 1200 / (4 * 8)


def test_a_share_below_the_smallest_demand_means_taking_turns() -> None:
    assert alone_s(gpus={V100: 1}, sharers=4) == 1200 / (0.25 * 10)


def test_the_isolated_run_uses_no_more_gpus_than_the_job_wants() -> None:
    assert alone_s(largest=2, gpus={V100: 64}) == 1200 / (2 * 10)


def test_a_job_that_runs_nowhere_has_no_isolated_time() -> None:
    assert alone_s(gpus={K80: 64}) is None


def test_gpu_use_is_busy_over_available_time() -> None:
    facts = [
        joined(at=-500, gpus=4),  # before the first submission nothing is wasted
        joined("node-2", at=-500, gpus=4),
        lost("node-2", at=-400),
        *in_queue("a"),
        worker_started("a", at=0, gpu_indices=(0, 1)),
        started("a", at=0),
        worker_stopped("a", at=50),
        completed("a", at=50),
        *finished("b", sub=0, start=60, end=100),
    ]
    found = figures(*facts)
    assert (found["gru"], found["cru"]) == (0.25, 0.5)


def test_use_counts_running_workers_up_to_now() -> None:
    facts = [
        joined(gpus=4),
        joined("node-2", gpus=4),
        *in_queue("a", at=10),
        worker_started("a", at=20, gpu_indices=(0, 1)),
        started("a", at=20),
    ]
    found = summary(ledger_of(facts), now=110.0, round_s=100.0)
    assert (found["gru"], found["cru"], found["cru_slots"]) == (180 / 800, 90 / 200, 90 / 200)
    early = summary(ledger_of(facts), now=15.0)
    assert (early["gru"], early["cru"]) == (0, 0), "by a clock that is behind the facts"


def test_use_is_never_above_one_though_workers_end_after_their_job() -> None:
    facts = [
        joined(gpus=2),
        *in_queue("a"),
        worker_started("a", at=0, gpu_indices=(0, 1)),
        started("a", at=0),
        completed("a", at=50),
        worker_stopped("a", at=60),
    ]
    found = figures(*facts)
    assert (found["gru"], found["cru"]) == (1.0, 1.0)


def test_gpus_that_jobs_could_get_only_for_a_time_are_available_for_that_time() -> None:
    """Of four GPUs two are withheld from 50 to 90, and one of those trains on for ten seconds."""
    facts = [
        joined(gpus=4),
        *in_queue("a"),
        worker_started("a", at=0, gpu_indices=(0, 1)),
        started("a", at=0),
        GpusWithheld(at=50, node_id=NodeId(NODE), gpus={1: "hot", 2: "hot"}),
        worker_stopped("a", at=60),
        completed("a", at=60),
        joined(gpus=4, at=90, life="2"),
        *finished("b", sub=0, start=60, end=100),
    ]
    found = figures(*facts)
    assert found["gru"] == (2 * 50 + 10) / (4 * 50 + 2 * 40 + 4 * 10)


def test_use_is_of_the_whole_time_though_jobs_are_forgotten() -> None:
    facts: list[Event] = [joined(gpus=1)]
    for number, start in enumerate(range(0, 1000, 50)):
        name = f"j{number}"
        facts += [
            *in_queue(name, at=start),
            worker_started(name, at=start, gpu_indices=(0,), place=f"p{number}"),
            started(name, at=start, place=f"p{number}"),
            worker_stopped(name, at=start + 25, place=f"p{number}"),
            completed(name, at=start + 25, place=f"p{number}"),
        ]
    ledger = ledger_of(facts)
    before = summary(ledger, round_s=25.0)
    forget_jobs(ledger, keep=5)
    assert len(ledger.jobs) == 5
    after = summary(ledger, round_s=25.0)
    names = ("gru", "cru", "cru_slots")
    assert [after[name] for name in names] == [before[name] for name in names]
    assert after["gru"] == pytest.approx(500 / 975)


def test_two_facts_about_a_nodes_gpus_in_the_wrong_order_count_no_time_twice() -> None:
    gpus = [GpusWithheld(at=at, node_id=NodeId(NODE), gpus=gone) for at, gone in ((20, {0: "x"}), (18, {}))]
    known = ledger_of([joined(gpus=4), *gpus, lost(at=30)]).nodes[NodeId(NODE)]
    assert known.up == [(0, 20, 4, V100), (20, 20, 3, V100), (20, 30, 4, V100)]


def test_a_node_that_is_lost_again_and_again_keeps_few_intervals_and_the_same_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    facts: list[Event] = [joined(gpus=4)]
    for at in range(10, 90, 10):
        facts += [lost(at=at), joined(gpus=4 - at // 30, at=at + 3), *(in_queue(at=45) if at == 40 else ())]
    facts += [worker_started(at=90, gpu_indices=(0,)), started(at=90)]
    every = ledger_of(facts)
    monkeypatch.setattr("shared.domain.ledger.cluster.INTERVALS_KEPT", 2)
    some = ledger_of(facts)
    assert [len(ledger.nodes[NODE].up) for ledger in (every, some)] == [8, 2]
    assert [gru(some, 100), cru(some, 100)] == [pytest.approx(of(every, 100)) for of in (gru, cru)]


def test_a_node_that_comes_back_with_other_gpus_had_the_old_ones_before() -> None:
    facts = [
        joined(gpus=8),
        *in_queue("a"),
        worker_started("a", at=0, gpu_indices=(0, 1, 2, 3)),
        started("a", at=0),
        worker_stopped("a", at=50),
        completed("a", at=100),
        joined(gpus=2, at=50, life="2"),
    ]
    assert figures(*facts)["gru"] == 200 / (8 * 50 + 2 * 50)


@pytest.mark.parametrize(("round_s", "use"), [(60.0, 50 / 120), (100.0, 0.5), (None, None)])
def test_use_by_rounds_counts_the_last_one_in_full(round_s: float | None, use: float | None) -> None:
    """The node is busy for 50 s of 100."""
    facts = [
        joined(gpus=1),
        *in_queue("a"),
        worker_started("a", at=0, gpu_indices=(0,)),
        started("a", at=0),
        worker_stopped("a", at=50),
        completed("a", at=50),
        *finished("b", sub=0, start=60, end=100),
    ]
    assert summary(ledger_of(facts), round_s=round_s)["cru_slots"] == use


def test_rounds_are_not_used_beyond_their_end_where_the_last_workers_end_later() -> None:
    facts = [
        joined(gpus=2),
        *in_queue("a"),
        worker_started("a", at=0),
        started("a", at=0),
        completed("a", at=100),
        worker_stopped("a", at=130),
    ]
    assert summary(ledger_of(facts), round_s=100)["cru_slots"] == 1.0


def test_gpus_of_a_lost_node_are_not_available() -> None:
    facts = [
        joined(gpus=2),
        joined("node-2", gpus=2),
        *in_queue("a"),
        worker_started("a", at=0, gpu_indices=(0, 1)),
        started("a", at=0),
        lost("node-2", at=50),
        worker_stopped("a", at=100),
        completed("a", at=100),
    ]
    assert figures(*facts)["gru"] == pytest.approx(200 / (200 + 100))


@pytest.mark.parametrize("samples", [1e-320, 1e-160])
def test_a_job_of_no_length_has_no_fairness_and_spoils_no_figure(samples: float) -> None:
    short = submitted("short", samples=samples)
    life = [*in_queue("short")[1:], started("short", at=20), completed("short", at=70, samples_done=samples)]
    others = [*in_queue("a"), started("a", at=30), completed("a", at=90)]
    found = figures(joined(gpus=4), short, *life, *others)
    assert found["ftf_rho_mean"] == found["ftf_rho_max"], "it is that of the other job"
    assert found["jain_equal"] == 1.0


@pytest.mark.parametrize("seconds", [50, 0.5])
def test_cluster_throughput_is_in_units_of_single_gpus(seconds: float) -> None:
    """1005 samples at 10/s a GPU."""
    end = completed("a", at=100 + seconds, samples_done=1005)
    found = figures(*in_queue("a", at=100), started("a", at=100), end)
    assert found["cluster_throughput_mean"] == pytest.approx(1005 / 10 / seconds)


def test_the_throughput_is_not_known_before_a_running_job_has_saved_anything() -> None:
    """Ten minutes into a real job `status` said 0."""
    running = [*in_queue("a", at=100), started("a", at=100)]
    assert figures(*running, submitted("b", at=150))["cluster_throughput_mean"] is None
    saved = checkpointed("a", at=150, samples_done=1005)
    assert figures(*running, saved)["cluster_throughput_mean"] == pytest.approx(1005 / 10 / 50)
    assert figures(*running, cancelled("a", at=150))["cluster_throughput_mean"] == 0


def test_the_present_cluster_throughput_is_the_planned_one_of_running_jobs() -> None:
    speeds = {V100: 10.0, K80: 2.0}  # 6 on the mean
    facts = [submitted("a"), *in_queue("a")[1:2], queued("a", single_gpu=speeds), *in_queue("b")]
    fast = msgspec.structs.replace(placement("a"), throughput=33.0)
    running = [*facts, plan(fast), started("a", at=5)]
    in_two_steps = [*facts[:2], queued("a", single_gpu={V100: 10.0}), type_estimated("a", single_gpu=2.0)]
    assert cluster_throughput_now(ledger_of([*in_two_steps, *running[3:]])) == pytest.approx(33 / 6)
    assert cluster_throughput_now(ledger_of(running)) == pytest.approx(33 / 6)
    assert cluster_throughput_now(ledger_of([*facts, started("a", at=5)])) == 0, "its plan is not known"
    assert cluster_throughput_now(ledger_of([*running, completed("a", at=9)])) == 0


@pytest.mark.parametrize("kept", [0, 1, 2, 3])
def test_figures_about_runs_count_those_that_are_not_kept(kept: int) -> None:
    gang = Gang.of({NodeId("node-1"): 1, NodeId("node-2"): 1}, Forked(shares=(0.5, 0.5)))
    facts: list[Event] = [joined(), joined("node-2"), *in_queue()]
    for number, (start_s, samples) in enumerate(
        [(9.0, (64.0, 64.0)), (2.0, (96.0, 32.0)), (4.0, (160.0, 0.0))]
    ):
        at, place, nodes = 100.0 * number, f"pl-{number}", ("node-1", "node-2")
        orders = [start_ordered(at=at, place=place, node_id=node, until=500.0) for node in nodes]
        ends = [
            worker_stopped(at=at + 50, place=place, node_id=node, outcome=Outcome.QUOTA, samples_done=done)
            for node, done in zip(nodes, samples, strict=True)
        ]
        start = started(at=at + start_s, place=place, on=gang)
        facts += [*orders, start, *ends, preempted(at=at + 50, place=place, reason=PreemptReason.MERGE)]
    ledger = ledger_of(facts)
    figures_of_runs = ("switch_s_mean", "merges", "merge_steps_mean", "merge_steps_max", "copy_share_max")
    whole = [summary(ledger)[name] for name in figures_of_runs]
    drop_runs(ledger.jobs[JOB], keep=kept)
    assert len(ledger.jobs[JOB].runs) == kept
    assert [summary(ledger)[name] for name in figures_of_runs] == whole
    assert whole == [3.0, 2.0, 1.0, 1.5, 0.75]


def test_restarts_and_lost_work_are_summed_over_jobs() -> None:
    """a loses 30 s on 4 GPUs, b 20 s on one."""
    facts = [
        *in_queue("a"),
        *in_queue("b"),
        started("a", at=0, on=config(node_1=4)),
        started("b", at=10, place="pl-2"),
        preempted("a", at=30, reason=PreemptReason.NODE_LOST),
        preempted("b", at=30, place="pl-2", reason=PreemptReason.NODE_LOST),
    ]
    found = figures(*facts)
    assert (found["restarts"], found["lost_work_gpu_s"]) == (2, 4 * 30 + 20)


def test_plans_are_counted_by_the_stage_that_made_them() -> None:
    greedy = [plan(decision_s=seconds, stage=Stage.GREEDY, gap=0.2) for seconds in (3, 4, 5)]
    ledger = ledger_of([plan(decision_s=1), *greedy])
    found = plan_figures(ledger)
    assert (found.plans, found.stages) == (4, {"greedy": 3, "optimal": 1})
    every = summary(ledger)
    for of in (found.decision_s_p50, found.decision_s_p99, found.gap_max), (
        every["decision_s_p50"], every["decision_s_p99"], every["gap_max"],
    ):  # fmt: skip
        assert of == pytest.approx((3.5, 4.97, 0.2))


def test_jobs_are_counted_in_all_and_by_state() -> None:
    assert job_counts(ledger_of([*two_jobs(), submitted("c")])) == {
        "submitted": 3,
        "profiling": 1,
        "completed": 2,
    }


def test_jobs_that_were_forgotten_are_counted_still() -> None:
    ledger = ledger_of([*two_jobs(), submitted("c")])
    forget_jobs(ledger, keep=1)
    assert list(ledger.jobs) == ["b", "c"]
    assert job_counts(ledger) == {"submitted": 3, "profiling": 1, "completed": 2}


def test_the_curve_of_busy_gpus_steps_with_the_runs() -> None:
    facts = [
        *in_queue("a"),
        started("a", at=10, on=config(node_1=4)),
        preempted("a", at=20),
        started("a", at=30, place="pl-2"),
        completed("a", at=40, place="pl-2"),
    ]
    assert busy_gpus_curve(ledger_of(facts), 10) == [(0, 0), (10, 4), (20, 0), (30, 1), (40, 0)]


def test_the_curve_of_throughput_counts_samples_that_were_kept() -> None:
    facts = [*in_queue("a"), started("a", at=0), preempted("a", at=20, samples_done=400)]
    assert throughput_curve(ledger_of(facts), 10) == [(0, 2), (10, 2), (20, 0)]


def test_an_empty_ledger_has_empty_curves() -> None:
    assert [curve(Ledger(), 10) for curve in (busy_gpus_curve, throughput_curve)] == [[], []]


def test_percentiles_lie_between_the_closest_ranks() -> None:
    four = [8, 1, 4, 2]
    shares = {0.0: 1, 0.1: 1.3, 0.5: 3, 0.9: 6.8, 1.0: 8}
    assert {share: percentile(four, share) for share in shares} == pytest.approx(shares)
    assert percentile([7], 0.99) == 7
    assert percentile([], 0.5) is None


def test_a_distribution_rises_to_one_with_a_point_a_value() -> None:
    assert cdf([3, 1, 3, 2]) == [(1, 0.25), (2, 0.5), (3, 1.0)]


@given(st.lists(st.floats(min_value=0.01, max_value=1e6), min_size=1))
def test_jains_index_lies_between_one_nth_and_one(values: list[float]) -> None:
    index = jain(values)
    assert index is not None
    assert 1 / len(values) - 1e-9 <= index <= 1 + 1e-9


@pytest.mark.benchmark
def test_folding_a_hundred_thousand_facts() -> None:
    facts = [
        fact
        for number in range(9_100)
        for fact in whole_life(f"job-{number}", at=float(number), place=f"pl-{number}")
    ]
    began = time.perf_counter()
    ledger = ledger_of(facts)
    folded = time.perf_counter()
    summary(ledger)
    print(f"\n{len(facts)} facts in {folded - began:.2f} s, summary {time.perf_counter() - folded:.3f} s")
    assert len(ledger.jobs) == 9_100
