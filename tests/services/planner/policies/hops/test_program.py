"""The program of Hops on cases worked by hand: gains, weights and choice (Hops section 3.6, eq. 11–13)."""

import msgspec
import numpy as np
import pytest

from schemas.placement import Configuration
from schemas.plans import PlanKind, Waiting
from services.planner.policies.contract.configurations import configurations_for
from services.planner.policies.contract.view import View, ViewJob, ViewNode
from services.planner.policies.hops.policy import DEPARTURES, TIE, Hops, HopsOptions, gains, hops_literal
from services.planner.solver.effort import Effort
from services.planner.solver.greedy import greedy
from services.planner.solver.problem import Problem, Solution
from shared.domain.word_lists import words_of
from tests.services.planner.planner_builders import (
    MODELLED,
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

EXACT = msgspec.structs.replace(MODELLED, gap=0.0)

TABLE_1 = {
    "job 1": ([10.0, 18.0, 26.0], [1.0, 1.8, 2.6]),
    "job 2": ([20.0, 10.0, 30.0, 41.0], [2.0, 1.0, 3.0, 4.1]),
    "job 3": ([12.0, 16.0, 10.0], [1.2, 1.6, 1.0]),
    "job 4": ([5.0, 9.0, 16.0], [1.0, 1.8, 3.2]),
}
"""throughputs, and the gains that the paper prints"""


@pytest.mark.parametrize("row", TABLE_1)
def test_the_gain_matrix_of_the_paper(row: str) -> None:
    throughput, printed = TABLE_1[row]
    wanted = configurations_for([job(row, range(1, 1 + len(throughput)))], nodes(8), 1.4)
    assert gains(wanted, np.array(throughput)).tolist() == pytest.approx(printed)


def lr(name: str, demand: tuple[int, ...], ratio: float) -> ViewJob:
    """A job with this latency ratio. Throughput is linear in GPUs, a fifth less where spread."""
    return job(name, demand, wait_s=100.0 * ratio, age_s=100.0)


Case = tuple[list[ViewJob], tuple[ViewNode, ...], float, dict[str, Configuration], float]

CASES: dict[str, Case] = {
    # together .1 · 1 + .2 · 1; x alone with its gain of 2 on 8 GPUs .2
    "two small before one large": (
        [lr("x", (4, 8), 0.1), lr("y", (4,), 0.2)], nodes(8), 1.0,
        {"x": place_on(a0=4), "y": place_on(a0=4)}, 0.3,
    ),
    # x alone .5 · 2; together .5 + .2
    "one large before two small": (
        [lr("x", (4, 8), 0.5), lr("y", (4,), 0.2)], nodes(8), 1.0, {"x": place_on(a0=8)}, 1.0,
    ),
    # λ = 0: x alone has a gain of 4, all together 3
    "λ = 0 is throughput alone": (
        [lr("x", (2, 8), 0.1), lr("y", (4,), 1.0), lr("z", (2,), 1.0)], nodes(8), 0.0,
        {"x": place_on(a0=8)}, 4.0,
    ),
    # λ = 1: x alone .1 · 4, together .1 + 1 + 1
    "λ = 1 weighs by waiting": (
        [lr("x", (2, 8), 0.1), lr("y", (4,), 1.0), lr("z", (2,), 1.0)], nodes(8), 1.0,
        {"x": place_on(a0=2), "y": place_on(a0=4), "z": place_on(a0=2)}, 2.1,
    ),
    # λ = 2: y alone .6², x and z together .4² + .3²; with λ = 1 it would be .6 against .7
    "λ = 2 is nearer to the order of the queue": (
        [lr("x", (4,), 0.4), lr("y", (8,), 0.6), lr("z", (4,), 0.3)], nodes(8), 2.0,
        {"y": place_on(a0=8)}, 0.36,
    ),
    # nobody has waited but y: bias |0| + .01, so y weighs .11 and x .01
    "the bias keeps a newcomer in the plan": (
        [lr("x", (4,), 0.0), lr("y", (4,), 0.1)], nodes(8), 1.0,
        {"x": place_on(a0=4), "y": place_on(a0=4)}, 0.12,
    ),
    # x's only configuration takes both nodes (gain 1, though it is spread): .3 against y's .2
    "a gang takes all its nodes": (
        [lr("x", (8,), 0.3), lr("y", (4,), 0.2)], nodes(4, 4), 1.0, {"x": place_on(a0=4, a1=4)}, 0.3,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_best_plan_by_hand(case: str) -> None:
    jobs, cluster, power, places, objective = CASES[case]
    decision = decide("hops", view(jobs, cluster, effort=EXACT), priority_power=power, window_factor=2.0)
    assert chosen(decision) == places
    assert decision.objective == pytest.approx(objective)
    assert decision.bound == pytest.approx(objective)


# ---- several plans in a round


def crowd(*, low: ViewJob) -> list[ViewJob]:
    return [job("sensitive", (4,), wait_s=50.0, sensitivity=2.0), low]


def test_what_a_fragment_plan_let_in_is_back_in_its_place_when_the_round_ends() -> None:
    waits = job("low", (4,), wait_s=1.0)
    fragment = decide("hops", view(crowd(low=waits), nodes(2, 2), kind=PlanKind.FRAGMENT))
    assert chosen(fragment) == {"low": place_on(a0=2, a1=2)}
    runs = job("low", (4,), wait_s=1.0, present=present(a0=2, a1=2))
    after = decide("hops", view(crowd(low=runs), (node("a0", 4, gpus=4),)))
    assert chosen(after) == {"sensitive": place_on(a0=4)}
    assert [(left.job_id, left.reason) for left in after.left] == [("low", Waiting.OUTSIDE_WINDOW)]


# ---- the knobs


def test_sigma_says_which_jobs_may_be_spread() -> None:
    seen = view([job("x", (4,), sensitivity=1.5)], nodes(2, 2))
    assert chosen(decide("hops", seen)) == {}
    assert chosen(decide("hops", seen, sensitivity_threshold=1.5)) == {"x": place_on(a0=2, a1=2)}


def test_the_window_factor_lets_more_jobs_compete() -> None:
    seen = view([lr("first", (8,), 0.2), lr("second", (2, 8), 0.1)], nodes(8), effort=EXACT)
    assert chosen(decide("hops", seen)) == {"first": place_on(a0=8)}  # .2
    assert chosen(decide("hops", seen, window_factor=2.0)) == {"second": place_on(a0=8)}  # .1 · 4


def test_the_refresh_period_says_when_it_asks_again() -> None:
    seen = view(crowd(low=job("low", (4,), wait_s=1.0)), nodes(2, 2), at=100.0)
    assert decide("hops", seen, queue_refresh_s=5.0).again_at == 105.0
    assert decide("hops", seen, queue_refresh_s=1e-30).again_at == 101.0, "later than now"


def test_as_printed_fit() -> None:
    seen = view([job("x", (2,), sensitivity=9.0)], nodes(2, 3))
    assert chosen(decide("hops", msgspec.structs.replace(seen, nodes=nodes(2)))) == {"x": place_on(a0=2)}
    assert chosen(decide("hops", seen, as_printed="fit")) == {"x": place_on(a1=2)}


def test_as_printed_spread() -> None:
    seen = view([job("x", (4,), sensitivity=9.0)], nodes(2, 2))
    assert chosen(decide("hops", seen)) == {}
    assert chosen(decide("hops", seen, as_printed="spread")) == {"x": place_on(a0=2, a1=2)}


def test_as_printed_window() -> None:
    """Who fits nowhere fills the window all the same."""
    fragment = view([lr("wide", (8,), 0.9), lr("narrow", (2,), 0.1)], nodes(2, 0), kind=PlanKind.FRAGMENT)
    assert chosen(decide("hops", fragment)) == {"narrow": place_on(a0=2)}
    assert chosen(decide("hops", fragment, as_printed="window")) == {}


def test_as_printed_total() -> None:
    """Both are in a window of 16 GPUs; of 8 idle ones only the first is."""
    seen = view([lr("first", (8,), 0.2), lr("second", (2, 8), 0.1)], nodes(8, 0), effort=EXACT)
    assert chosen(decide("hops", seen)) == {"first": place_on(a0=8)}  # .2
    assert chosen(decide("hops", seen, as_printed="total")) == {"second": place_on(a0=8)}  # .1 · 4


def test_as_printed_admit() -> None:
    """A sensitive window; a job behind it needs all idle GPUs, or leaves one."""
    line = [lr("edge", (4,), 0.9), lr("behind", (4,), 0.1)]
    sensitive, low = (
        msgspec.structs.replace(one, sensitivity=rho) for one, rho in zip(line, (2.0, 1.0), strict=True)
    )
    fragment = view([sensitive, low], nodes(4), kind=PlanKind.FRAGMENT, effort=EXACT)
    assert Hops(HopsOptions()).wants(fragment).jobs == ("edge", "behind")
    assert Hops(HopsOptions(as_printed="admit")).wants(fragment).jobs == ("edge",)


def test_as_printed_ties() -> None:
    """Staying is worth a thousandth more, or nothing."""
    runs = job("x", (2,), present=present(a1=2), wait_s=10.0)
    seen = view([runs], nodes(2, 2), effort=EXACT)
    stay = decide("hops", seen, moving_cost_s=0.0)
    assert chosen(stay) == {"x": place_on(a1=2)}
    worth = {words: sorted(_gains(seen, words)) for words in ("", "ties")}
    assert worth == {"": [pytest.approx(1 - TIE), 1.0], "ties": [1.0, 1.0]}


def _gains(seen: View, words: str) -> list[float]:
    """What the program is gained that each configuration gains."""
    gained: list[float] = []

    def solve(problem: Problem, _: Effort) -> Solution:
        gained.extend(problem.gain.tolist())
        return greedy(problem)

    policy = Hops(HopsOptions(as_printed=words, moving_cost_s=0.0))
    wanted = policy.wants(seen)
    policy.decide(seen, wanted, linear(wanted), solve)
    return gained


def test_literal_is_all_of_them() -> None:
    assert set(hops_literal.Options().as_printed.split()) == {"all"}
    assert hops_literal.Options().moving_cost_s == 0
    assert words_of("all", DEPARTURES) == set(DEPARTURES)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"as_printed": "fit, ties"}, HopsOptions)


@pytest.mark.parametrize(
    ("rule", "first"),
    [("lr", "short"), ("sjf", "short"), ("las", "new"), ("fifo", "old"), ("srtf", "nearly")],
)
def test_the_priority_rule_says_who_is_first(rule: str, first: str) -> None:
    jobs = [
        job("short", (8,), submitted_at=5.0, wait_s=50.0, age_s=100.0, attained_gpu_s=9.0),
        job("new", (8,), submitted_at=9.0, wait_s=1.0, age_s=800.0),
        job("old", (8,), submitted_at=0.0, wait_s=60.0, age_s=900.0, attained_gpu_s=9.0),
        job("nearly", (8,), submitted_at=6.0, age_s=500.0, attained_gpu_s=9.0, samples_done=999.0),
    ]
    seen = view(jobs, nodes(8))
    assert list(chosen(decide("hops", seen, priority_rule=rule))) == [first]
