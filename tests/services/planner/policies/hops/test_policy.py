import numpy as np
import pytest
from msgspec.structs import replace

from schemas.plans import PlanKind, Stage, Waiting
from services.planner.policies.contract.configurations import Configurations, configurations_for
from services.planner.policies.contract.decision import Decision
from services.planner.policies.contract.estimates import Estimated
from services.planner.policies.contract.pools import OURS
from services.planner.policies.contract.view import ViewJob
from services.planner.policies.hops.leftover import Leftover, left_in_place
from services.planner.policies.hops.policy import TIE, Hops, HopsOptions, gains
from tests.services.planner.planner_builders import (
    FAST,
    SLOW,
    chosen,
    decide,
    job,
    linear,
    node,
    nodes,
    place_on,
    present,
    view,
)


def reasons(decision: Decision) -> dict[str, Waiting]:
    return {left.job_id: left.reason for left in decision.left}


def test_the_gain_is_throughput_over_the_jobs_smallest() -> None:
    wanted = configurations_for([job("x", (1, 2), sensitivity=9.0), job("y", (4,))], nodes(8), 1.4)
    assert gains(wanted, np.array([5.0, 20.0, 7.0])).tolist() == [1.0, 4.0, 1.0]


def test_a_configuration_without_an_estimate_has_no_gain_and_spoils_none() -> None:
    wanted = configurations_for([job("x", (1, 2, 4), sensitivity=9.0)], nodes(8), 1.4)
    assert np.isnan(gains(wanted, np.array([5.0, np.nan, 10.0]))).tolist() == [False, True, False]


def test_the_objective_is_the_sum_of_weight_times_gain() -> None:
    one = job(demand=(1, 2), wait_s=30.0, age_s=100.0, priority=2.0)
    decision = decide("hops", view([one], nodes(8)))
    assert decision.objective == pytest.approx(2.0 * 0.3 * 2.0)  # user's factor · LR · gain of 2 GPUs
    assert (decision.stage, decision.gap) == (Stage.OPTIMAL, 0.0)
    assert decision.configurations == 2


def test_a_job_that_waited_longer_gets_the_gpus() -> None:
    seen = view([job("new", (8,), wait_s=1.0), job("old", (8,), wait_s=50.0)], nodes(8))
    assert chosen(decide("hops", seen)) == {"old": place_on(a0=8)}


def test_the_faster_type_goes_to_the_job_that_gains_more_from_it() -> None:
    cluster = [node("a0", 1), node("b0", 1, gpu_type=SLOW)]
    pair = [job(name, (1,), gpu_types=(FAST, SLOW)) for name in ("flat", "steep")]

    def estimator(wanted: Configurations) -> Estimated:
        fast = wanted.node == 0
        speed = np.where(fast, np.where(wanted.job == 1, 40.0, 11.0), 10.0)
        return Estimated(throughput=speed, layer=np.zeros(len(wanted), dtype=np.uint8))

    decision = decide("hops", view(pair, cluster), estimator)
    assert chosen(decision) == {"flat": place_on(b0=1), "steep": place_on(a0=1)}


def test_every_job_left_out_has_its_reason() -> None:
    def estimator(wanted: Configurations) -> Estimated:
        known = linear(wanted)
        unknown = wanted.job == wanted.jobs.index(job("unknown").job_id)
        return Estimated(throughput=np.where(unknown, np.nan, known.throughput), layer=known.layer)

    jobs = [
        job("runs", (4,), wait_s=99.0),
        job("unknown", (1,), wait_s=98.0),
        job("nowhere", (1,), wait_s=97.0, gpu_types=(SLOW,)),
        job("outweighed", (4,), wait_s=0.1),
        job("outside", (1,), wait_s=0.0),
    ]
    decision = decide("hops", view(jobs, nodes(7)), estimator)
    assert reasons(decision) == {
        "unknown": Waiting.NO_ESTIMATE,
        "nowhere": Waiting.NO_CONFIGURATION,
        "outweighed": Waiting.OUTWEIGHED,
        "outside": Waiting.OUTSIDE_WINDOW,
    }


def sensitive_head() -> list[ViewJob]:
    """A job in the window that cannot use the fragments, and one behind it that can."""
    return [
        job("sensitive", (4,), wait_s=50.0, sensitivity=2.0),
        job("low", (4,), wait_s=1.0, sensitivity=1.0),
    ]


