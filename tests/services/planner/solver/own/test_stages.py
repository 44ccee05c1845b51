"""Our own back end, stage by stage: facets, cliques, prices, dives, neighbourhoods, branches."""

import itertools
from collections.abc import Iterator

import msgspec
import numpy as np
import pytest

from services.planner.policies.kit.linear import LinearProgram, Matrix
from services.planner.solver import solve
from services.planner.solver.budget import Budget
from services.planner.solver.effort import Effort
from services.planner.solver.greedy import greedy
from services.planner.solver.own.branching import branch, tightened, undecided
from services.planner.solver.own.cliques import broken_cliques, exclusions
from services.planner.solver.own.columns import Columns, columns_of
from services.planner.solver.own.descent import descended
from services.planner.solver.own.dive import dive, rounded
from services.planner.solver.own.facets import facets
from services.planner.solver.own.improve import improvements
from services.planner.solver.own.lagrangian import Lagrangian, functions_of
from services.planner.solver.own.meter import Meter
from services.planner.solver.own.priced_dive import priced_dive
from services.planner.solver.own.prices import Priced, prices
from services.planner.solver.own.relaxation import Bounded, Relaxation, sample
from services.planner.solver.own.subproblems import subproblem_of
from services.planner.solver.problem import NOTHING, Problem, restricted, worth
from services.planner.solver.search import Search
from shared.domain.arrays import Floats, Ints
from tests.services.planner.solver.solver_builders import Row, by_hand, chosen, drawn, is_sound, problem, use

MODELLED = Effort(modelled=True)


def gangs(gpus: int, largest: int | None = None) -> Iterator[tuple[int, ...]]:
    """All ways to fill a node."""
    if not gpus:
        yield ()
    for size in range(min(gpus, largest or gpus), 0, -1):
        yield from ((size, *rest) for rest in gangs(gpus - size, size))


def search(instance: Problem, effort: Effort = MODELLED) -> Search:
    return Search(instance, effort, greedy(instance), Budget())


def relaxed(instance: Problem) -> tuple[Relaxation, Bounded]:
    columns, meter = columns_of(instance), Meter(search(instance))
    relaxation = Relaxation(columns, sample(columns), meter, gap=0.001, enough=lambda _: False)
    return relaxation, relaxation.relax()


def feasible(instance: Problem, rows: Ints) -> None:
    assert len(np.unique(instance.job[rows])) == len(rows)
    assert (use(instance, rows.tolist()) <= instance.capacity).all()


def wide(nodes: int = 136) -> Problem:
    """More nodes than are priced by a program, of two GPUs each."""
    random = np.random.default_rng(1)
    rows = [
        (job, {node: size}, float(size**0.8 * random.uniform(0.95, 1.05)))
        for job in range(nodes)
        for node in range(nodes)
        for size in (1, 2)
    ]
    return problem([2] * nodes, random.uniform(0.1, 1.0, nodes).tolist(), rows)


# ---- facets


@pytest.mark.parametrize("gpus", [1, 2, 3, 4, 5, 6, 7, 8, 10, 16])
def test_no_whole_gangs_break_a_facet(gpus: int) -> None:
    for gang in gangs(gpus):
        assert (facets(gpus)[:, list(gang)].sum(axis=1) <= 1 + 1e-9).all()


def test_eight_gpus_have_four_facets_beside_their_number() -> None:
    assert facets(8).round(3).tolist() == [
        [0, 0, 0, 0, 0.5, 1, 1, 1, 1],
        [0, 0, 0, 0.5, 0.5, 0.5, 1, 1, 1],
        [0, 0, 0.25, 0.25, 0.5, 0.75, 0.75, 1, 1],
        [0, 0, 0.25, 0.375, 0.5, 0.625, 0.75, 1, 1],
    ]


