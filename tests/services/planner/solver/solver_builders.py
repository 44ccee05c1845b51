"""Problems for the solver's tests, and what every solution must be."""

import itertools
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from services.planner.policies.contract.configurations import configurations_for
from services.planner.policies.kit.program import problem_of
from services.planner.solver.problem import NOTHING, Problem, Solution, restricted
from tests.services.planner.planner_builders import job, node

Row = tuple[int, dict[int, int], float]
"""job, GPUs by node, gain"""


def problem(capacity: Sequence[int], weights: Sequence[float], rows: Sequence[Row]) -> Problem:
    cells = [cell for _, place, _ in rows for cell in place.items()]
    lengths = [len(place) for _, place, _ in rows]
    return Problem(
        capacity=np.array(capacity, dtype=np.int32),
        weight=np.array(weights, dtype=np.float64),
        job=np.array([job for job, _, _ in rows], dtype=np.int32),
        start=np.array([0, *itertools.accumulate(lengths)], dtype=np.int32),
        node=np.array([node for node, _ in cells], dtype=np.int32),
        gpus=np.array([gpus for _, gpus in cells], dtype=np.int32),
        gain=np.array([gain for _, _, gain in rows], dtype=np.float64),
    )


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Small enough to try everything."""
    nodes = draw(st.integers(1, 3))
    capacity = [draw(st.integers(0, 4)) for _ in range(nodes)]
    jobs = draw(st.integers(1, 4))
    places = st.dictionaries(st.integers(0, nodes - 1), st.integers(1, 4), min_size=1, max_size=2)
    gains = st.one_of(st.sampled_from([1.0, 2.0]), st.floats(0.5, 8.0))
    rows = [(job, draw(places), draw(gains)) for job in range(jobs) for _ in range(draw(st.integers(0, 3)))]
    weights = st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0.01, 5.0))
    return problem(capacity, [draw(weights) for _ in range(jobs)], rows)


def drawn(seed: int, *, jobs: int = 14, nodes: int = 6, unlike: float = 0.02) -> Problem:
    """A first plan's problem, made by the planner's generation: two GPU types, some jobs sensitive.

    `unlike`: by how much servers of one type differ for a job, relative.
    """
    random = np.random.default_rng(seed)
    cluster = [node(f"n{index}", gpu_type="ab"[index % 2]) for index in range(nodes)]
    queue = [
        job(
            f"job-{index}",
            sorted(random.choice(np.arange(1, 13), int(random.integers(2, 6)), replace=False).tolist()),
            gpu_types=("a", "b"),
            sensitivity=float(random.uniform(1.0, 1.8)),
        )
        for index in range(jobs)
    ]
    wanted = configurations_for(queue, cluster, 1.4)
    total = np.add.reduceat(wanted.gpus, wanted.start[:-1])
    scaling, speed = random.uniform(0.6, 1.0, jobs), random.uniform(0.5, 1.5, (jobs, 2))
    own = 1.0 + unlike * random.standard_normal((jobs, nodes))
    first = wanted.node[wanted.start[:-1]]
    gain = total ** scaling[wanted.job] * speed[wanted.job, first % 2] * own[wanted.job, first]
    capacity = np.array([one.idle for one in cluster], dtype=np.int32)
    return problem_of(wanted, capacity, random.uniform(0.02, 1.5, jobs), gain)[0]


def permuted(instance: Problem, jobs: Sequence[int], nodes: Sequence[int]) -> Problem:
    """The same problem with job `i` as number `jobs[i]`, node `n` as number `nodes[n]`."""
    job = np.asarray(jobs, dtype=np.int32)[instance.job]
    turned = restricted(instance, np.argsort(job, kind="stable").astype(np.int32))
    return msgspec.structs.replace(
        turned,
        capacity=instance.capacity[np.argsort(nodes)],
        weight=instance.weight[np.argsort(jobs)],
        job=np.asarray(jobs, dtype=np.int32)[turned.job],
        node=np.asarray(nodes, dtype=np.int32)[turned.node],
    )


def use(instance: Problem, rows: Sequence[int]) -> npt.NDArray[np.int64]:
    """GPUs taken, by node."""
    used = np.zeros(len(instance.capacity), dtype=np.int64)
    for row in rows:
        cells = slice(instance.start[row], instance.start[row + 1])
        np.add.at(used, instance.node[cells], instance.gpus[cells])
    return used


def chosen(solution: Solution) -> list[int]:
    return [row for row in solution.choice.tolist() if row != NOTHING]


def by_hand(instance: Problem) -> float:
    """The best of all choices there are."""
    return max(float(instance.value[rows].sum()) for rows in _feasible(instance))


def _feasible(instance: Problem) -> Iterator[list[int]]:
    rows_of = [np.flatnonzero(instance.job == job).tolist() for job in range(instance.jobs)]
    takes = [use(instance, [row]).tolist() for row in range(len(instance))]

    def extended(rows: list[int], job: int, idle: list[int]) -> Iterator[list[int]]:
        if job == instance.jobs:
            yield rows
            return
        yield from extended(rows, job + 1, idle)
        for row in rows_of[job]:
            left = [have - take for have, take in zip(idle, takes[row], strict=True)]
            if min(left) >= 0:  # nothing that is added gives a GPU back
                yield from extended([*rows, row], job + 1, left)

    return extended([], 0, instance.capacity.tolist())


def is_sound(instance: Problem, solution: Solution) -> None:
    """Feasible; the objective is what the choice is worth; the bound is not below it."""
    rows = chosen(solution)
    assert len(solution.choice) == instance.jobs
    assert (use(instance, rows) <= instance.capacity).all()
    assert all(instance.job[row] == job for job, row in enumerate(solution.choice) if row != NOTHING)
    assert np.isclose(solution.objective, float(instance.value[rows].sum()), rtol=1e-9)
    assert solution.objective <= solution.bound < np.inf