def test_a_fragment_plan_fills_fragments_with_a_job_of_low_sensitivity() -> None:
    seen = view(sensitive_head(), nodes(2, 2), kind=PlanKind.FRAGMENT)
    assert chosen(decide("hops", seen)) == {"low": place_on(a0=2, a1=2)}


def test_a_first_plan_does_not_reach_behind_the_window() -> None:
    decision = decide("hops", view(sensitive_head(), nodes(2, 2)))
    assert chosen(decision) == {}
    assert reasons(decision)["low"] == Waiting.OUTSIDE_WINDOW


def test_hops_asks_to_be_called_when_the_queue_is_refreshed_if_that_could_admit_a_job() -> None:
    decision = decide("hops", view(sensitive_head(), nodes(2, 2), at=100.0))
    assert decision.again_at == 130.0


def test_hops_does_not_ask_to_be_called_when_too_few_gpus_are_idle() -> None:
    seen = view([job("runs", (8,), wait_s=9.0), job("waits", (1,), wait_s=0.0)], nodes(8))
    assert decide("hops", seen).again_at is None


def test_hops_does_not_ask_to_be_called_for_a_job_that_fits_on_no_nodes() -> None:
    seen = view([job("sensitive", (4,), sensitivity=2.0)], nodes(2, 2), kind=PlanKind.FRAGMENT)
    assert decide("hops", seen).again_at is None


def test_a_running_job_is_not_moved_for_nothing() -> None:
    seen = view([job("x", (4,), present=present(a2=4))], nodes(8, 8, 8))
    assert chosen(decide("hops", seen)) == {"x": place_on(a2=4)}


def test_a_running_job_moves_for_more_than_moving_costs() -> None:
    seen = view([job("x", (2, 4), present=present(a2=2))], nodes(8, 8, 8))
    [place] = chosen(decide("hops", seen)).values()
    assert sum(place.values()) == 4


def test_moving_costs_its_share_of_the_round() -> None:
    seen = view([job("x", (2, 4), present=present(a0=2), wait_s=50.0, age_s=100.0)], nodes(8))
    objective = decide("hops", seen, moving_cost_s=36.0).objective
    assert objective == pytest.approx(0.5 * 2.0 * 0.9)  # 36 of 360 s
    free = decide("hops", seen, moving_cost_s=0.0).objective
    assert free == pytest.approx(0.5 * 2.0 * (1.0 - TIE))


def test_moving_costs_half_the_share_of_a_round_twice_as_long() -> None:
    seen = view([job("x", (2, 4), present=present(a0=2), wait_s=50.0, age_s=100.0)], nodes(8))
    objective = decide("hops", replace(seen, round_s=720.0), moving_cost_s=36.0).objective
    assert objective == pytest.approx(0.5 * 2.0 * 0.95)  # 36 of 720 s


def test_where_moving_is_free_a_job_moves_for_two_percent() -> None:
    def estimator(wanted: Configurations) -> Estimated:
        speed = np.where(wanted.node == 1, 10.2, 10.0)
        return Estimated(throughput=speed, layer=np.zeros(len(wanted), dtype=np.uint8))

    seen = view([job("x", present=present(a0=1))], nodes(1, 1))
    assert chosen(decide("hops", seen, estimator, moving_cost_s=0.0)) == {"x": place_on(a1=1)}


def test_an_empty_cluster_and_an_empty_queue_give_an_empty_plan() -> None:
    assert decide("hops", view([], nodes(8))).choices == ()
    assert reasons(decide("hops", view([job("x")], ()))) == {"x": Waiting.NO_CONFIGURATION}


def test_a_job_that_fits_nowhere_keeps_no_fragment_from_the_next() -> None:
    head = job("head", (4,), wait_s=90.0, sensitivity=2.0)
    decision = decide("hops", view([head, job("next", (1,))], nodes(1, 1, 1), kind=PlanKind.FRAGMENT))
    assert list(chosen(decision)) == ["next"]
    assert reasons(decision) == {"head": Waiting.NO_CONFIGURATION}