@pytest.mark.parametrize("gpus", [3, 4, 5, 6, 7, 8])
def test_the_facets_describe_the_hull_of_whole_gangs(gpus: int) -> None:
    """For any prices on sizes, the best fraction within the facets is worth what the best gangs are."""
    random = np.random.default_rng(gpus)
    limits = np.vstack([facets(gpus)[:, 1:], np.arange(1, gpus + 1) / gpus])
    row, column = (each.astype(np.int32) for each in np.nonzero(limits))
    matrix, ones = Matrix(row=row, column=column, value=limits[row, column]), np.ones(len(limits))
    for price in random.uniform(0, 1, (20, gpus)) * np.arange(1, gpus + 1) ** 0.9:
        whole = max(price[np.array(gang) - 1].sum() for gang in gangs(gpus))
        program = LinearProgram(cost=-price, matrix=matrix, row_lower=0 * ones, row_upper=ones)
        assert -program.solve().objective == pytest.approx(whole)


# ---- the bound


@pytest.mark.parametrize("seed", range(5))
def test_the_bound_holds_and_facets_bring_it_closer(seed: int) -> None:
    instance = drawn(seed, jobs=3, nodes=2)
    relaxation, found = relaxed(instance)
    tight = relaxation.tighten(found)
    best = by_hand(instance)
    assert best <= tight.bound + 1e-9 <= found.bound * (1 + 1e-6)


def test_gangs_of_five_do_not_share_a_node_of_eight() -> None:
    """By GPUs alone 16 of them hold three; by facets two."""
    rows = [(job, {node: 5}, 1.0) for job in range(4) for node in range(2)]
    relaxation, found = relaxed(problem([8, 8], [1.0] * 4, rows))
    assert found.bound == pytest.approx(3.2)
    assert relaxation.tighten(found).bound == pytest.approx(2.0)


# ---- cliques


def with_facets(relaxation: Relaxation, found: Bounded) -> Bounded:
    """Tightened by facets alone."""
    every = np.ones(len(found.relaxed.x), dtype=bool)
    while relaxation.master.cut(relaxation.shares(found), relaxation.columns.problem.capacity, every):
        found = relaxation.relax()
        every = np.ones(len(relaxation.master.rows), dtype=bool)
    return found


@pytest.mark.parametrize("seed", range(5))
def test_two_configurations_exclude_each_other_if_no_plan_holds_both(seed: int) -> None:
    instance = drawn(seed, jobs=4, nodes=3)
    excluded = exclusions(columns_of(instance), np.arange(len(instance), dtype=np.int32))
    for one, other in itertools.combinations(range(len(instance)), 2):
        together = (use(instance, [one, other]) <= instance.capacity).all()
        possible = together and instance.job[one] != instance.job[other]
        assert excluded[one, other] == excluded[other, one] == (not possible)
    assert not excluded.diagonal().any()


@pytest.mark.parametrize("seed", range(5))
def test_a_broken_clique_has_exclusive_configurations_with_shares_above_one(seed: int) -> None:
    instance = drawn(seed, jobs=30, nodes=6)
    relaxation, found = relaxed(instance)
    found = with_facets(relaxation, found)
    excluded, x = exclusions(relaxation.columns, relaxation.master.rows), relaxation.shares(found)
    cliques = list(broken_cliques(excluded, x))
    assert cliques
    assert len({one.tobytes() for one in cliques}) == len(cliques)
    for clique in cliques:
        assert x[clique].sum() > 1
        assert (excluded[np.ix_(clique, clique)] | np.eye(len(clique), dtype=bool)).all()


def test_gangs_in_a_chain_exclude_one_another() -> None:
    """Three servers of four GPUs hold one gang of six; by facets of each server, one and a half."""
    rows = [(job, {first: 4, first + 1: 2}, 1.0) for job in range(4) for first in (0, 1)]
    instance = problem([4, 4, 4], [1.0] * 4, rows)
    relaxation, found = relaxed(instance)
    assert with_facets(relaxation, found).bound == pytest.approx(1.5)
    assert relaxation.tighten(relaxation.relax()).bound == pytest.approx(by_hand(instance))


