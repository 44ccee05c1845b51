"""Sia against the outputs of its authors' simulator."""

import json
from functools import cache
from typing import Any

import msgspec
import numpy as np
import pytest

from services.planner.policies.sia.ilp import Allocation, Goal, Market, allocate, gains
from services.planner.policies.sia.placement import Grant, in_turns
from services.planner.policies.sia.utilities import (
    discounted,
    normalised,
    power_sizes,
    projected,
    restart_factor,
    utilities,
    with_first_gains,
)
from services.planner.solver import solve
from services.planner.solver.effort import Effort
from services.planner.solver.problem import NOTHING
from shared.domain.arrays import Floats
from tests.paths import data

EXACT = Effort(gap=0.0, modelled=True, budget_s=1e6)
TOLERANCE = 1e-6
INVALID = 1e-4
"""the authors' goodput of what is no configuration of a job"""


@cache
def vectors(name: str) -> Any:  # noqa: ANN401 - JSON of somebody else
    return json.loads(data(f"golden/{name}").read_text())


def instances(name: str) -> list[Any]:
    return [pytest.param(case, id=case["id"]) for case in vectors(name)["instances"]]


class Grid:
    """The table of an instance: types × the GPU counts that occur."""

    def __init__(self, case: Any) -> None:  # noqa: ANN401
        self.types: list[str] = case["gpu_types"]
        rigid = {job["gpus"] for job in case.get("rigid", ())}
        self.sizes = np.array(sorted({one["gpus"] for one in case["configs"]} | rigid), dtype=np.int32)
        self.shape = (len(self.types), len(self.sizes))
        self.cells = [self.cell(one["gpu_type"], one["gpus"]) for one in case["configs"]]
        self.goal = Goal(power=case["p"], penalty=abs(case.get("lambda_no_alloc", case.get("lambda"))))

    def cell(self, gpu_type: str, gpus: int) -> int:
        return self.types.index(gpu_type) * len(self.sizes) + int(np.searchsorted(self.sizes, gpus))

    def utility(self, goodput: Floats, factor: Floats, present: list[int]) -> Floats:
        """From normalised goodput [J, T · K]; `present`: the cell each job holds, or NOTHING."""
        held = np.array(present)
        number = np.arange(np.prod(self.shape)).reshape(self.shape)
        table = goodput.reshape(-1, *self.shape)
        table = discounted(table, factor, held != NOTHING, number == held[:, None, None])
        return utilities(table, self.goal.power, rounded=True)

    def allocation(self, utility: Floats, capacity: dict[str, int], pinned: list[int]) -> Allocation:
        return allocate(
            gains(utility, self.goal),
            Market(
                capacity=np.array([capacity[name] for name in self.types], dtype=np.int32), sizes=self.sizes
            ),
            weight=np.ones(len(utility)),
            pinned=np.array(pinned, dtype=np.int32),
            solve=solve,
            effort=EXACT,
        )

    def objective(self, utility: Floats, cells: list[int]) -> float:
        """The paper's objective, of a choice; a cost where the power is negative."""
        gain = gains(utility, self.goal).reshape(len(utility), -1)
        total = sum(gain[job, cell] for job, cell in enumerate(cells) if cell != NOTHING)
        nobody = self.goal.penalty * len(utility)
        return float(nobody - total if self.goal.power < 0 else total - nobody)


# ---- the program alone


class Instance(msgspec.Struct):
    grid: Grid
    goodput: Floats
    factor: Floats
    present: list[int]
    pinned: list[int]


def instance(case: Any) -> Instance:  # noqa: ANN401
    """Its adaptive jobs, then its rigid ones."""
    grid = Grid(case)
    jobs = [*case["adaptive"], *case["rigid"]]
    goodput = np.full((len(jobs), int(np.prod(grid.shape))), np.nan)
    present = []
    for row, job in zip(goodput, jobs, strict=True):
        cells = grid.cells if "prev_config" in job else [grid.cell(name, job["gpus"]) for name in grid.types]
        row[cells] = job["goodput_normalized"]
        held = job["prev_config"] if "prev_config" in job else job["prev_gpu_type_index"]
        present.append(NOTHING if held is None else cells[held])
    pinned = [cell if job.get("pinned") else NOTHING for job, cell in zip(jobs, present, strict=True)]
    return Instance(grid, goodput, np.array([job["restart_factor"] for job in jobs]), present, pinned)


@pytest.mark.parametrize("case", instances("sia_ilp.json"))
def test_utilities_objective_and_choices_are_the_authors(case: Any) -> None:  # noqa: ANN401
    one = instance(case)
    grid, adaptive = one.grid, len(case["adaptive"])
    utility = grid.utility(one.goodput, one.factor, one.present)
    flat = utility.reshape(len(utility), -1)
    assert np.array_equal(flat[:adaptive, grid.cells], np.array(case["utility_matrix"]))
    for row, job, theirs in zip(
        flat[adaptive:], case["rigid"], case["utility_matrix_rigid"] or (), strict=True
    ):
        assert row[[grid.cell(name, job["gpus"]) for name in grid.types]].tolist() == theirs
    found = grid.allocation(utility, case["capacity"], one.pinned)
    assert grid.objective(utility, found.cell.tolist()) == pytest.approx(
        case["objective_exact"], abs=TOLERANCE
    )
    assert found.solution.gap <= TOLERANCE
    if case["solution_unique"]:
        assert found.cell[:adaptive].tolist() == [
            NOTHING if index is None else grid.cells[index] for index in case["chosen_config"].values()
        ]


