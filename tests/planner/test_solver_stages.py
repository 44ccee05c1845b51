"""Our own back end, stage by stage: facets, prices, dives, parts, neighbourhoods."""

import itertools
from collections.abc import Iterator

import msgspec
import numpy as np
import pytest
from scipy.optimize import linprog
from solver_builders import by_hand, drawn, problem

from services.planner.greedy import greedy
from services.planner.problem import NOTHING, Problem, worth
from services.planner.solver import solve
from services.planner.solver.clock import Clock
from services.planner.solver.coarse import coarse
from services.planner.solver.columns import columns_of
from services.planner.solver.dive import dive, rounded
from services.planner.solver.facets import facets
from services.planner.solver.improve import improvements
from services.planner.solver.parts import divided, part_of
from services.planner.solver.relaxation import Bounded, Relaxation, beginning
from services.planner.solver.search import Search
from services.planner.view import Effort

MODELLED = Effort(modelled=True)


def gangs(gpus: int, largest: int | None = None) -> Iterator[tuple[int, ...]]:
    """All ways to fill a node."""
    if not gpus:
        yield ()
    for size in range(min(gpus, largest or gpus), 0, -1):
        yield from ((size, *rest) for rest in gangs(gpus - size, size))


def search(instance: Problem, effort: Effort = MODELLED) -> Search:
    return Search(instance, effort, greedy(instance), np.inf)


def relaxed(instance: Problem) -> tuple[Relaxation, Bounded]:
    columns, clock = columns_of(instance), Clock(search(instance))
    relaxation = Relaxation(columns, clock, gap=0.001, told=lambda _: False, begin=beginning(columns))
    return relaxation, relaxation.relax()


def wide(nodes: int = 136) -> Problem:
    """More nodes than are planned in one part, on two GPUs each."""
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
def test_the_facets_leave_nothing_but_what_whole_gangs_are_worth(gpus: int) -> None:
    """For any prices on sizes, the best fraction within the facets is worth what the best gangs are."""
    random = np.random.default_rng(gpus)
    limits = np.vstack([facets(gpus)[:, 1:], np.arange(1, gpus + 1) / gpus])
    for price in random.uniform(0, 1, (20, gpus)) * np.arange(1, gpus + 1) ** 0.9:
        whole = max(price[np.array(gang) - 1].sum() for gang in gangs(gpus))
        assert -linprog(-price, A_ub=limits, b_ub=np.ones(len(limits))).fun == pytest.approx(whole)


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


def test_prices_of_blocks_bound_the_whole() -> None:
    instance = wide()
    columns = columns_of(instance)
    asked = search(instance)
    rough = coarse(columns, Clock(asked), asked)
    solution = solve(instance, Effort(gap=0.002, modelled=True))
    assert rough.found.bound >= solution.objective
    assert rough.found.bound <= solution.objective * 1.1


# ---- plans


@pytest.mark.parametrize("seed", range(5))
def test_a_dive_is_feasible_and_better_than_rounding(seed: int) -> None:
    instance = drawn(seed, jobs=30, nodes=12)
    relaxation, found = relaxed(instance)
    columns = relaxation.columns
    at_once = rounded(columns, relaxation.master.rows, relaxation.shares(found))
    dived = dive(relaxation.master, relaxation.tighten(found))
    for rows in (at_once, dived):
        assert len(np.unique(instance.job[rows])) == len(rows)
        _, node, size = columns.cells(rows)
        assert (np.bincount(node, weights=size, minlength=12) <= instance.capacity).all()
    assert columns.value[dived].sum() >= columns.value[at_once].sum() * 0.999


def test_a_part_is_a_problem_of_its_own() -> None:
    instance = drawn(1)
    columns = columns_of(instance)
    jobs = np.arange(instance.jobs) % 2 == 0
    free = np.where(np.arange(len(instance.capacity)) < 3, instance.capacity, 0).astype(np.int32)
    part = part_of(columns, jobs, free)
    assert part is not None
    assert set(instance.job[part.rows].tolist()) <= set(np.flatnonzero(jobs).tolist())
    assert part.problem.value == pytest.approx(instance.value[part.rows])
    for index, row in enumerate(part.rows):
        own = slice(part.problem.start[index], part.problem.start[index + 1])
        whole = slice(instance.start[row], instance.start[row + 1])
        assert part.problem.gpus[own].tolist() == instance.gpus[whole].tolist()
        assert (instance.node[whole] < 3).all()


def test_parts_share_neither_jobs_nor_nodes() -> None:
    instance = wide()
    columns = columns_of(instance)
    rows = columns.dearest()
    parts = list(divided(columns, rows, np.ones(len(rows))))
    jobs = [set(instance.job[part.rows].tolist()) for part in parts]
    nodes = [set(columns.cells(part.rows)[1].tolist()) for part in parts]
    for one, other in itertools.combinations(range(len(parts)), 2):
        assert not jobs[one] & jobs[other]
        assert not nodes[one] & nodes[other]


def test_a_neighbourhood_planned_anew_is_worth_more_each_time() -> None:
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


def test_a_large_cluster_is_planned_within_the_gap() -> None:
    solution = solve(wide(), Effort(gap=0.01, modelled=True))
    assert solution.gap <= 0.01
    chosen = solution.choice[solution.choice != NOTHING]
    assert len(chosen) > 68


def test_nodes_without_idle_gpus_change_nothing() -> None:
    instance = drawn(2)
    more = msgspec.structs.replace(instance, capacity=np.append(instance.capacity, [0, 0]).astype(np.int32))
    assert solve(more, MODELLED).objective == solve(instance, MODELLED).objective