@pytest.mark.parametrize("seed", range(8))
def test_the_bound_holds_with_cliques_over_some_columns_only(seed: int) -> None:
    """Columns that are not in the program are in no clique: what they are worth counts in full."""
    instance = drawn(seed, jobs=4, nodes=3, unlike=0.1)
    columns, meter = columns_of(instance), Meter(search(instance))
    some = np.union1d(np.arange(0, len(instance), 3), columns.most_valuable()).astype(np.int32)
    relaxation = Relaxation(columns, some, meter, gap=0.001, enough=lambda _: True)
    relaxed_once = relaxation.relax()
    while relaxation.master.cut(
        relaxed_once.relaxed.x, instance.capacity, np.ones(len(some), dtype=bool)
    ) or relaxation.master.exclude(relaxed_once.relaxed.x):
        relaxed_once = relaxation.relax()
    assert by_hand(instance) <= relaxed_once.bound * (1 + 1e-9)


# ---- prices without a program


def legs(instance: Problem) -> tuple[Columns, list[Priced]]:
    """The whole way down, as a large cluster has it."""
    columns = columns_of(instance)
    gpu = greedy(instance).objective / float(instance.capacity.sum())
    return columns, list(prices(columns, Meter(search(instance)), gpu))


@pytest.mark.parametrize("seed", range(5))
def test_prices_without_a_program_bound_every_choice(seed: int) -> None:
    instance = drawn(seed, jobs=3, nodes=2)
    best = by_hand(instance)
    assert all(best <= leg.found.bound + 1e-9 for leg in legs(instance)[1])


@pytest.mark.parametrize("seed", range(5))
def test_the_way_down_ends_where_the_program_with_all_facets_does(seed: int) -> None:
    instance = drawn(seed, jobs=30, nodes=12)
    tight = with_facets(*relaxed(instance)).bound
    last = legs(instance)[1][-1].found.bound
    assert tight * 0.999 <= last <= tight * 1.01


def test_the_slope_is_that_of_the_value() -> None:
    instance = drawn(1, jobs=10, nodes=4)
    columns, random = columns_of(instance), np.random.default_rng(1)
    functions = functions_of(instance.capacity, columns.sizes)
    rows = np.arange(len(instance), dtype=np.int32)
    lagrangian = Lagrangian(columns, rows, functions, 0.05, Meter(search(instance)))
    w = random.uniform(0.0, 0.5, functions.shape[0] * functions.shape[1])
    ahead = random.normal(size=len(w)) * 1e-6
    difference = lagrangian(w + ahead)[0] - lagrangian(w - ahead)[0]
    assert difference == pytest.approx(2 * lagrangian(w)[1] @ ahead, rel=1e-4)


def test_a_descent_ends_at_the_least_point_that_is_not_negative() -> None:
    random = np.random.default_rng(1)
    matrix, wanted = random.normal(size=(40, 20)), random.normal(size=40)

    def squares(x: Floats) -> tuple[float, Floats]:
        rest = matrix @ x - wanted
        return float(rest @ rest), 2 * matrix.T @ rest

    found = descended(squares, np.ones(20), 200)
    value, slope = squares(found)
    assert (found >= 0).all()
    assert (found == 0).any()
    assert (slope[found == 0] > 0).all()  # the conditions of Karush, Kuhn and Tucker
    assert np.abs(slope[found > 0]).max() < 1e-2
    assert value - np.linalg.lstsq(matrix[:, found > 0], wanted)[1] == pytest.approx(0, abs=1e-6 * value)


# ---- plans


@pytest.mark.parametrize("seed", range(5))
def test_a_dive_is_feasible_and_better_than_rounding(seed: int) -> None:
    instance = drawn(seed, jobs=30, nodes=12)
    relaxation, found = relaxed(instance)
    columns = relaxation.columns
    at_once = rounded(columns, relaxation.master.rows, relaxation.shares(found))
    dived = dive(relaxation.master, relaxation.tighten(found))
    feasible(instance, at_once)
    feasible(instance, dived)
    assert columns.value[dived].sum() >= columns.value[at_once].sum() * 0.999