# ---- whole rounds


def goodputs(case: Any, grid: Grid, jobs: list[Any]) -> Floats:  # noqa: ANN401
    """Normalised, projected where a type is unknown; NaN beyond what a job may have."""
    node_gpus = np.array([case["gpus_per_node"][name] for name in grid.types])[:, None]
    goodput = np.full((len(jobs), *grid.shape), np.nan)
    for table, job in zip(goodput, jobs, strict=True):
        for kind, name in enumerate(grid.types):
            if curve := job["goodput_fn"].get(name):
                spread = np.where(grid.sizes > node_gpus[kind], curve["beta_multinode"], 1.0)
                table[kind] = curve["g1"] * grid.sizes ** curve["alpha"] * spread
    single = np.array([[job["xput_1gpu"][name] for name in grid.types] for job in jobs])
    largest = np.array([max(job["max_replicas"].values()) for job in jobs])
    offered = np.zeros(grid.shape, dtype=bool)
    offered.flat[grid.cells] = True
    valid = offered & (grid.sizes <= largest[:, None, None])
    return with_first_gains(
        normalised(np.where(valid, projected(goodput, single, range(len(grid.types))), np.nan)), valid
    )


def factors(jobs: list[Any]) -> Floats:
    """By job: S depends on the model."""
    costs: dict[str, float] = vectors("sia_end_to_end.json")["restart_penalty_s"]
    own = [next((cost for model, cost in costs.items() if model in job["name"]), 30.0) for job in jobs]
    values = [
        restart_factor(np.array([job["age"]]), np.array([float(job["num_restarts"])]), cost)[0]
        for job, cost in zip(jobs, own, strict=True)
    ]
    return np.array(values)


@pytest.mark.parametrize("case", instances("sia_end_to_end.json"))
def test_configurations_are_the_authors(case: Any) -> None:  # noqa: ANN401
    ours = [
        (name, gpus)
        for name in case["gpu_types"]
        for gpus in power_sizes(case["gpus_per_node"][name], case["nodes"][name])
    ]
    assert ours == [(one["gpu_type"], one["gpus"]) for one in case["configs"]]


@pytest.mark.parametrize("case", instances("sia_end_to_end.json"))
def test_goodput_restart_factors_and_objective_are_the_authors(case: Any) -> None:  # noqa: ANN401
    grid = Grid(case)
    capacity = {name: case["nodes"][name] * case["gpus_per_node"][name] for name in grid.types}
    for recorded in case["rounds"]:
        jobs = recorded["jobs"]
        goodput = goodputs(case, grid, jobs).reshape(len(jobs), -1)
        theirs = np.array([recorded["goodput_normalized"][job["name"]] for job in jobs])
        assert np.nan_to_num(goodput[:, grid.cells], nan=INVALID) == pytest.approx(theirs, rel=2e-6)
        factor = factors(jobs)
        assert factor == pytest.approx([recorded["restart_factor"][job["name"]] for job in jobs], rel=1e-12)
        present = [NOTHING if job["prev_config"] is None else grid.cells[job["prev_config"]] for job in jobs]
        utility = grid.utility(goodput, factor, present)
        found = grid.allocation(utility, capacity, [NOTHING] * len(jobs)).cell.tolist()
        assert grid.objective(utility, found) == pytest.approx(recorded["objective_exact"], abs=TOLERANCE)
        if recorded["solution_unique"] and found != chosen(grid, recorded):
            # Unique to the last digit of single precision only; to two decimals it is a tie.
            assert grid.objective(utility, found) == pytest.approx(
                grid.objective(utility, chosen(grid, recorded)), abs=1e-9
            )


def chosen(grid: Grid, recorded: Any) -> list[int]:  # noqa: ANN401
    picks = (recorded["chosen_config"][job["name"]] for job in recorded["jobs"])
    return [NOTHING if index is None else grid.cells[index] for index in picks]


@pytest.mark.parametrize("case", instances("sia_end_to_end.json"))
def test_places_are_the_authors(case: Any) -> None:  # noqa: ANN401
    grid = Grid(case)
    for recorded in case["rounds"]:
        given = dict(zip((job["name"] for job in recorded["jobs"]), chosen(grid, recorded), strict=True))
        for kind, name in enumerate(grid.types):
            cells = {job: cell for job, cell in given.items() if cell // len(grid.sizes) == kind}
            claims = [Grant(gpus=int(grid.sizes[cell % len(grid.sizes)])) for cell in cells.values()]
            node_gpus = case["gpus_per_node"][name]
            places = in_turns(claims, [node_gpus] * case["nodes"][name], node_gpus)
            for job, place in zip(cells, places, strict=True):
                theirs = recorded["placement"][job]
                assert theirs["gpu_type"] == name
                assert [node for node, gpus in place.items() for _ in range(gpus)] == theirs[
                    "node_of_each_gpu"
                ]