@pytest.mark.parametrize(("demand", "again"), [((3,), True), ((2,), True), ((3, 8), True), ((4,), False)])
def test_hops_asks_to_be_called_for_what_the_rest_of_the_gpus_would_do(
    demand: tuple[int, ...],
    again: bool,  # noqa: FBT001
) -> None:
    """Of five idle GPUs `placed` gets two; `wide` has a place on an empty node only."""
    line = [
        job("placed", (1, 2), wait_s=90.0, sensitivity=2.0),
        job("wide", (4,), wait_s=50.0, sensitivity=2.0),
        job("outside", demand, wait_s=1.0),
    ]
    decision = decide("hops", view(line, nodes(1, 1, 3)))
    assert chosen(decision) == {"placed": place_on(a2=2)}
    assert (decision.again_at is not None) == again


def test_a_standing_is_what_the_placement_is_worth_and_what_staying_would_have_been() -> None:
    line = [
        job("moves", (1, 2), present=present(a0=1), wait_s=30.0, priority=2.0),
        job("waits", (8,), wait_s=20.0),
        job("outside", (1,), wait_s=10.0),
    ]
    decision = decide("hops", view(line, nodes(8)), moving_cost_s=36.0)
    assert chosen(decision) == {"moves": place_on(a0=2)}
    stood: dict[str, object] = {
        job_id: (one.priority, one.gain, one.stay) for job_id, one in decision.standings.items()
    }
    assert stood == {
        "moves": (pytest.approx(0.3), pytest.approx(2.0 * 0.3 * 2.0 * 0.9), pytest.approx(2.0 * 0.3)),
        "waits": (pytest.approx(0.2), pytest.approx(0.2), None),
        "outside": (pytest.approx(0.1), None, None),
    }


def test_a_restart_of_more_than_a_round_leaves_no_gain_and_takes_none() -> None:
    def estimator(wanted: Configurations) -> Estimated:
        known = linear(wanted)
        return Estimated(throughput=np.where(wanted.gpus == 1, np.nan, known.throughput), layer=known.layer)

    seen = view([job("x", (1, 2), present=present(a0=1))], nodes(8))
    decision = decide("hops", seen, estimator, moving_cost_s=720.0)
    assert chosen(decision) == {}
    [standing] = decision.standings.values()
    assert (standing.gain, standing.stay) == (0.0, None)


def test_a_move_costs_the_restart_on_the_type_it_goes_to() -> None:
    cluster = [node("a0", 1), node("b0", 1, gpu_type=SLOW)]
    runs = job("x", gpu_types=(FAST, SLOW), present=present(a0=1), wait_s=50.0)

    def estimator(wanted: Configurations) -> Estimated:
        speed = np.where(wanted.node == 1, 20.0, 10.0)
        return Estimated(throughput=speed, layer=np.zeros(len(wanted), dtype=np.uint8))

    seen = replace(view([runs], cluster), restarts_s={runs.workload: {FAST: 36.0, SLOW: 72.0}})
    decision = decide("hops", seen, estimator)
    assert chosen(decision) == {"x": place_on(b0=1)}
    assert decision.objective == pytest.approx(0.5 * 2.0 * 0.8)  # 72 of 360 s


@pytest.mark.parametrize(("moving_cost_s", "offered"), [(None, True), (1.0, True), (0.0, False)])
def test_where_moving_costs_something_a_job_may_stay_where_no_rule_would_put_it(
    moving_cost_s: float | None,
    offered: bool,  # noqa: FBT001
) -> None:
    runs = job("x", (2,), present=present(a0=1, a1=1), sensitivity=2.0)
    wanted = Hops(HopsOptions(moving_cost_s=moving_cost_s)).wants(view([runs], nodes(8, 8)))
    places = [wanted.at(row) for row in range(len(wanted))]
    assert (place_on(a0=1, a1=1) in places) == offered


def test_a_job_that_fits_nowhere_keeps_no_gpu_from_the_next_unless_it_has_them() -> None:
    """Sixteen GPUs are more than either type has."""
    cluster = [node("a0"), node("b0", gpu_type=SLOW)]
    waits = job("head", (16,), wait_s=90.0, gpu_types=(FAST, SLOW))
    behind = job("next", (8,), gpu_types=(FAST, SLOW))
    assert list(chosen(decide("hops", view([waits, behind], cluster)))) == ["next"]
    runs = replace(waits, present=present(a0=8, b0=8))
    assert chosen(decide("hops", view([runs, behind], cluster))) == {"head": place_on(a0=8, b0=8)}


# ---- behind the window

HEAD = job("head", (8,), wait_s=90.0)
"""it fills the window of `SIX_IDLE`, and does not fit there"""
SIX_IDLE = nodes(6)
"""a node of eight GPUs, two of which are not the plan's"""


