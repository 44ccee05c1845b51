"""The queues of 2D-LAS: when a job is demoted and promoted, and who is served first."""

import pytest

from schemas.ids import JobId
from services.planner.policies.tiresias.gittins import AuthorsGittins, Gittins
from services.planner.policies.tiresias.queues import (
    JobFigures,
    Queues,
    Rules,
    advanced,
    in_order,
    next_move_in,
    settled,
)

A, B, C = JobId("a"), JobId("b"), JobId("c")
RULES = Rules(thresholds=(100.0, 300.0))
KNOB = Rules(thresholds=(100.0, 300.0), promote_knob=2.0)
HALF = Rules(thresholds=(100.0, 300.0), promote_knob=0.5)
AUTHORS = Rules(thresholds=(100.0, 300.0), promote_knob=2.0, authors=True)


def seen(held_s: float = 0.0, *, gpus: int = 1, waited_s: float = 0.0, running: bool = False) -> JobFigures:
    return JobFigures(
        gpus=gpus,
        submitted_at=0.0,
        held_s=held_s,
        held_gpu_s=held_s * gpus,
        waited_s=waited_s,
        running=running,
    )


def queues(jobs: dict[JobId, JobFigures], rules: Rules = RULES, before: Queues = ()) -> Queues:
    return advanced(before, jobs, rules)


def names(lines: Queues) -> list[list[str]]:
    return [[own.job_id for own in line] for line in lines]


@pytest.mark.parametrize(
    ("held_s", "gpus", "queue"), [(0, 1, 0), (99, 1, 0), (100, 1, 1), (50, 2, 1), (299, 1, 1), (75, 4, 2)]
)
def test_a_job_stands_in_the_queue_of_its_gpu_time(held_s: float, gpus: int, queue: int) -> None:
    assert names(queues({A: seen(held_s, gpus=gpus, running=True)}))[queue] == ["a"]


def test_without_gpus_service_is_time() -> None:
    rules = Rules(thresholds=(100.0,), by_gpus=False)
    assert names(queues({A: seen(60.0, gpus=8, running=True)}, rules)) == [["a"], []]


def test_the_authors_demote_one_queue_at_a_time() -> None:
    job = {A: seen(400.0, running=True)}
    once = queues(job, AUTHORS)
    assert names(once) == [[], ["a"], []]
    assert names(queues(job, AUTHORS, once)) == [[], [], ["a"]]


def test_running_jobs_come_before_waiting_ones() -> None:
    three = queues({A: seen(), B: seen(), C: seen()})
    assert names(settled(three, {C})) == [["c", "a", "b"], [], []]


def test_jobs_stand_in_a_new_queue_in_the_order_in_which_they_came_to_it() -> None:
    """They passed 100 GPU·s 10, 20 and 20 s ago: no plan was made then, since nobody waited."""
    jobs = {A: seen(110.0, running=True), B: seen(120.0, running=True), C: seen(40.0, gpus=5, running=True)}
    assert names(queues(jobs)) == [[], ["b", "c", "a"], []]


def test_a_job_that_ended_is_forgotten_and_a_new_one_comes_last() -> None:
    two = queues({A: seen(), B: seen()})
    assert names(queues({B: seen(), C: seen()}, before=two)) == [["b", "c"], [], []]


def test_a_job_that_waited_long_enough_for_its_running_time_goes_back_to_the_first_queue() -> None:
    ran = queues({A: seen(150.0, running=True)}, KNOB)
    waits = queues({A: seen(150.0, waited_s=299.0)}, KNOB, ran)
    assert names(waits)[1] == ["a"]
    assert next_move_in(waits, {A: seen(150.0, waited_s=299.0)}, (), KNOB) == 1.0
    rises = queues({A: seen(150.0, waited_s=300.0)}, KNOB, waits)
    assert names(rises)[0] == ["a"]


def test_service_begins_to_count_again_with_a_promotion() -> None:
    ran = queues({A: seen(150.0, running=True)}, KNOB)
    rises = queues({A: seen(150.0, waited_s=300.0)}, KNOB, ran)
    runs = queues({A: seen(249.0, waited_s=300.0, running=True)}, KNOB, rises)
    assert names(runs)[0] == ["a"]
    assert next_move_in(runs, {A: seen(249.0, waited_s=300.0, running=True)}, {A}, KNOB) == 1.0


