"""Shares of GPUs: who gets which, and what holds of every plan."""

from collections import Counter

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.planner.policies.hare.blocks import FULL, RESIDENTS_MOST, Block, BlockJob, blocks, components
from services.planner.policies.hare.rotas import TURNS_MOST, rota_of

ALL = 4


def wants(
    tasks: int, *task_s: float, exchange_s: float = 0.0, liked: frozenset[int] = frozenset()
) -> BlockJob:
    return BlockJob(tasks=tasks, task_s=np.array(task_s), exchange_s=lambda _: exchange_s, liked=liked)


def test_tasks_go_to_where_they_end_first() -> None:
    """Three times as fast: three tasks in place of one."""
    [own] = blocks([wants(4, 0.2, 0.6)], 2)
    assert own.tasks == {0: 3, 1: 1}
    assert own.round_s == pytest.approx(0.6)


def test_what_an_exchange_leaves_goes_to_the_next_job() -> None:
    """The first job computes for 0.6 s of 0.8; a quarter of each GPU is left."""
    first, second = blocks([wants(2, 0.6, 0.6, exchange_s=0.2), wants(1, 0.1, 0.1)], 2)
    assert first.round_s == pytest.approx(0.8)
    assert second.round_s == pytest.approx(0.1 / 0.25)
    assert second.tasks == {0: 1}


def test_a_gpu_that_is_spoken_for_takes_no_more() -> None:
    assert [one.job for one in blocks([wants(1, 1.0), wants(1, 1.0)], 1)] == [0]


def test_a_job_that_can_use_no_gpu_that_is_left_gets_none() -> None:
    nowhere = wants(1, 1.0, np.inf)
    assert [one.job for one in blocks([wants(1, 1.0, 1.0), nowhere, wants(1, 1.0, 1.0)], 2)] == [0, 2]


def test_of_gpus_as_good_a_job_takes_those_that_it_likes() -> None:
    [own] = blocks([wants(1, 1.0, 1.0, 1.0, liked=frozenset({2}))], 3)
    assert own.tasks == {2: 1}


def test_no_job_has_tasks_in_two_rooms() -> None:
    """Two GPUs that anybody may have, and a rota on two faster ones."""
    plan = blocks([wants(4, 1.0, 1.0, 0.9, 0.9), wants(4, 1.0, 1.0, 0.9, 0.9)], 4, [[0, 1], [2, 3]])
    assert [one.tasks for one in plan] == [{2: 2, 3: 2}, {0: 2, 1: 2}]


def test_a_job_that_keeps_its_tasks_has_what_is_left_and_some_turns_in_any_case() -> None:
    stays = msgspec.structs.replace(wants(2, 1.0, 1.0), kept={0: 1, 1: 1})
    before = wants(2, 1.0, 1.0)
    first, second = blocks([before, stays], 2, [[], [0, 1]])
    assert (first.tasks, second.tasks) == ({0: 1, 1: 1}, {0: 1, 1: 1})
    assert second.round_s == pytest.approx(1.0 / (1.0 - FULL))
    assert [one.job for one in blocks([stays, before], 2, [[]])] == [0]


def test_a_gpu_takes_turns_between_so_many_jobs_at_the_most() -> None:
    """Each computes for a hundredth of its round."""
    queue = [wants(1, 0.1, 0.1, exchange_s=9.9) for _ in range(2 * RESIDENTS_MOST + 1)]
    assert residents(blocks(queue, 2)) == {0: RESIDENTS_MOST, 1: RESIDENTS_MOST}
    assert residents(blocks(queue, 2, residents_max=1)) == {0: 1, 1: 1}


def test_jobs_that_keep_a_gpu_are_counted_before_those_that_come_to_it() -> None:
    stays = msgspec.structs.replace(wants(1, 0.1, 0.2, exchange_s=9.9), kept={0: 1})
    others = [wants(1, 0.1, 0.2, exchange_s=9.9) for _ in range(2)]
    assert residents(blocks([*others, stays, stays], 2, residents_max=3)) == {0: 3, 1: 1}
    assert residents(blocks([*others, stays, stays], 2, residents_max=1)) == {0: 2, 1: 1}


def residents(plan: list[Block]) -> Counter[int]:
    return Counter(gpu for one in plan for gpu in one.tasks)


