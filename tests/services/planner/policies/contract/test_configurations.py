from itertools import pairwise

import msgspec
import numpy as np
import pytest

from schemas.placement import Configuration
from services.planner.policies.contract import pools
from services.planner.policies.contract.checks import misfit
from services.planner.policies.contract.configurations import (
    configurations_for,
    explicit,
    held,
    listed,
    placeable,
)
from services.planner.policies.contract.pools import OURS, PlaceRules, _pool
from services.planner.policies.contract.view import ViewJob, ViewNode
from tests.services.planner.planner_builders import FAST, SLOW, job, node, nodes, place_on, present, view

SENSITIVE, LOW = 1.5, 1.2
PRINTED = PlaceRules(fills=False)


def found(one: ViewJob, cluster: tuple[ViewNode, ...], *, stay: bool = False) -> list[Configuration]:
    columns = configurations_for([one], cluster, 1.4, stay=stay)
    return [columns.at(row) for row in range(len(columns))]


def test_an_aggregated_one_on_every_node_with_enough_idle_gpus() -> None:
    assert found(job(demand=(4,), sensitivity=SENSITIVE), nodes(3, 5, 8)) == [place_on(a1=4), place_on(a2=4)]


def test_as_printed_a_job_leaves_a_node_one_gpu() -> None:
    for gpus in (3, 4):
        one = job(demand=(gpus,), sensitivity=SENSITIVE)
        columns = configurations_for([one], nodes(gpus - 1, gpus, gpus + 1), 1.4, rules=PRINTED)
        assert [columns.at(row) for row in range(len(columns))] == [place_on(a2=gpus)]
    assert placeable([job(demand=(4,), sensitivity=SENSITIVE)], nodes(4), 1.4, PlaceRules(fills=False)) == []


@pytest.mark.parametrize(("demand", "spread"), [((4, 16), [{"a0": 8, "a1": 8}]), ((8, 16), []), ((16,), [])])
def test_as_printed_a_sensitive_job_is_spread_if_its_least_is_less_than_the_largest_node(
    demand: tuple[int, ...], spread: list[dict[str, int]]
) -> None:
    """16 GPUs: here both are spread. 4 GPUs over two nodes, which are just what ours do not allow."""
    one = job(demand=demand, sensitivity=SENSITIVE)
    columns = configurations_for([one], nodes(8, 8), 1.4, rules=PlaceRules(wider=False))
    wide = [place for place in map(columns.at, range(len(columns))) if len(place) > 1]
    assert [place for place in wide if sum(place.values()) == 16] == spread
    assert placeable([one], nodes(2, 2), 1.4, PlaceRules(wider=False)) == ([one] if spread else [])


def test_a_job_may_take_the_last_gpu_of_a_node() -> None:
    assert found(job(demand=(4,)), nodes(4)) == [place_on(a0=4)]


def test_a_low_sensitivity_job_is_spread_over_adjacent_nodes_each_filled_before_the_next() -> None:
    one = job(demand=(6,), sensitivity=LOW)
    assert found(one, nodes(4, 3, 5)) == [place_on(a0=4, a1=2), place_on(a1=3, a2=3)]


def test_the_fewest_nodes_that_satisfy_it_and_none_longer() -> None:
    one = job(demand=(5,), sensitivity=LOW)
    assert found(one, nodes(1, 2, 2, 3)) == [place_on(a2=2, a3=3)]


def test_three_nodes_where_two_are_too_few() -> None:
    one = job(demand=(6,), sensitivity=LOW)
    assert found(one, nodes(2, 2, 2, 2)) == [place_on(a0=2, a1=2, a2=2), place_on(a1=2, a2=2, a3=2)]


def test_all_nodes_of_a_type_where_no_fewer_are_enough() -> None:
    one = job(demand=(5, 6), sensitivity=LOW)
    assert found(one, nodes(2, 2, 2)) == [place_on(a0=2, a1=2, a2=1), place_on(a0=2, a1=2, a2=2)]