@pytest.mark.parametrize(("rules", "waited_s"), [(KNOB, 800.0), (HALF, 200.0)])
def test_a_job_goes_back_from_the_last_queue_too(rules: Rules, waited_s: float) -> None:
    ran = queues({A: seen(400.0, running=True)}, rules)
    waits = {A: seen(400.0, waited_s=waited_s - 10.0)}
    assert names(ran)[2] == names(queues(waits, rules, ran))[2] == ["a"]
    assert next_move_in(queues(waits, rules, ran), waits, (), rules) == 10.0
    assert names(queues({A: seen(400.0, waited_s=waited_s)}, rules, ran))[0] == ["a"]


def test_a_second_promotion_counts_the_running_time_since_the_first() -> None:
    """150 s of running and 300 s of waiting; then 100 s and 200 s."""
    lines: Queues = ()
    for step, queue in [
        (seen(150.0, running=True), 1),
        (seen(150.0, waited_s=300.0), 0),
        (seen(250.0, waited_s=300.0, running=True), 1),
        (seen(250.0, waited_s=499.0), 1),
        (seen(250.0, waited_s=500.0), 0),
    ]:
        lines = queues({A: step}, KNOB, lines)
        assert names(lines)[queue] == ["a"]


@pytest.mark.parametrize(("rules", "since_s"), [(KNOB, 150.0), (AUTHORS, 150.0), (HALF, 50.0)])
def test_waiting_before_the_first_run_does_not_count(rules: Rules, since_s: float) -> None:
    """110 s of running call for 220 s of waiting, or for 55 s; it waited 100 s before."""
    lines: Queues = ()
    for step in [
        seen(waited_s=100.0),
        seen(110.0, waited_s=100.0, running=True),
        seen(110.0, waited_s=100.0 + since_s),
    ]:
        lines = queues({A: step}, rules, lines)
    assert names(lines)[1] == ["a"]


@pytest.mark.parametrize(("rules", "queue"), [(RULES, 1), (AUTHORS, 0)])
def test_a_job_that_has_just_stopped_is_demoted_but_not_with_the_authors(rules: Rules, queue: int) -> None:
    assert names(queues({A: seen(150.0)}, rules))[queue] == ["a"]


def test_of_those_that_pass_a_threshold_at_one_time_the_earlier_submission_is_first() -> None:
    """Though the later one is before it in the first queue, since it runs."""
    two = settled(queues({A: seen(50.0), B: seen(50.0)}), {B})
    assert names(two)[0] == ["b", "a"]
    jobs = {A: seen(110.0, running=True), B: seen(110.0, running=True)}
    assert names(queues(jobs, before=two))[1] == ["a", "b"]


def test_jobs_stand_in_the_third_queue_by_when_they_came_to_that_one() -> None:
    """They passed its 500 GPU·s 10 and 10.5 s ago."""
    rules = Rules(thresholds=(100.0, 300.0, 500.0))
    jobs = {A: seen(510.0, running=True), B: seen(135.5, gpus=4, running=True)}
    assert names(queues(jobs, rules))[3] == ["b", "a"]


def test_without_gpus_jobs_stand_in_the_order_of_time() -> None:
    rules = Rules(thresholds=(100.0,), by_gpus=False)
    jobs = {B: seen(105.0, running=True), A: seen(110.0, gpus=8, running=True)}
    assert names(queues(jobs, rules))[1] == ["a", "b"]


def test_with_the_authors_jobs_come_to_a_queue_in_the_order_of_submission() -> None:
    jobs = {A: seen(110.0, running=True), B: seen(120.0, running=True)}
    assert names(queues(jobs, AUTHORS))[1] == ["a", "b"]


@pytest.mark.parametrize(("held_s", "order"), [(100.0, ["a", "b"]), (100.5, ["b", "a"])])
def test_a_job_that_has_stopped_comes_to_a_queue_only_now(held_s: float, order: list[str]) -> None:
    assert names(queues({A: seen(150.0), B: seen(held_s, running=True)}))[1] == order


def test_waiting_in_the_first_queue_makes_no_service_undone() -> None:
    lines: Queues = ()
    for step in [
        seen(50.0, running=True),
        seen(50.0, waited_s=500.0),
        seen(110.0, waited_s=500.0, running=True),
    ]:
        lines = queues({A: step}, KNOB, lines)
    assert names(lines)[1] == ["a"]


def test_a_running_job_is_not_promoted() -> None:
    """It waited long enough, but no plan was made before it ran again."""
    ran = queues({A: seen(150.0, running=True)}, AUTHORS)
    assert names(queues({A: seen(150.0, waited_s=350.0, running=True)}, AUTHORS, ran))[1] == ["a"]


