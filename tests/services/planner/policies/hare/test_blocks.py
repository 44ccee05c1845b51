"""Shares of GPUs: who gets which, and what holds of every plan."""

from collections import Counter
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.planner.policies.hare.blocks import blocks, components
from services.planner.policies.hare.parts import (
    FULL,
    RESIDENTS_MOST,
    TURNS_MOST,
    Block,
    BlockJob,
    HareRoom,
    Held,
)
from services.planner.policies.hare.rotas import RotaJob, rota_of

ALL = 4


def wants(
    tasks: int,
    *task_s: float,
    exchange_s: float = 0.0,
    between_s: float = 0.0,
    **more: Any,  # noqa: ANN401
) -> BlockJob:
    """`between_s`: what an exchange takes more where it is between GPUs."""

    def exchange(gpus: Sequence[int]) -> float:
        return exchange_s + (between_s if len(gpus) > 1 else 0.0)

    return BlockJob(tasks=tasks, task_s=task_s, exchange_s=exchange, **more)


def rooms(queue: list[BlockJob], gpus: int = ALL, **more: Any) -> list[HareRoom]:  # noqa: ANN401
    """On one node."""
    return blocks(queue, [range(gpus)], **more)


def plan_of(queue: list[BlockJob], gpus: int = ALL, **more: Any) -> list[Block]:  # noqa: ANN401
    found = [block for room in rooms(queue, gpus, **more) for block in room.blocks]
    return sorted(found, key=lambda block: block.job)


def test_tasks_go_to_where_they_end_first() -> None:
    """Three times as fast: three tasks in place of one."""
    [own] = plan_of([wants(4, 0.2, 0.6)], 2)
    assert own.tasks == {0: 3, 1: 1}
    assert own.round_s == pytest.approx(0.6)


@pytest.mark.parametrize("tasks", range(1, 9))
def test_no_other_division_of_its_tasks_has_a_shorter_round(tasks: int) -> None:
    draw = np.random.default_rng(tasks)
    for _ in range(20):
        task_s = draw.uniform(0.1, 2.0, 3)
        counts = [own for own in product(range(tasks + 1), repeat=3) if sum(own) == tasks]
        [own] = plan_of([wants(tasks, *task_s)], 3)
        assert own.round_s == pytest.approx(min(max(one * task_s) for one in counts))


def test_time_left_by_an_exchange_goes_to_the_next_job() -> None:
    """The first job computes for 0.6 s of 0.8; a quarter of each GPU is left."""
    first, second = plan_of([wants(2, 0.6, 0.6, exchange_s=0.2), wants(1, 0.1, 0.1)], 2)
    assert first.round_s == pytest.approx(0.8)
    assert second.round_s == pytest.approx(0.1 / 0.25)
    assert second.tasks == {0: 1}


def test_a_gpu_that_is_spoken_for_takes_no_more() -> None:
    assert [one.job for one in plan_of([wants(1, 1.0), wants(1, 1.0)], 1)] == [0]


@pytest.mark.parametrize(("busy_s", "jobs"), [(0.97, 2), (0.98, 1), (0.99, 1)])
def test_a_gpu_with_hardly_any_time_left_takes_no_more(busy_s: float, jobs: int) -> None:
    """Not even a job whose turns would be short; nor if other GPUs of its room have time left."""
    rest_s = 1.0 - busy_s
    assert len(plan_of([wants(1, busy_s, exchange_s=rest_s), wants(1, 1e-3)], 1)) == jobs
    queue = [
        wants(1, busy_s, np.inf, exchange_s=rest_s),
        wants(1, np.inf, 0.5, exchange_s=0.5),
        wants(1, 1e-3, np.inf),
    ]
    assert len(plan_of(queue, 2, held=[Held(gpus=(0, 1), jobs=frozenset({0, 1}))])) == jobs + 1


def test_a_job_may_have_only_the_gpus_of_a_room_that_no_other_uses() -> None:
    """Two tasks on one GPU of its own: on both it would share the first, and exchange between them."""
    queue = [wants(1, 1.0, np.inf, exchange_s=1.0), wants(2, 1.0, 1.0, between_s=0.5)]
    plan = plan_of(queue, 2, held=[Held(gpus=(0, 1), jobs=frozenset({0, 1}))])
    assert [(one.tasks, one.round_s) for one in plan] == [({0: 1}, 2.0), ({1: 2}, 2.0)]