def test_a_run_whose_first_node_suffices_is_not_distributed() -> None:
    one = job(demand=(4,), sensitivity=LOW)
    assert found(one, nodes(8, 2, 2)) == [place_on(a0=4), place_on(a1=2, a2=2)]


def test_nodes_without_an_idle_gpu_are_stepped_over() -> None:
    assert found(job(demand=(4,), sensitivity=LOW), nodes(2, 0, 2)) == [place_on(a0=2, a2=2)]


def test_a_sensitive_job_stays_on_one_node_when_it_fits_the_largest() -> None:
    assert found(job(demand=(4,), sensitivity=SENSITIVE), nodes(2, 2)) == []


def test_a_sensitive_job_is_spread_only_when_it_is_larger_than_the_largest_node() -> None:
    assert found(job(demand=(16,), sensitivity=SENSITIVE), nodes(8, 8)) == [place_on(a0=8, a1=8)]


def test_a_sensitive_job_as_large_as_the_largest_node_waits_for_a_whole_one() -> None:
    one = job(demand=(8,), sensitivity=SENSITIVE)
    assert found(one, nodes(4, 4)) == []
    assert found(one, nodes(8, 4, 4)) == [place_on(a0=8)]


def test_the_threshold_itself_is_low() -> None:
    assert found(job(demand=(4,), sensitivity=1.4), nodes(2, 2)) == [place_on(a0=2, a1=2)]


def test_a_gang_never_mixes_types() -> None:
    cluster = (node("a0", 2), node("b0", 2, gpu_type=SLOW), node("c0", 2))
    one = job(demand=(2, 4), gpu_types=(FAST, SLOW), sensitivity=LOW)
    assert found(one, cluster) == [
        place_on(a0=2), place_on(c0=2), place_on(a0=2, c0=2), place_on(b0=2),
    ]  # fmt: skip


def test_types_that_the_job_cannot_run_on_are_left_out() -> None:
    assert found(job(gpu_types=(SLOW,)), nodes(8)) == []


def test_every_element_of_the_demand_has_its_own() -> None:
    assert found(job(demand=(1, 8), sensitivity=SENSITIVE), nodes(8)) == [place_on(a0=1), place_on(a0=8)]


def test_columns_of_several_jobs_stand_one_after_another() -> None:
    columns = configurations_for([job("x", (1,)), job("y", (9,)), job("z", (2,))], nodes(1, 2), 1.4)
    assert columns.job.tolist() == [0, 0, 2, 2]
    assert [columns.jobs[index] for index in columns.job] == ["x", "x", "z", "z"]
    assert [columns.at(row) for row in range(4)] == [
        place_on(a0=1), place_on(a1=1), place_on(a1=2), place_on(a0=1, a1=1),
    ]  # fmt: skip
    assert columns.start.dtype == columns.node.dtype == columns.gpus.dtype == np.int32


def test_pieces_of_one_shape_have_the_same_cells() -> None:
    """x and y may both have 2 GPUs of a0 or a1; nothing else is offered twice."""
    cluster = (*nodes(4, 4), node("b0", 4, gpu_type=SLOW))
    jobs = [
        job("x", (2, 6), sensitivity=LOW, gpu_types=(FAST, SLOW)),
        job("y", (2,), sensitivity=LOW),
        job("z", (4,), sensitivity=SENSITIVE, present=present(a0=2, a1=2)),
    ]
    columns = configurations_for(jobs, cluster, 1.4, stay=True)
    pieces = columns.pieces
    assert pieces is not None
    rows = [range(begin, end) for begin, end in pairwise(pieces.start.tolist())]
    assert [
        ({columns.jobs[columns.job[row]] for row in own}, list(map(columns.at, own))) for own in rows
    ] == [
        ({"x"}, [place_on(a0=2), place_on(a1=2)]),
        ({"x"}, [place_on(a0=4, a1=2)]),
        ({"x"}, [place_on(b0=2)]),
        ({"y"}, [place_on(a0=2), place_on(a1=2)]),
        ({"z"}, [place_on(a0=2, a1=2)]),
        ({"z"}, [place_on(a0=4), place_on(a1=4)]),
    ]
    *_, again, _, _ = shapes = pieces.shape.tolist()
    assert again == shapes[0]
    assert len(set(shapes)) == len(shapes) - 1