def behind(name: str, wait_s: float, **fields: object) -> ViewJob:
    return job(name, (2,), wait_s=wait_s, **fields)


def test_a_running_job_keeps_gpus_that_nobody_else_would_get() -> None:
    decision = decide("hops", view([HEAD, behind("runs", 1.0, present=present(a0=2))], SIX_IDLE))
    assert chosen(decision) == {"runs": place_on(a0=2)}
    assert [(one.throughput, one.gang) for one in decision.choices] == [(10.0, present(a0=2).gang)]
    assert reasons(decision) == {"head": Waiting.NO_CONFIGURATION}


def test_where_moving_is_free_a_job_behind_the_window_is_stopped_as_in_the_paper() -> None:
    seen = view([HEAD, behind("runs", 1.0, present=present(a0=2))], SIX_IDLE)
    decision = decide("hops", seen, moving_cost_s=0.0)
    assert chosen(decision) == {}
    assert reasons(decision)["runs"] == Waiting.OUTSIDE_WINDOW


def test_gpus_that_a_more_urgent_waiting_job_could_use_are_kept_for_it() -> None:
    runs = [behind(f"runs-{wait}", float(wait), present=present(a0=2)) for wait in (3, 2, 1)]
    line = [HEAD, behind("waits", 2.5), *runs]
    assert chosen(decide("hops", view(line, SIX_IDLE))) == {
        "runs-3": place_on(a0=2),
        "runs-2": place_on(a0=2),
    }, "two of the six are for the waiting job: the least urgent one gives way"


def test_a_waiting_job_that_fits_nowhere_takes_no_gpus_from_a_running_one() -> None:
    line = [HEAD, job("large", (7,), wait_s=5.0), behind("runs", 1.0, present=present(a0=2))]
    assert chosen(decide("hops", view(line, SIX_IDLE))) == {"runs": place_on(a0=2)}


def test_a_less_urgent_waiting_job_takes_no_gpus_from_a_running_one() -> None:
    line = [HEAD, behind("runs", 2.0, present=present(a0=2)), job("waits", (6,), wait_s=1.0)]
    assert chosen(decide("hops", view(line, SIX_IDLE))) == {"runs": place_on(a0=2)}


def test_a_waiting_job_is_counted_with_the_fewest_gpus_that_it_can_use() -> None:
    line = [HEAD, job("waits", (2, 4, 6), wait_s=2.0), behind("runs", 1.0, present=present(a0=2))]
    assert chosen(decide("hops", view(line, SIX_IDLE))) == {"runs": place_on(a0=2)}
    line[1] = job("waits", (5, 6), wait_s=2.0)
    assert chosen(decide("hops", view(line, SIX_IDLE))) == {}


def test_a_running_job_that_could_grow_is_stopped_so_that_it_can() -> None:
    """Two GPUs are faster even after a restart. Where only its own one is left, it stays."""
    runs = job("runs", (1, 2), wait_s=1.0, present=present(a0=1))
    assert chosen(decide("hops", view([HEAD, runs], SIX_IDLE))) == {}
    full = [HEAD, job("waits", (5,), wait_s=2.0), runs]
    assert chosen(decide("hops", view(full, SIX_IDLE))) == {"runs": place_on(a0=1)}


def test_a_restart_may_cost_more_than_growing_gains() -> None:
    runs = job("runs", (2, 3), wait_s=1.0, present=present(a0=2))
    for cost_s, stays in ((100.0, False), (140.0, True)):  # of a round of 360 s; it would gain a half
        decision = decide("hops", view([HEAD, runs], SIX_IDLE), moving_cost_s=cost_s)
        assert bool(chosen(decision)) == stays


@pytest.mark.parametrize(("fast", "stays"), [(2.0, False), (1.0, True), (0.5, True)])
def test_a_running_job_that_could_have_a_faster_type_is_stopped(
    fast: float,
    stays: bool,  # noqa: FBT001
) -> None:
    cluster = [node("a0", 6), node("b0", 2, gpus=2, gpu_type=SLOW)]
    runs = job("runs", (2,), wait_s=1.0, gpu_types=(FAST, SLOW), present=present(b0=2))
    runs = replace(runs, single_gpu={FAST: fast, SLOW: 1.0})
    assert bool(chosen(decide("hops", view([HEAD, runs], cluster)))) == stays


