"""Who runs where in a round of Gavel, and what is remembered of it."""

from collections.abc import Sequence

import msgspec
import numpy as np
import pytest

from schemas.ids import JobId
from schemas.placement import Configuration
from services.planner.policies.gavel.memory import Entry, Memory, Now, read, received_since, written
from services.planner.policies.gavel.placing import Gpus, RoundJob, consolidated, in_worker_order
from services.planner.policies.gavel.rounds import (
    NEVER_RUN,
    deficits,
    fastest_first,
    priorities,
    reset_due,
    taken,
)
from services.planner.policies.gavel.shares import Demand
from services.planner.policies.kit.gangs import pools
from services.planner.policies.kit.type_order import listed_first
from tests.services.planner.planner_builders import FAST, SLOW, nodes, place_on


def order(
    *priority: tuple[float, ...],
    gang: Sequence[int] = (),
    free: Sequence[int] = (1, 1),
    deficit: Sequence[float] = (),
    owed_only: bool = False,
) -> list[tuple[int, int]]:
    table = np.array(priority)
    owed = np.array(deficit or [0.0] * len(table))[:, None] * np.ones(table.shape)
    return taken(
        table,
        owed,
        table,
        speed=np.ones(table.shape),
        gang=np.array(gang or [1] * len(table), dtype=np.int32),
        free=np.array(free, dtype=np.int32),
        order=range(table.shape[1]),
        owed_only=owed_only,
    )


# ---- priorities


def test_a_priority_is_the_share_due_by_the_share_received() -> None:
    share, speed = np.array([[0.6, 0.0], [0.4, 0.5]]), np.array([[1.0, 1.0], [1.0, 0.0]])
    time = np.array([[100.0, 50.0], [300.0, 50.0]])
    result = priorities(share, speed, time, time.sum(axis=0))
    assert result == pytest.approx(np.array([[0.6 / 0.25, 0.0], [0.4 / 0.75, 0.0]]))


def test_who_has_received_no_time_comes_before_all_others() -> None:
    """Of the first type the second job has had none; of the second type no job has."""
    share, time = (
        np.array([[0.6, 0.2], [0.1, 0.0], [0.0, 0.3]]),
        np.array([[0.5, 0.0], [0.0, 0.0], [0.5, 0.0]]),
    )
    result = priorities(share, np.ones(share.shape), time, time.sum(axis=0))
    assert result.tolist() == [[1.2, 0.2 * NEVER_RUN], [0.1 * NEVER_RUN, 0.0], [0.0, 0.3 * NEVER_RUN]]
    assert np.sort(result[:, 0]).tolist() == [0.0, 1.2, 1e8]


def test_a_deficit_is_what_was_due_less_what_was_received() -> None:
    before, share, received = np.array([[5.0, -7.0]]), np.array([[0.5, 0.25]]), np.array([[30.0, 50.0]])
    assert deficits(before, share, received, 100.0).tolist() == [[25.0, -32.0]]


def test_the_least_served_run_first_and_on_one_type_only() -> None:
    assert order((1.0, 9.0), (2.0, 1.0)) == [(1, 0), (0, 1)]


def test_a_deficit_decides_between_equals_and_then_the_earlier_job() -> None:
    assert order((1.0,), (1.0,), (1.0,), free=(3,), deficit=(0.0, 5.0, 0.0)) == [(1, 0), (0, 0), (2, 0)]


def test_of_equal_priority_and_deficit_the_larger_share_is_first() -> None:
    found = taken(
        np.ones((3, 1)),
        np.zeros((3, 1)),
        np.array([[0.2], [0.3], [0.2]]),
        speed=np.ones((3, 1)),
        gang=np.ones(3, dtype=np.int32),
        free=np.array([2], dtype=np.int32),
        order=[0],
        owed_only=False,
    )
    assert found == [(1, 0), (0, 0)]


def test_no_job_runs_on_a_type_on_which_it_has_no_speed() -> None:
    """Not even on GPUs that are left over."""
    found = taken(
        np.array([[0.0, 0.0], [1.0, 0.0]]),
        np.zeros((2, 2)),
        np.zeros((2, 2)),
        speed=np.array([[0.0, 2.0], [1.0, 0.5]]),
        gang=np.ones(2, dtype=np.int32),
        free=np.array([2, 2], dtype=np.int32),
        order=[0, 1],
        owed_only=False,
    )
    assert found == [(1, 0), (0, 1)]


def test_a_gang_that_does_not_fit_is_passed_over() -> None:
    assert order((3.0,), (2.0,), (1.0,), gang=(3, 4, 1), free=(4,)) == [(0, 0), (2, 0)]


@pytest.mark.parametrize(("owed_only", "expected"), [(False, [(0, 0), (1, 1)]), (True, [(0, 0)])])
def test_left_over_gpus_serve_jobs_without_a_share(
    *, owed_only: bool, expected: list[tuple[int, int]]
) -> None:
    assert order((1.0, 0.0), (0.0, 0.0), owed_only=owed_only) == expected


def test_the_type_on_which_jobs_come_closest_to_their_best_is_first() -> None:
    assert fastest_first(np.array([[1.0, 2.0], [30.0, 20.0], [1.0, 9.0]])) == [1, 0]
    # 0.9 + 0.9 + 1/3, 1 + 1/3 + 1/3 and 0.1 + 1 + 1: the first is no job's best
    assert fastest_first(np.array([[0.9, 1.0, 0.1], [2.7, 1.0, 3.0], [0.1, 0.1, 0.3]])) == [0, 2, 1]
    assert fastest_first(np.array([[0.1, 0.3], [0.3, 0.1]])) == [0, 1]