@pytest.mark.parametrize("seed", range(5))
def test_a_priced_dive_is_feasible_and_nearly_as_good_as_a_dive(seed: int) -> None:
    instance = drawn(seed, jobs=30, nodes=12)
    relaxation, found = relaxed(instance)
    dived = dive(relaxation.master, relaxation.tighten(found))
    columns, ways = legs(instance)
    dived_by_price = priced_dive(columns, ways[-1], Meter(search(instance)))
    feasible(instance, dived_by_price)
    assert columns.value[dived_by_price].sum() >= columns.value[dived].sum() * 0.97


def test_small_gangs_leave_whole_nodes_to_large_ones() -> None:
    """Thirty nodes alike, just enough for everybody if no single GPU stands on a node that a gang needs."""
    random, nodes = np.random.default_rng(1), 30
    jobs = [8] * 20 + [4] * 10 + [1] * 40
    rows = [(job, {node: size}, 1.0) for job, size in enumerate(jobs) for node in range(nodes)]
    instance = problem([8] * nodes, (np.array(jobs) * random.uniform(0.8, 1.2, len(jobs))).tolist(), rows)
    relaxation, found = relaxed(instance)
    feasible(instance, dived := dive(relaxation.master, relaxation.tighten(found)))
    assert relaxation.columns.value[dived].sum() >= 0.99 * found.bound
    columns, ways = legs(instance)
    assert columns.value[priced_dive(columns, ways[-1], Meter(search(instance)))].sum() >= 0.99 * found.bound


def test_a_part_is_a_problem_of_its_own() -> None:
    instance = drawn(1)
    columns = columns_of(instance)
    jobs = np.arange(instance.jobs) % 2 == 0
    free = np.where(np.arange(len(instance.capacity)) < 3, instance.capacity, 0).astype(np.int32)
    part = subproblem_of(columns, jobs, free)
    assert part is not None
    assert set(instance.job[part.rows].tolist()) <= set(np.flatnonzero(jobs).tolist())
    assert part.problem.value == pytest.approx(instance.value[part.rows])
    for index, row in enumerate(part.rows):
        own = slice(part.problem.start[index], part.problem.start[index + 1])
        whole = slice(instance.start[row], instance.start[row + 1])
        assert part.problem.gpus[own].tolist() == instance.gpus[whole].tolist()
        assert (instance.node[whole] < 3).all()


def test_a_neighbourhood_planned_again_is_worth_more_each_time() -> None:
    instance = drawn(3, jobs=40, nodes=16)
    relaxation, found = relaxed(instance)
    start = greedy(instance).choice
    columns = relaxation.columns

    def plan(small: Problem) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
        choice = solve(small, Effort(gap=0.02, modelled=True)).choice
        chosen: np.ndarray[tuple[int], np.dtype[np.int32]] = choice[choice != NOTHING]
        return chosen

    values = [worth(instance, choice) for choice in improvements(columns, found, start, plan)]
    assert values
    assert values == sorted(values)
    assert values[0] > worth(instance, start)


# ---- branching


def best_with(instance: Problem, row: int) -> float:
    """What the best plan that holds a configuration is worth."""
    own = slice(instance.start[row], instance.start[row + 1])
    free = instance.capacity.copy()
    free[instance.node[own]] -= instance.gpus[own]
    others = restricted(instance, np.flatnonzero(instance.job != instance.job[row]).astype(np.int32))
    fits = np.array([(use(others, [one]) <= free).all() for one in range(len(others))])
    rest = restricted(others, np.flatnonzero(fits).astype(np.int32))
    return float(instance.value[row]) + by_hand(msgspec.structs.replace(rest, capacity=free))


@pytest.mark.parametrize("gap", [0.0, 0.02, 0.1])
@pytest.mark.parametrize("seed", range(4))
def test_branching_leaves_out_only_columns_of_no_better_plan(seed: int, gap: float) -> None:
    instance = drawn(seed, jobs=4, nodes=2)
    relaxation, found = relaxed(instance)
    searching = search(instance, Effort(gap=gap, modelled=True))
    searching.offer(rounded(relaxation.columns, relaxation.master.rows, relaxation.shares(found)))
    assert searching.target == pytest.approx(searching.best.objective / (1 - gap))
    left_out = np.setdiff1d(np.arange(len(instance)), undecided(relaxation.columns, found, searching.target))
    assert len(left_out)
    assert max(best_with(instance, int(row)) for row in left_out) <= searching.target * (1 + 1e-6)