def test_what_a_stopped_job_could_grow_to_is_kept_free_for_it() -> None:
    grows = job("grows", (1, 4), wait_s=2.0, present=present(a0=1))
    behind_it = [behind("runs-1", 1.0, present=present(a0=2)), behind("runs-2", 0.5, present=present(a0=2))]
    assert chosen(decide("hops", view([HEAD, grows, *behind_it], SIX_IDLE))) == {"runs-1": place_on(a0=2)}


def test_a_running_job_stays_where_no_rule_would_put_it() -> None:
    """Sensitive, and spread over two nodes."""
    runs = behind("runs", 1.0, present=present(a0=1, a1=1), sensitivity=9.0)
    head = job("head", (8,), wait_s=90.0, sensitivity=9.0)
    assert chosen(decide("hops", view([head, runs], nodes(1, 1)))) == {"runs": place_on(a0=1, a1=1)}


def test_a_waiting_job_of_the_window_that_is_not_placed_comes_before_those_behind_it() -> None:
    """Where the gap or the deadline ends the search, the program may leave out a job that fits."""
    first, second = job("first", (2,), wait_s=9.0), job("second", (4,), wait_s=8.0)
    line = [first, second, behind("runs", 1.0, present=present(a0=2))]
    left = Leftover(nodes(6), [place_on(a0=2)], 1.4, OURS)
    assert list(left_in_place(line[1:], {line[2].job_id}, left, lambda *_: 0.0)) == []
    left = Leftover(nodes(6), [place_on(a0=4)], 1.4, OURS)
    assert list(left_in_place([first, line[2]], {line[2].job_id}, left, lambda *_: 0.0)) == []


def test_a_running_job_of_the_window_that_is_not_placed_is_not_kept() -> None:
    runs = behind("runs", 1.0, present=present(a0=2))
    left = Leftover(nodes(6), [], 1.4, OURS)
    assert list(left_in_place([runs], set(), left, lambda *_: 0.0)) == []
    assert list(left_in_place([runs], {runs.job_id}, left, lambda *_: 0.0)) == [runs]


def test_a_job_like_one_that_fits_nowhere_is_not_looked_at_again() -> None:
    left = Leftover(nodes(6), [], 1.4, OURS)
    large = job("large", (8,))
    assert not left.counts(large)
    left.take(place_on(a0=-2))  # as never happens: GPUs only become fewer
    assert not left.counts(job("as-large", (8,)))
    assert left.counts(job("other", (7,))) == {FAST: [7]}


def test_a_job_behind_the_window_gives_way_to_the_window() -> None:
    line = [job("head", (6,), wait_s=90.0), behind("runs", 1.0, present=present(a0=2))]
    assert chosen(decide("hops", view(line, SIX_IDLE))) == {"head": place_on(a0=6)}


def test_a_job_on_a_node_that_is_not_the_plans_does_not_stay_there() -> None:
    """The node drains, say."""
    runs = job("runs", (1,), wait_s=1.0, present=present(gone=1))
    assert chosen(decide("hops", view([HEAD, runs], SIX_IDLE))) == {}


def test_a_job_that_stays_behind_the_window_is_no_reason_to_plan_again() -> None:
    runs = behind("runs", 1.0, present=present(a0=2))
    seen = view([HEAD, runs], SIX_IDLE, at=100.0)
    assert decide("hops", seen).again_at is None
    more = view([HEAD, runs, job("waits", (4,), wait_s=0.5)], SIX_IDLE, at=100.0)
    assert decide("hops", more).again_at == 130.0, "four GPUs are idle"
    more = view([HEAD, runs, job("waits", (5,), wait_s=0.5)], SIX_IDLE, at=100.0)
    assert decide("hops", more).again_at is None


# ---- the window


def test_the_window_is_as_many_times_the_gpus_as_the_option_says() -> None:
    line = [job(name, (8,), wait_s=wait) for name, wait in (("a", 3.0), ("b", 2.0), ("c", 1.0))]
    policy = Hops(HopsOptions(window_factor=2.0))
    assert policy.wants(view(line, nodes(8))).jobs == ("a", "b")


def test_a_policy_looks_at_each_view_anew() -> None:
    policy = Hops(HopsOptions())
    for name in ("one", "other"):
        assert policy.wants(view([job(name)], nodes(8))).jobs == (name,)
