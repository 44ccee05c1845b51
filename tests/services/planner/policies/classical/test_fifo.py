from schemas.plans import Stage, Waiting
from tests.services.planner.planner_builders import (
    SLOW,
    chosen,
    decide,
    job,
    node,
    nodes,
    place_on,
    present,
    silent,
    view,
)


def test_jobs_start_in_the_order_of_arrival_with_their_smallest_demand() -> None:
    seen = view([job("first", (2, 8)), job("second", (4,))], nodes(8))
    assert chosen(decide("fifo", seen)) == {"first": place_on(a0=2), "second": place_on(a0=4)}


def test_a_job_that_does_not_fit_holds_up_those_behind_it() -> None:
    decision = decide("fifo", view([job("x", (6,)), job("y", (4,)), job("z", (1,))], nodes(8)))
    assert chosen(decision) == {"x": place_on(a0=6)}
    assert [(left.job_id, left.reason) for left in decision.left] == [
        ("y", Waiting.NO_CONFIGURATION),
        ("z", Waiting.OUTWEIGHED),
    ]


def test_a_job_that_can_never_fit_does_not_hold_up_others() -> None:
    seen = view([job("giant", (64,)), job("other", (1,), gpu_types=(SLOW,)), job("x", (1,))], nodes(8))
    assert chosen(decide("fifo", seen)) == {"x": place_on(a0=1)}


def test_one_node_is_preferred_to_several() -> None:
    assert chosen(decide("fifo", view([job("x", (4,))], nodes(2, 2, 4)))) == {"x": place_on(a2=4)}


def test_several_adjacent_nodes_serve_where_no_single_one_does() -> None:
    cluster = [node("a0", 3), node("b0", 3, gpu_type=SLOW), node("c0", 3)]
    assert chosen(decide("fifo", view([job("x", (4,))], cluster))) == {"x": place_on(a0=3, c0=1)}


def test_a_running_job_keeps_its_place_before_an_earlier_one_starts() -> None:
    seen = view([job("early", (8,)), job("late", (4,), present=present(a0=4))], nodes(8))
    assert chosen(decide("fifo", seen)) == {"late": place_on(a0=4)}


def test_a_job_whose_node_is_gone_is_placed_again() -> None:
    seen = view([job("x", (4,), present=present(gone=4))], nodes(8))
    assert chosen(decide("fifo", seen)) == {"x": place_on(a0=4)}


def test_fifo_needs_no_estimates() -> None:
    decision = decide("fifo", view([job("x")], nodes(8)), estimator=silent)
    assert chosen(decision) == {"x": place_on(a0=1)}
    assert decision.stage == Stage.QUEUE