def test_a_job_that_can_use_none_of_the_gpus_left_gets_no_gpu() -> None:
    nowhere = wants(1, 1.0, np.inf)
    assert [one.job for one in plan_of([wants(1, 1.0, 1.0), nowhere, wants(1, 1.0, 1.0)], 2)] == [0, 2]


def test_of_equal_gpus_a_job_takes_its_preferred_ones() -> None:
    [own] = plan_of([wants(1, 1.0, 1.0, 1.0, own_node_gpus=frozenset({2}))], 3)
    assert own.tasks == {2: 1}


def test_no_job_has_tasks_in_two_rooms() -> None:
    """Two GPUs, and two that are faster: the second job makes a room of those that are left."""
    plan = plan_of([wants(2, 1.0, 1.0, 0.9, 0.9), wants(4, 1.0, 1.0, 0.9, 0.9)])
    assert [one.tasks for one in plan] == [{2: 1, 3: 1}, {0: 2, 1: 2}]


def test_no_rota_grows_beyond_the_gpus_of_its_first_job() -> None:
    """Each leaves half of its GPU to a job that would have both."""
    queue = [wants(1, 1.0, 1.0, exchange_s=1.0), wants(1, 1.0, 1.0, exchange_s=1.0), wants(2, 1.0, 1.0)]
    assert [room.gpus for room in rooms(queue, 2)] == [(0,), (1,)]
    assert [one.tasks for one in plan_of(queue, 2)] == [{0: 1}, {1: 1}, {0: 2}]


def test_the_time_of_an_exchange_between_gpus_is_weighed() -> None:
    assert plan_of([wants(2, 1.0, 1.0, between_s=0.9)], 2)[0].tasks == {0: 1, 1: 1}
    assert plan_of([wants(2, 1.0, 1.0, between_s=1.1)], 2)[0].tasks == {0: 2}


def test_a_job_with_too_long_a_turn_for_the_others_waits() -> None:
    """A tenth of the GPU is left: rounds of the second would be 7.5 or 8.5 times as long as the first's."""
    first = wants(1, 0.9, exchange_s=0.1)
    assert len(plan_of([first, wants(1, 0.75)], 1)) == 2
    assert len(plan_of([first, wants(1, 0.85)], 1)) == 1


@pytest.mark.parametrize(("tasks", "task_s", "jobs"), [(4, 1.0, 2), (5, 1.0, 1), (1, 4.0, 2), (1, 4.01, 1)])
def test_rounds_are_at_most_eight_times_as_long_as_those_of_others(
    tasks: int, task_s: float, jobs: int
) -> None:
    """On half of a GPU, where the first job has a round a second."""
    assert len(plan_of([wants(1, 0.5, exchange_s=0.5), wants(tasks, task_s)], 1)) == jobs


def test_a_gpu_on_which_its_turns_are_too_long_does_not_keep_a_job_off_the_others_of_a_room() -> None:
    """On the first GPU a task would take 2 s beside rounds of 0.2 s."""
    queue = [
        wants(1, 0.1, np.inf, exchange_s=0.1),
        wants(1, np.inf, 2.0, exchange_s=2.0),
        wants(2, 1.0, 1.0),
    ]
    plan = plan_of(queue, 2, held=[Held(gpus=(0, 1), jobs=frozenset({0, 1}))])
    assert [one.tasks for one in plan] == [{0: 1}, {1: 1}, {1: 2}]
    assert plan[2].round_s == pytest.approx(4.0)


RUNS = Held(gpus=(0, 1), jobs=frozenset({1}))


def test_a_job_ahead_in_the_queue_joins_a_running_job_s_room_without_moving_it() -> None:
    queue = [wants(2, 1.0, 1.0, exchange_s=1.0), wants(2, 1.0, 1.0, exchange_s=1.0, moving_s=15.0)]
    [room] = rooms(queue, 2, held=[RUNS])
    assert (room.held, room.gpus, [block.job for block in room.blocks]) == (0, (0, 1), [0, 1])


@pytest.mark.parametrize(("moving_s", "kept"), [(3.0, False), (7.0, True)])
def test_a_room_ends_where_that_is_worth_its_jobs_starts(moving_s: float, kept: bool) -> None:  # noqa: FBT001
    """The room is of one GPU; on two a round is half as long: 5 s against 10 s, weighed by its worth."""
    queue = [wants(2, 1.0, 1.0, worth=5.0), wants(1, 1.0, 1.0, moving_s=moving_s)]
    found = rooms(queue, 2, held=[Held(gpus=(0,), jobs=frozenset({1}))])
    assert ([room.gpus for room in found if room.held == 0] == [(0,)]) is kept
    assert plan_of(queue, 2, held=[Held(gpus=(0,), jobs=frozenset({1}))])[0].tasks == (
        {1: 2} if kept else {0: 1, 1: 1}
    )