def test_branching_over_little_proves_no_more_than_the_tolerated_gap() -> None:
    instance = drawn(4, jobs=5, nodes=2)
    columns, searching = columns_of(instance), search(instance, Effort(gap=0.1, modelled=True))
    rows, meter = np.array(chosen(searching.best), dtype=np.int32), Meter(searching)
    branch(searching, tightened(columns, rows, meter), meter, nodes=None, whole=True)
    assert searching.best.bound == pytest.approx(searching.target)
    assert searching.done


@pytest.mark.parametrize("budget_s", [0.02, 0.08])
def test_branching_ends_with_the_modelled_effort(budget_s: float) -> None:
    instance = drawn(2, jobs=30, nodes=12)
    whole = solve(instance, Effort(gap=0.0, modelled=True))
    cut = solve(instance, Effort(gap=0.0, budget_s=budget_s, modelled=True))
    is_sound(instance, cut)
    assert cut.seconds < 2 * budget_s < whole.seconds
    assert cut.objective <= whole.objective <= cut.bound * (1 + 1e-9)


def crowded(nodes: int = 80, jobs: int = 160) -> Problem:
    """More work than GPUs, servers that differ by a few per cent: greedy is far from the best."""
    random = np.random.default_rng(3)
    rows: list[Row] = []
    for number in range(jobs):
        speed, scaling = random.uniform(0.5, 1.5, 2), random.uniform(0.6, 1.0)
        own = 1.0 + 0.03 * random.standard_normal((nodes, 4))
        rows += [
            (number, {place: gpus}, float(gpus**scaling * speed[place % 2] * own[place, size]))
            for place in range(nodes)
            for size, gpus in enumerate((1, 3, 5, 8))
        ]
    return problem([8] * nodes, random.uniform(0.05, 1.5, jobs).tolist(), rows)


def test_a_large_cluster_is_planned_within_the_gap() -> None:
    instance = crowded()
    assert greedy(instance).gap > 0.05
    solution = solve(instance, Effort(gap=0.002, modelled=True))
    is_sound(instance, solution)
    assert solution.gap <= 0.002
    assert solution.seconds > 0


@pytest.mark.parametrize("budget_s", [0.02, 0.05, 0.1])
def test_a_large_plan_cut_short_is_sound_and_its_bound_holds(budget_s: float) -> None:
    instance = crowded()
    best = solve(instance, Effort(gap=0.002, modelled=True))
    cut = solve(instance, Effort(gap=0.002, budget_s=budget_s, modelled=True))
    is_sound(instance, cut)
    assert cut.objective >= greedy(instance).objective
    assert cut.bound >= best.objective * (1 - 1e-9)
    assert cut.seconds <= 2 * budget_s + 0.05


def test_the_scale_of_weights_does_not_change_a_large_plan() -> None:
    instance = crowded()
    light = msgspec.structs.replace(instance, weight=instance.weight * 1e-15)
    one, other = (solve(each, Effort(gap=0.002, modelled=True)) for each in (instance, light))
    assert other.gap <= 0.002
    assert other.seconds <= 2 * one.seconds


@pytest.mark.parametrize("seed", range(4))
def test_gangs_of_threes_are_planned_as_gangs_of_ones(seed: int) -> None:
    instance = drawn(seed)
    tripled = msgspec.structs.replace(
        instance, capacity=instance.capacity * 3 + 2, gpus=instance.gpus * 3
    )  # two GPUs of each node serve nobody
    ones, threes = solve(instance, MODELLED), solve(tripled, MODELLED)
    assert threes.choice.tolist() == ones.choice.tolist()
    assert threes.bound == pytest.approx(ones.bound, rel=1e-9)
    is_sound(tripled, threes)


def test_nodes_without_idle_gpus_change_nothing() -> None:
    instance = drawn(2)
    more = msgspec.structs.replace(instance, capacity=np.append(instance.capacity, [0, 0]).astype(np.int32))
    assert solve(more, MODELLED).objective == solve(instance, MODELLED).objective