def test_each_place_that_only_its_job_has_is_a_shape_of_its_own() -> None:
    places = (present(a0=2, a1=2), present(a0=1, a1=3))
    jobs = [job(f"j{n}", (4,), sensitivity=SENSITIVE, present=place) for n, place in enumerate(places)]
    pieces = configurations_for(jobs, nodes(3, 3), 1.4, stay=True).pieces
    assert pieces is not None
    assert len(set(pieces.shape.tolist())) == len(pieces.shape) == 2


@pytest.mark.parametrize(("limit", "expected"), [(2, [1, 2, 1, 2, 2]), (3, [1, 2, 3, 1, 2])])
def test_wishes_beyond_those_that_are_kept_are_looked_up_again(
    limit: int, expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the blocks there is one each all the same."""
    monkeypatch.setattr(pools, "WISHES_KEPT", limit)
    pool, kept = pools.pools_of(nodes(20, limit))[FAST], []  # no other test has such nodes
    for gpus in (1, 2, 3, 4, 3):
        [number] = pool.numbers(pools.Wishes((FAST,), (gpus,), True, pools.OURS))
        blocks = pool.blocks()
        begin, end = np.cumsum([0, *blocks.rows.tolist()])[number : number + 2]
        assert set(blocks.gpus[begin:end].tolist()) == {gpus}
        kept.append(len(pool._numbers))
    assert kept == expected
    assert len(pool.blocks().rows) == 4


def test_the_largest_node_counts_though_all_of_its_gpus_are_busy() -> None:
    """A sensitive job is spread only for more GPUs than any node of the type has."""
    small = [node("a0", 4, gpus=4), node("a1", 4, gpus=4)]
    one = job(demand=(8,), sensitivity=SENSITIVE)
    assert found(one, tuple(small)) == [place_on(a0=4, a1=4)]
    assert found(one, (*small, node("a2", 0, gpus=8))) == []


def test_a_type_without_idle_gpus_has_no_pool() -> None:
    cluster = (*nodes(0, 0), *nodes(1, gpu_type=SLOW))
    assert set(pools.pools_of(cluster)) == {SLOW}
    assert placeable([job(gpu_types=(FAST,))], cluster, 1.4) == []


def test_a_row_that_names_a_node_twice_is_of_all_those_gpus() -> None:
    columns = explicit([(job("x").job_id, place_on(a0=4, a1=4))], nodes(8, 8))
    alike = msgspec.structs.replace(columns, node=np.array([1, 1], dtype=np.int32))
    assert alike.at(0) == place_on(a1=8)


def test_no_nodes_or_no_jobs_give_no_configurations() -> None:
    assert len(configurations_for([], nodes(8), 1.4)) == 0
    assert len(configurations_for([job()], (), 1.4)) == 0


def test_a_spread_job_may_stay_where_it_is_if_that_is_asked_for() -> None:
    one = job(demand=(4,), sensitivity=SENSITIVE, present=present(a0=2, a2=2))
    assert place_on(a0=2, a2=2) in found(one, nodes(8, 8, 8), stay=True)
    plain = configurations_for([one], nodes(8, 8, 8), 1.4)
    assert place_on(a0=2, a2=2) not in [plain.at(row) for row in range(len(plain))]


def test_a_place_that_is_on_the_menu_anyway_is_not_offered_twice() -> None:
    cluster = (*nodes(2, 2, 2, 1), *nodes(4, 4, gpu_type=SLOW))
    one = job(demand=(2, 4, 5), sensitivity=LOW, gpu_types=(FAST, SLOW))
    offered = found(one, cluster)
    assert {len(place) for place in offered} == {1, 2, 3}
    for place in offered:
        there = msgspec.structs.replace(one, present=present(**place))
        assert found(there, cluster, stay=True) == offered


@pytest.mark.parametrize(
    ("demand", "idle", "place"),
    [
        ((2, 4), 2, {"a0": 2, "a1": 2}),  # two places of one node each, side by side, are not one of both
        ((4, 6), 2, {"a0": 2, "a1": 2}),  # nor do the first nodes of a longer one count
        ((6,), 4, {"a0": 3, "a1": 3}),  # nor the same nodes with other GPUs
    ],
)
def test_a_place_that_only_resembles_one_on_the_menu_is_offered_besides(
    demand: tuple[int, ...], idle: int, place: dict[str, int]
) -> None:
    cluster = tuple(node(f"a{number}", idle=idle, gpus=5) for number in range(3))
    one = job(demand=demand, sensitivity=SENSITIVE, present=present(**place))
    menu = found(one, cluster)
    assert menu, "there is a choice"
    assert place not in menu
    assert found(one, cluster, stay=True) == [place_on(**place), *menu]


def test_a_job_on_one_node_has_no_more_than_is_on_its_menu() -> None:
    """As printed it must leave the node a GPU, and so it must where it runs."""
    one = job(demand=(4,), sensitivity=SENSITIVE, present=present(a0=4))
    assert len(configurations_for([one], nodes(4), 1.4, stay=True)) == 1
    assert len(configurations_for([one], nodes(4), 1.4, stay=True, rules=PRINTED)) == 0


def test_a_job_may_not_stay_where_its_gpus_or_nodes_are_gone() -> None:
    one = job(demand=(4,), sensitivity=SENSITIVE, present=present(a0=2, a2=2))
    assert found(one, nodes(8, 8, 1), stay=True) == found(one, nodes(8, 8, 1))
    assert found(one, nodes(8, 8), stay=True) == found(one, nodes(8, 8))


@pytest.mark.parametrize("spread", [place_on(a3=2, a2=2), place_on(a2=2, a3=2)])
def test_the_rows_that_leave_jobs_where_they_are(spread: Configuration) -> None:
    """One of each job, whatever the order of its nodes."""
    jobs = [job(name, (2, 4), sensitivity=LOW) for name in "xyz"]
    columns = configurations_for(jobs, nodes(4, 4, 2, 2), 1.4)
    present = {jobs[0].job_id: place_on(a1=2), jobs[2].job_id: spread}
    assert [(columns.jobs[columns.job[row]], columns.at(row)) for row in held(columns, present).tolist()] == [
        ("x", place_on(a1=2)),
        ("z", spread),
    ]


def test_a_row_on_all_the_nodes_there_are_may_be_where_a_job_is() -> None:
    place = place_on(a0=2, a1=2)
    assert held(explicit([(job("x").job_id, place)], nodes(4, 4)), {job("x").job_id: place}).tolist() == [0]


def test_a_fold_by_job_covers_only_the_rows_of_that_job() -> None:
    """The second job has no row, and of the third nothing is known."""
    offered = [("x", (place_on(a0=1), place_on(a0=2))), ("y", ()), ("z", (place_on(a0=1),))]
    columns = listed([(job(name).job_id, places) for name, places in offered], nodes(8))
    least = columns.of_each_job(np.fmin, np.array([3.0, 2.0, np.nan]))
    assert least[0] == 2.0
    assert np.isnan(least[1:]).all()
    assert np.isnan(listed([(job("x").job_id, ())], nodes(8)).of_each_job(np.fmax, np.empty(0))).all()


def test_where_nothing_offers_the_present_place_no_row_holds_it() -> None:
    columns = configurations_for([job("x", (4,), sensitivity=SENSITIVE)], nodes(4, 4), 1.4)
    for place in (place_on(a0=2, a1=2), place_on(gone=4), place_on()):
        assert not len(held(columns, {job("x").job_id: place}))


def test_given_configurations_become_columns() -> None:
    given = [(job("x").job_id, place_on(a0=1)), (job("y").job_id, place_on(a0=2, a1=3))]
    columns = explicit(given, nodes(8, 8))
    assert [columns.at(row) for row in range(2)] == [place for _, place in given]


def test_several_places_a_job_come_in_the_order_given_and_may_mix_types() -> None:
    cluster = [node("a0", 2), node("b0", 2, gpu_type=SLOW), node("c0", 2)]
    jobs = [job("x", (3,)), job("y", (1,)), job("z", (2,))]
    offered = [
        (jobs[0].job_id, [place_on(a0=2, b0=1), place_on(b0=1, c0=2)]),
        (jobs[1].job_id, []),
        (jobs[2].job_id, [place_on(c0=2)]),
    ]
    columns = listed(offered, cluster)
    assert columns.job.tolist() == [0, 0, 2]
    assert [columns.at(row) for row in range(3)] == [place for _, places in offered for place in places]
    assert misfit(view(jobs, cluster), columns) is None
    assert [columns.at(row) for row in held(columns, {jobs[0].job_id: place_on(c0=2, b0=1)})] == [
        place_on(b0=1, c0=2)
    ]


def test_no_places_give_no_rows() -> None:
    assert len(listed([(job("x").job_id, [])], nodes(8))) == 0
    assert len(listed([], nodes(8))) == 0


def test_a_job_is_placeable_if_it_has_a_configuration_on_the_idle_gpus() -> None:
    cluster = nodes(2, 2, 0)
    jobs = [
        job("on-one-node", (2,)),
        job("spread", (4,), sensitivity=LOW),
        job("sensitive", (4,), sensitivity=SENSITIVE),
        job("too-large", (5,), sensitivity=LOW),
        job("elsewhere", (1,), gpu_types=(SLOW,)),
    ]
    fitting = placeable(jobs, cluster, 1.4)
    assert [one.job_id for one in fitting] == ["on-one-node", "spread"]
    assert fitting == [one for one in jobs if found(one, cluster)]


def test_cached_layouts_give_the_same_configurations() -> None:
    """Not after another plan's GPUs, nodes, jobs or rules: each of these is another."""
    jobs = [job("x", (2, 4, 6), sensitivity=LOW), job("y", (2, 4, 6), sensitivity=SENSITIVE)]
    here, larger = node("a0", idle=2, gpus=4), node("a0", idle=2, gpus=8)
    others = (node("a1", 4, gpus=4),)
    asked: list[tuple[list[ViewJob], tuple[ViewNode, ...], PlaceRules]] = [
        (jobs, (here, *others), OURS),
        (jobs, (larger, *others), OURS),
        (jobs, (node("a0", idle=4, gpus=4), *others), OURS),
        (jobs, others, OURS),
        (jobs, (node("b0", 3, gpu_type=SLOW), here, *others), OURS),
        (
            [job("x", (2, 4, 6), sensitivity=LOW, gpu_types=(FAST, SLOW)), jobs[1]],
            (node("b0", 3, gpu_type=SLOW), here, *others),
            OURS,
        ),
        (jobs, (here, *others), PRINTED),
        (jobs, (here, *others), PlaceRules(wider=False)),
        ([job("x", (2, 4), sensitivity=LOW), jobs[1]], (here, *others), OURS),
        ([job("x", (2, 4, 6), sensitivity=SENSITIVE), jobs[1]], (here, *others), OURS),
    ]

    def rows(cold: bool, of: list[ViewJob], cluster: tuple[ViewNode, ...], rules: PlaceRules) -> object:  # noqa: FBT001
        if cold:
            _pool.cache_clear()
        columns = configurations_for(of, cluster, 1.4, rules=rules)
        return [(columns.jobs[columns.job[row]], columns.cells(row)) for row in range(len(columns))]

    cold = [rows(True, *one) for one in asked]
    assert [rows(False, *one) for one in [*asked, *asked]] == cold * 2
    assert all(one not in cold[:index] for index, one in enumerate(cold)), "each is another"


def test_more_than_is_kept_is_looked_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "WISHES_KEPT", 20)
    cluster = nodes(*[8] * 400)
    jobs = [job(f"j{most}", tuple(range(1, most)), sensitivity=LOW) for most in range(2, 60)]
    first, again = (configurations_for(jobs, cluster, 1.4) for _ in range(2))
    assert len(first) > 100_000
    assert all(
        np.array_equal(getattr(first, name), getattr(again, name))
        for name in ("job", "start", "node", "gpus")
    )