@pytest.mark.parametrize(("elsewhere_s", "moves"), [(0.9, False), (0.7, True)])
def test_a_job_does_not_move_for_slightly_shorter_rounds(elsewhere_s: float, moves: bool) -> None:  # noqa: FBT001
    job = wants(1, 1.0, elsewhere_s, worth=1e4, moving_s=15.0)
    [own] = plan_of([job], 2, held=[Held(gpus=(0,), jobs=frozenset({0}))])
    assert own.tasks == ({1: 1} if moves else {0: 1})


@pytest.mark.parametrize(("moving_s", "moves"), [(4.0, True), (6.0, False)])
def test_a_start_is_weighed_against_what_shorter_rounds_gain(moving_s: float, moves: bool) -> None:  # noqa: FBT001
    """Ten rounds of 3 s where it is; of 2 s elsewhere, which count 1.25 times, and the start."""
    job = wants(1, 3.0, 2.0, worth=10.0, moving_s=moving_s)
    [own] = plan_of([job], 2, held=[Held(gpus=(0,), jobs=frozenset({0}))])
    assert own.tasks == ({1: 1} if moves else {0: 1})


@pytest.mark.parametrize(("warm", "moves"), [((1,), True), ((0,), False)])
def test_a_start_where_processes_stand_by_costs_only_a_switch(warm: tuple[int, ...], moves: bool) -> None:  # noqa: FBT001
    job = wants(
        1, 3.0, 2.0, worth=10.0, moving_s=6.0, switching_s=4.0, stands_by=lambda gpus: set(gpus) <= {*warm}
    )
    [own] = plan_of([job], 2, held=[Held(gpus=(0,), jobs=frozenset({0}))])
    assert own.tasks == ({1: 1} if moves else {0: 1})


def test_a_switch_that_takes_longer_than_a_start_is_not_made() -> None:
    job = wants(1, 3.0, 2.0, worth=10.0, moving_s=4.0, switching_s=6.0, stands_by=lambda _: True)
    [own] = plan_of([job], 2, held=[Held(gpus=(0,), jobs=frozenset({0}))])
    assert own.tasks == {1: 1}


@pytest.mark.parametrize(("exchange_s", "joins"), [(1.0, True), (0.05, False), (0.0, False)])
def test_a_job_that_leaves_time_to_the_one_that_runs_does_not_drive_it_away(
    exchange_s: float,
    joins: bool,  # noqa: FBT001
) -> None:
    """6 s on the GPU of the other, 8 s on the idle one; the other's start takes 15 s."""
    new = wants(2, 3.0, 4.0, exchange_s=exchange_s, between_s=10.0)
    runs = wants(1, 1.0, 1.0, moving_s=15.0)
    plan = plan_of([new, runs], 2, held=[Held(gpus=(0,), jobs=frozenset({1}))])
    assert plan[0].tasks == ({0: 2} if joins else {1: 2})


def test_of_the_rooms_of_others_a_job_joins_the_fastest() -> None:
    new = wants(1, 0.5, 0.1, exchange_s=0.1)
    others = [wants(1, 0.1, 0.1, exchange_s=1.0, moving_s=15.0) for _ in range(2)]
    held = [Held(gpus=(gpu,), jobs=frozenset({gpu + 1})) for gpu in range(2)]
    assert [one.tasks for one in plan_of([new, *others], 2, held=held)] == [{1: 1}, {0: 1}, {1: 1}]


@pytest.mark.parametrize(("moving_s", "grows"), [(4.0, True), (6.0, False)])
def test_a_job_that_grows_pays_for_its_own_start_once(moving_s: float, grows: bool) -> None:  # noqa: FBT001
    """Ten rounds of 3 s on its GPU, of 2 s on two: 30 s against 25 s and the start."""
    job = wants(2, 1.0, 1.0, exchange_s=1.0, worth=10.0, moving_s=moving_s)
    [own] = plan_of([job], 2, held=[Held(gpus=(0,), jobs=frozenset({0}))])
    assert own.tasks == ({0: 1, 1: 1} if grows else {0: 2})