@pytest.mark.parametrize(
    ("rules", "waited_s", "queue"),
    [
        (KNOB, 300.2, 1),
        (KNOB, 350.0, 0),
        (AUTHORS, 300.2, 0),
        (AUTHORS, 299.9, 1),
        (HALF, 75.0, 1),
        (HALF, 76.0, 0),
    ],
)
def test_how_long_a_job_has_to_wait_and_that_the_authors_count_whole_seconds(
    rules: Rules, waited_s: float, queue: int
) -> None:
    """After 150.25 s of running, twice or half as long."""
    ran = queues({A: seen(150.25, running=True)}, rules)
    assert names(queues({A: seen(150.25, waited_s=waited_s)}, rules, ran))[queue] == ["a"]


def test_what_is_overdue_is_not_waited_for() -> None:
    line = queues({A: seen(50.0, running=True)})
    assert next_move_in(line, {A: seen(100.0, running=True)}, {A}, RULES) is None
    assert next_move_in(line, {A: seen(120.0, running=True)}, {A}, RULES) is None


@pytest.mark.parametrize(("rules", "queue"), [(KNOB, 1), (AUTHORS, 0)])
def test_waiting_counts_from_the_last_run_but_with_the_authors_from_the_last_promotion(
    rules: Rules, queue: int
) -> None:
    """It ran 150 s, waited 200 s, ran 10 s and waited 120 s."""
    lines: Queues = ()
    for step in [
        seen(0.0),
        seen(150.0, running=True),
        seen(150.0, waited_s=200.0),
        seen(160.0, waited_s=200.0, running=True),
        seen(160.0, waited_s=320.0),
    ]:
        lines = queues({A: step}, rules, lines)
    assert names(lines)[queue] == ["a"]


@pytest.mark.parametrize(("rules", "delay_s"), [(RULES, 15.0), (AUTHORS, 23.0)])
def test_the_next_demotion_is_waited_for_and_with_the_authors_too_long(rules: Rules, delay_s: float) -> None:
    job = {A: seen(10.0, gpus=4, running=True)}
    assert next_move_in(queues(job, rules), job, {A}, rules) == delay_s


@pytest.mark.parametrize(("by_gpus", "delay_s"), [(True, 14.5), (False, 89.5)])
def test_the_next_demotion_by_service_or_by_time(by_gpus: bool, delay_s: float) -> None:  # noqa: FBT001
    rules, job = Rules(thresholds=(100.0, 300.0), by_gpus=by_gpus), {A: seen(10.5, gpus=4, running=True)}
    assert next_move_in(queues(job, rules), job, {A}, rules) == delay_s


def test_no_job_is_promoted_from_the_first_queue() -> None:
    job = {A: seen(50.0, waited_s=10.0)}
    assert next_move_in(queues({A: seen(50.0, running=True)}, KNOB), job, (), KNOB) is None


def test_without_running_jobs_and_promotion_no_queue_changes() -> None:
    job = {A: seen(150.0)}
    assert next_move_in(queues(job), job, (), RULES) is None


def test_queues_of_other_thresholds_begin_again() -> None:
    job = {A: seen(150.0, running=True)}
    assert names(queues(job, Rules(thresholds=(100.0,)), queues(job))) == [[], ["a"]]


# ---- Gittins


def test_the_index_by_hand() -> None:
    """Of X = 10 or 100 with a quantum of 20: a new job ends within it with P = ½ for (10 + 20) / 2."""
    gittins = Gittins([10.0, 100.0], 20.0)
    assert gittins.index(0.0) == pytest.approx(0.5 / 15.0)
    assert gittins.index(10.0) == 0.0  # 90 more: it will not end within a quantum
    assert gittins.index(90.0) == pytest.approx(1.0 / 10.0)
    assert gittins.index(100.0) == 0.0


def test_without_samples_all_are_equal() -> None:
    assert Gittins([], 20.0).index(5.0) == AuthorsGittins([], 20.0).index(5.0) == 0.0


def test_the_authors_index_counts_whole_services_and_stands_still_between_samples() -> None:
    gittins = AuthorsGittins([10.0, 30.0, 100.0], 25.0)
    assert gittins.index(12.0) == gittins.index(29.0) == round(0.5 * 1e6 / ((30 + 25) / 2), 4)


def test_within_a_queue_the_larger_index_is_first_and_ties_go_to_the_smaller_id() -> None:
    jobs = {A: seen(50.0), C: seen(5.0), B: seen(5.0)}
    ranked = in_order(queues(jobs), jobs, RULES, rank=lambda attained: -attained)
    assert names(ranked)[0] == ["b", "c", "a"]