def test_types_that_are_not_listed_come_after_those_that_are() -> None:
    assert listed_first(("a", "b", "c", "d"), ["d", "z", "b"]) == [3, 1, 0, 2]


@pytest.mark.parametrize(
    ("last", "at", "changed", "authors", "due"),
    [
        (None, 5.0, True, False, True),
        (100.0, 2020.0, True, False, True),
        (100.0, 2021.0, True, False, True),
        (100.0, 2019.0, True, False, False),
        (100.0, 2019.0, True, True, False),
        (100.0, 9999.0, False, False, False),
        (0.0, 360.0, True, False, False),
        (0.0, 360.0, True, True, True),
    ],
)
def test_shares_hold_for_a_while(
    *, last: float | None, at: float, changed: bool, authors: bool, due: bool
) -> None:
    assert reset_due(at=at, last=last, interval_s=1920.0, changed=changed, authors=authors) is due


# ---- places

CLUSTER = (*nodes(4, 4), *nodes(4, gpu_type=SLOW))
POOLS = pools((node.node_id, node.gpu_type, node.gpus) for node in CLUSTER)
IDLE = {node.node_id: node.idle for node in CLUSTER}


def run(name: str, gpus: int, **held: int) -> RoundJob:
    return RoundJob(job_id=JobId(name), gpus=gpus, gpu_type=FAST, held=place_on(**held))


def places(*runs: RoundJob) -> dict[str, Configuration]:
    return {str(job_id): place for job_id, place in consolidated(runs, POOLS, IDLE).items()}


def test_a_job_keeps_its_gpus() -> None:
    assert places(run("x", 2, a1=2), run("y", 2, a0=1, a1=1))["y"] == place_on(a0=1, a1=1)


def test_a_newcomer_moves_no_job_without_need() -> None:
    assert places(run("new", 4), run("x", 1, a0=1)) == {"new": place_on(a1=4), "x": place_on(a0=1)}


def test_a_larger_gang_is_whole_before_a_smaller_one_stays() -> None:
    result = places(run("x", 1, a0=1), run("y", 1, a1=1), run("large", 4))
    assert result == {"large": place_on(a0=4), "y": place_on(a1=1), "x": place_on(a1=1)}


def test_the_authors_split_a_gang_that_one_node_would_hold() -> None:
    runs = [run("x", 3, a0=3), run("y", 3)]
    assert in_worker_order(runs, CLUSTER, {})[JobId("y")] == {"a0": (3,), "a1": (0, 1)}
    assert consolidated(runs, POOLS, IDLE)[JobId("y")] == place_on(a1=3)


def test_the_authors_keep_room_for_a_job_without_shares_and_leave_it_empty() -> None:
    unknown = RoundJob(job_id=JobId("new"), gpus=2, gpu_type=FAST, known=False)
    assert in_worker_order([unknown, run("x", 1)], CLUSTER, {}) == {JobId("x"): {"a0": (0,)}}


def test_the_authors_number_of_a_gpu_is_kept_beside_a_job_outside_the_view() -> None:
    """Of a node of 4 the plan may use 2. The job that has the numbers 2 and 3 stays."""
    [left] = [msgspec.structs.replace(node, idle=2, gpus=2) for node in CLUSTER if node.node_id == "a0"]
    before: dict[JobId, Gpus] = {JobId("x"): {left.node_id: (2, 3)}}
    assert in_worker_order([run("y", 2), run("x", 2, a0=2)], [left], before)[JobId("x")] == before[JobId("x")]


# ---- memory


def test_jobs_that_received_the_same_since_shares_were_computed_tie() -> None:
    """Whatever they received before: differences of sums of seconds differ in their last digits."""
    before = {JobId("x"): 0.1, JobId("y"): 1e5 / 3, JobId("z"): 0.0}
    began, lately = 1e5 / 7, 359.97 + 357.3
    entries = {name: Entry(share={FAST: 1.0}, received={FAST: life}) for name, life in before.items()}
    kept = Memory(at=began, jobs=entries)
    now = Now(
        at=began + lately,
        jobs=tuple(before),
        types=(FAST,),
        demand=Demand(speed=np.ones((3, 1)), gang=np.ones(3), gpus=np.ones(1), weight=np.ones(3)),
        received=np.array([[life + lately] for life in before.values()]),
        done=np.zeros(3),
        left=np.ones(3),
        elapsed=np.zeros(3),
        priority=(1.0,) * 3,
    )
    assert received_since(kept, now) == pytest.approx(lately, abs=1e-8)
    assert len(set(received_since(kept, now).ravel().tolist())) == 1
    again = written(kept, now, np.ones((3, 1)), complete=True)
    assert [entry.deficit for entry in again.jobs.values()] == [{}, {}, {}]


def test_a_memory_survives_the_wire() -> None:
    entry = Entry(share={FAST: 0.1}, received={FAST: 1 / 3}, deficit={SLOW: -7.0}, left=5.0)
    kept = Memory(at=3.0, gpus={FAST: 8.0}, jobs={JobId("x"): entry})
    assert read(msgspec.msgpack.encode(kept)) == kept


@pytest.mark.parametrize("memory", [b"", b"nonsense", msgspec.msgpack.encode(Memory(version=99, at=1.0))])
def test_an_unreadable_memory_is_an_empty_one(memory: bytes) -> None:
    assert read(memory) == Memory()