def test_a_new_room_may_take_over_the_gpus_of_several() -> None:
    """Two jobs hold a GPU each, which the first of the queue has together."""
    first = wants(2, 1.0, 1.0, worth=100.0)
    held = [Held(gpus=(gpu,), jobs=frozenset({gpu + 1})) for gpu in range(2)]
    others = [wants(1, 1.0, 1.0, moving_s=15.0) for _ in held]
    [room] = rooms([first, *others], 2, held=held)
    assert (room.gpus, room.held, [one.tasks for one in room.blocks]) == ((0, 1), None, [{0: 1, 1: 1}])


def test_a_new_room_takes_idle_gpus_before_those_of_others() -> None:
    """It needs two; one is idle, so only one of the two that are held is taken over."""
    first = wants(2, 1.0, 1.0, 1.0, worth=100.0)
    held = [Held(gpus=(gpu,), jobs=frozenset({job})) for gpu, job in ((0, 1), (1, 2))]
    plan = plan_of([first, *[wants(1, 1.0, 1.0, 1.0, moving_s=15.0)] * 2], 3, held=held)
    assert plan[0].tasks == {0: 1, 2: 1}


def test_gpus_that_a_new_room_leaves_of_another_make_a_room_of_their_own() -> None:
    """The first takes the second of two GPUs that the other holds, and one that is idle."""
    first = wants(2, np.inf, 1.0, 1.0, worth=100.0)
    other = wants(1, 1.0, 1.0, 1.0, moving_s=0.1)
    found = rooms([first, other], 3, held=[Held(gpus=(0, 1), jobs=frozenset({1}))])
    assert [(room.gpus, room.held) for room in found] == [((1, 2), None), ((0,), None)]