@st.composite
def queues(draw: st.DrawFn) -> list[BlockJob]:
    def seconds() -> float:
        return draw(st.integers(1, 60)) / 10

    return [
        wants(
            draw(st.integers(1, 6)),
            *[draw(st.sampled_from([np.inf, seconds(), seconds()])) for _ in range(ALL)],
            exchange_s=draw(st.sampled_from([0.0, 0.3, 2.0])),
        )
        for _ in range(draw(st.integers(1, 6)))
    ]


def load(plan: list[Block], queue: list[BlockJob], gpu: int) -> float:
    return sum(
        one.tasks[gpu] * float(queue[one.job].task_s[gpu]) / one.round_s for one in plan if gpu in one.tasks
    )


@given(queues())
def test_no_gpu_is_promised_for_more_than_all_its_time(queue: list[BlockJob]) -> None:
    plan = blocks(queue, ALL)
    assert all(load(plan, queue, gpu) <= 1.0 + 1e-9 for gpu in range(ALL))


@given(queues(), st.integers(1, 4))
def test_no_gpu_has_more_jobs_than_it_may_hold(queue: list[BlockJob], most: int) -> None:
    assert max(residents(blocks(queue, ALL, residents_max=most)).values(), default=0) <= most


@given(queues())
def test_every_round_has_its_tasks_and_they_are_where_they_can_run(queue: list[BlockJob]) -> None:
    for one in blocks(queue, ALL):
        assert sum(one.tasks.values()) == queue[one.job].tasks
        assert all(np.isfinite(queue[one.job].task_s[gpu]) for gpu in one.tasks)


@given(queues())
def test_who_gets_no_gpu_finds_those_that_it_can_use_spoken_for(queue: list[BlockJob]) -> None:
    plan = blocks(queue, ALL)
    for number in set(range(len(queue))) - {one.job for one in plan}:
        usable = np.flatnonzero(np.isfinite(queue[number].task_s)).tolist()
        assert all(load(plan, queue, gpu) >= FULL - 1e-9 for gpu in usable)


@given(queues())
def test_a_later_job_changes_nothing_for_those_before_it(queue: list[BlockJob]) -> None:
    assert blocks(queue[:-1], ALL) == [one for one in blocks(queue, ALL) if one.job < len(queue) - 1]


@given(queues())
def test_jobs_that_share_a_gpu_are_in_one_rota_and_others_are_not(queue: list[BlockJob]) -> None:
    groups = list(components(blocks(queue, ALL)))
    gpus = [{gpu for one in group for gpu in one.tasks} for group in groups]
    assert sum(map(len, gpus)) == len(set().union(*gpus))
    for group in groups:
        reached, rest = set(group[0].tasks), list(group[1:])
        while near := [one for one in rest if reached & one.tasks.keys()]:
            reached |= {gpu for one in near for gpu in one.tasks}
            rest = [one for one in rest if one not in near]
        assert not rest


@given(queues())
def test_a_rota_has_turns_for_all_and_no_more_than_the_time_there_is(queue: list[BlockJob]) -> None:
    for group in components(blocks(queue, ALL)):
        task_s = {one.job: queue[one.job].task_s for one in group}
        rota = rota_of(group, task_s, {one.job: 10.0 for one in group}, 0.003)
        assert all(1 <= one.turns <= TURNS_MOST for one in rota.members)
        assert sum(one.share for one in rota.members) == pytest.approx(1.0)
        for one in rota.members:
            busiest_s = max(
                tasks * float(task_s[one.block.job][gpu]) for gpu, tasks in one.block.tasks.items()
            )
            assert rota.cycle_s >= one.turns * (busiest_s + one.block.exchange_s) - 1e-9


def test_a_job_of_rounds_a_seventh_as_long_has_seven_turns_of_one() -> None:
    queue = [wants(1, 0.9, exchange_s=2.1), wants(1, 0.3)]
    group = blocks(queue, 1)
    assert [one.round_s for one in group] == pytest.approx([3.0, 0.3 / 0.7])
    rota = rota_of(group, {0: queue[0].task_s, 1: queue[1].task_s}, {0: 1.0, 1: 1.0}, 0.0)
    assert [one.turns for one in rota.members] == [1, 7]
    assert rota.cycle_s == pytest.approx(3.0)