def test_a_job_has_the_gpus_of_one_node_where_an_exchange_between_nodes_takes_longer() -> None:
    """The two fastest GPUs are on two nodes."""

    def exchange_s(gpus: Sequence[int]) -> float:
        return 5.0 if len({gpu // 2 for gpu in gpus}) > 1 else 0.0

    job = BlockJob(tasks=2, task_s=(1.0, 1.2, 1.1, 1.1), exchange_s=exchange_s)
    [room] = blocks([job], [(0, 1), (2, 3)])
    assert [one.tasks for one in room.blocks] == [{2: 1, 3: 1}]


def test_a_room_with_many_slow_gpus_hides_no_faster_one() -> None:
    """Tasks of 3 s on four GPUs, of 4 s on four others and of 2 s on one: the first have the least bound."""
    new = wants(1, *[3.0] * 4, *[4.0] * 4, 2.0, exchange_s=0.5)
    others = [wants(1, *[1.0] * 9, exchange_s=9.0, moving_s=15.0) for _ in range(3)]
    gpus = [(0, 1, 2, 3), (4, 5, 6, 7), (8,)]
    held = [Held(gpus=own, jobs=frozenset({number + 1})) for number, own in enumerate(gpus)]
    assert plan_of([new, *others], 9, held=held)[0].tasks == {8: 1}


def test_a_room_with_a_long_exchange_hides_no_better_one() -> None:
    """10 tasks: 0.4 s and 7.2 s of exchange on five GPUs, 5 s and 0.2 s on one."""
    new = wants(10, *[0.2] * 5, 0.5, exchange_s=0.2, between_s=7.0)
    others = [wants(1, *[1.0] * 6, exchange_s=9.0, moving_s=15.0) for _ in range(2)]
    held = [Held(gpus=own, jobs=frozenset({job})) for job, own in ((1, (0, 1, 2, 3, 4)), (2, (5,)))]
    assert plan_of([new, *others], 6, held=held)[0].tasks == {5: 10}


@pytest.mark.parametrize(("warm", "moves"), [({1}, False), ({1, 2}, True)])
def test_a_switch_needs_processes_on_all_gpus_of_the_room(warm: set[int], moves: bool) -> None:  # noqa: FBT001
    job = wants(
        1, 2.0, 1.0, np.inf, exchange_s=1.0, worth=10.0,
        moving_s=6.0, switching_s=4.0, stands_by=warm.issuperset,
    )  # fmt: skip
    other = wants(1, 1.0, 1.0, 1.0, exchange_s=9.0, moving_s=15.0)
    held = [Held(gpus=(0,), jobs=frozenset({0})), Held(gpus=(1, 2), jobs=frozenset({1}))]
    assert plan_of([job, other], 3, held=held)[0].tasks == ({1: 1} if moves else {0: 1})


@pytest.mark.parametrize(("opened", "jobs"), [(True, [0, 1]), (False, [0])])
def test_no_job_joins_a_closed_room_that_has_time_left(opened: bool, jobs: list[int]) -> None:  # noqa: FBT001
    runs = wants(1, 1.0, exchange_s=1.0, kept={0: 1})
    held = [Held(gpus=(0,), jobs=frozenset({0}), fixed=True, open=opened)]
    assert [one.job for one in plan_of([runs, wants(1, 0.5)], 1, held=held)] == jobs


@pytest.mark.parametrize(("opened", "goes_on"), [(True, 0), (False, None)])
def test_a_job_that_was_alone_starts_again_to_share_its_gpu(opened: bool, goes_on: int | None) -> None:  # noqa: FBT001
    runs, new = wants(1, 1.0, exchange_s=1.0), wants(1, 0.5)
    [room] = rooms([runs, new], 1, held=[Held(gpus=(0,), jobs=frozenset({0}), open=opened)])
    assert (room.held, [one.job for one in room.blocks]) == (goes_on, [0, 1])


@pytest.mark.parametrize(("shared_s", "idle_s", "joins"), [(0.5, 1.0, True), (1.0, 0.5, False)])
def test_a_job_shares_a_gpu_if_its_rounds_are_shorter_there(
    shared_s: float,
    idle_s: float,
    joins: bool,  # noqa: FBT001
) -> None:
    new = wants(1, shared_s, idle_s, exchange_s=0.5)
    runs = wants(1, 0.1, 0.1, exchange_s=2.0, moving_s=15.0)
    plan = plan_of([new, runs], 2, held=[Held(gpus=(0,), jobs=frozenset({1}))])
    assert plan[0].tasks == ({0: 1} if joins else {1: 1})


def test_what_is_kept_has_rounds_by_its_slowest_gpu_and_its_exchange() -> None:
    stays = wants(5, 2.0, 2.5, exchange_s=0.5, kept={0: 3, 1: 2})
    [own] = plan_of([stays], 2, held=[Held(gpus=(0, 1), jobs=frozenset({0}), fixed=True)])
    assert (own.tasks, own.exchange_s, own.round_s) == ({0: 3, 1: 2}, 0.5, 6.5)


def test_jobs_share_a_gpu_only_where_their_memory_does() -> None:
    def queue(share: float) -> list[BlockJob]:
        return [wants(1, 0.5, exchange_s=0.5, memory=(share,)), wants(1, 0.5, memory=(0.6,))]

    assert len(plan_of(queue(0.4), 1)) == 2
    assert len(plan_of(queue(0.5), 1)) == 1
    unknown = wants(1, 0.1, exchange_s=0.9)
    assert len(plan_of([queue(0.4)[0], unknown], 1)) == 2
    assert [one.job for one in plan_of([unknown, *queue(0.5)], 1)] == [0, 1]


def test_a_job_that_keeps_its_tasks_gets_the_time_left_and_at_least_some_turns() -> None:
    stays = wants(2, 1.0, 1.0, kept={0: 1, 1: 1})
    before = wants(2, 1.0, 1.0)
    held = [Held(gpus=(0, 1), jobs=frozenset({1}), fixed=True)]
    first, second = plan_of([before, stays], 2, held=held)
    assert (first.tasks, second.tasks) == ({0: 1, 1: 1}, {0: 1, 1: 1})
    assert second.round_s == pytest.approx(1.0 / (1.0 - FULL))
    shut = [Held(gpus=(0, 1), jobs=frozenset({0}), fixed=True, open=False)]
    assert [one.job for one in plan_of([stays, before], 2, held=shut)] == [0]


def test_a_gpu_takes_turns_between_so_many_jobs_at_the_most() -> None:
    """Each computes for a hundredth of its round."""
    queue = [wants(1, 0.1, 0.1, exchange_s=9.9) for _ in range(2 * RESIDENTS_MOST + 1)]
    assert residents(plan_of(queue, 2)) == {0: RESIDENTS_MOST, 1: RESIDENTS_MOST}
    assert residents(plan_of(queue, 2, residents_max=1)) == {0: 1, 1: 1}


def test_jobs_that_keep_a_gpu_are_counted_before_those_that_come_to_it() -> None:
    stays = wants(1, 0.1, 0.2, exchange_s=9.9, kept={0: 1})
    others = [wants(1, 0.1, 0.2, exchange_s=9.9) for _ in range(2)]
    held = [Held(gpus=(0,), jobs=frozenset({2, 3}), fixed=True)]
    assert residents(plan_of([*others, stays, stays], 2, residents_max=3, held=held)) == {0: 3, 1: 1}
    assert residents(plan_of([*others, stays, stays], 2, residents_max=1, held=held)) == {0: 2, 1: 1}


def test_a_round_too_long_for_one_gpu_is_dealt_to_the_others() -> None:
    """GPU 1 has a fast job: the third may have no tasks there, and has room on GPU 0."""
    queue = [
        wants(6, 1.7, 5.6, exchange_s=2.0),
        wants(1, np.inf, 0.1, exchange_s=2.0),
        wants(4, 1.7, 2.5),
    ]
    assert [one.tasks for one in plan_of(queue, 2)] == [{0: 5, 1: 1}, {1: 1}, {0: 4}]


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
    plan = plan_of(queue, ALL)
    assert all(load(plan, queue, gpu) <= 1.0 + 1e-9 for gpu in range(ALL))


@given(queues(), st.integers(1, 4))
def test_no_gpu_has_more_jobs_than_it_may_hold(queue: list[BlockJob], most: int) -> None:
    assert max(residents(plan_of(queue, ALL, residents_max=most)).values(), default=0) <= most


@given(queues())
def test_every_round_has_its_tasks_and_they_are_where_they_can_run(queue: list[BlockJob]) -> None:
    for one in plan_of(queue, ALL):
        assert sum(one.tasks.values()) == queue[one.job].tasks
        assert all(np.isfinite(queue[one.job].task_s[gpu]) for gpu in one.tasks)


@given(queues())
def test_a_job_without_gpus_finds_its_usable_gpus_full_or_too_slow(
    queue: list[BlockJob],
) -> None:
    plan = plan_of(queue, ALL)
    for number in set(range(len(queue))) - {one.job for one in plan}:
        for gpu in np.flatnonzero(np.isfinite(queue[number].task_s)).tolist():
            left = 1.0 - load(plan, queue, gpu)
            shortest_s = min((one.round_s for one in plan if gpu in one.tasks), default=np.inf)
            alone_s = queue[number].tasks * queue[number].task_s[gpu] + queue[number].exchange_s([gpu])
            assert left <= 1.0 - FULL + 1e-9 or alone_s / left > TURNS_MOST * shortest_s


@given(queues())
def test_a_later_job_changes_nothing_for_those_before_it(queue: list[BlockJob]) -> None:
    assert plan_of(queue[:-1]) == [one for one in plan_of(queue, ALL) if one.job < len(queue) - 1]


@given(queues())
def test_jobs_that_share_a_gpu_are_in_one_rota_and_others_are_not(queue: list[BlockJob]) -> None:
    plan = plan_of(queue, ALL)
    groups = list(components(plan))
    assert sorted(one.job for group in groups for one in group) == [one.job for one in plan]
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
    for group in components(plan_of(queue, ALL)):
        task_s = {one.job: queue[one.job].task_s for one in group}
        jobs = {job: RotaJob(task_s=own, rounds=10.0) for job, own in task_s.items()}
        rota = rota_of(group, jobs, 0.003)
        assert all(1 <= one.turns <= TURNS_MOST for one in rota.members)
        assert sum(one.share for one in rota.members) == pytest.approx(1.0)
        for one in rota.members:
            busiest_s = max(
                tasks * float(task_s[one.block.job][gpu]) for gpu, tasks in one.block.tasks.items()
            )
            assert rota.cycle_s >= one.turns * (busiest_s + one.block.exchange_s) - 1e-9


def test_a_job_of_rounds_a_seventh_as_long_has_seven_turns_of_one() -> None:
    queue = [wants(1, 0.9, exchange_s=2.1), wants(1, 0.3)]
    group = plan_of(queue, 1)
    assert [one.round_s for one in group] == pytest.approx([3.0, 0.3 / 0.7])
    rota = rota_of(
        group,
        {job: RotaJob(task_s=one.task_s, rounds=10.0 ** (2 * job)) for job, one in enumerate(queue)},
        0.0,
    )
    assert [one.turns for one in rota.members] == [1, 7]
    assert rota.cycle_s == pytest.approx(3.0)
