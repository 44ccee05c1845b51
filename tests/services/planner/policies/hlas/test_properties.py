"""What holds of every plan of HLAS and of every sequence of plans."""

from collections import Counter

import msgspec
import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from schemas.ids import JobId, NodeId
from schemas.placement import Relaxed
from services.planner.policies.contract.decision import Choice, Decision, fault
from services.planner.policies.contract.view import View, ViewNode
from services.planner.policies.hlas.memory import remembered
from services.planner.policies.hlas.queues import QueuePlace, yardstick
from services.planner.policies.hlas.tasks import groups_needed
from shared.domain import gangs
from tests.services.planner.planner_builders import decide, silent, view
from tests.services.planner.policies.hlas.hlas_builders import Toy, placed, single, toy

EVERY = ("hlas", "hlas-p", "hlas-l+predictor=history")
positive = st.floats(0.1, 10.0)


@st.composite
def clusters(draw: st.DrawFn) -> list[ViewNode]:
    return [single(index, draw(st.integers(1, 5))) for index in range(draw(st.integers(1, 3)))]


class Steps(msgspec.Struct):
    """A cluster, jobs, and how far they come from plan to plan."""

    nodes: list[ViewNode]
    jobs: dict[str, Toy]
    progress: list[dict[str, float]]
    """rounds that each job runs by then, if it runs"""


@st.composite
def runs(draw: st.DrawFn) -> Steps:
    nodes = draw(clusters())
    names = [f"j{index}" for index in range(draw(st.integers(1, 6)))]
    jobs = {}
    for name in names:
        kinds = draw(st.integers(1, len(nodes)))
        task_s = draw(st.lists(positive, min_size=kinds, max_size=kinds))
        jobs[name] = Toy(task_s, draw(st.integers(1, 9)), 10**6, draw(st.floats(0.0, 50.0)))
    count = draw(st.integers(2, 5))
    progress = [{name: draw(st.floats(0.0, 300.0)) for name in names} for _ in range(count)]
    return Steps(nodes, jobs, progress)


def played(steps: Steps, policy: str) -> list[tuple[View, Decision]]:
    """Plan after plan; whoever runs goes on from where it is."""
    done = dict.fromkeys(steps.jobs, 0.0)
    places: dict[str, Choice] = {}
    found, memory = [], b""
    for number, rounds in enumerate(steps.progress):
        rows = [
            toy(name, one, done[name])
            for name, one in sorted(steps.jobs.items(), key=lambda pair: (pair[1].arrives_at, pair[0]))
        ]
        rows = [
            placed(row, places[row.job_id].gang, places[row.job_id].throughput)
            if row.job_id in places
            else row
            for row in rows
        ]
        seen = msgspec.structs.replace(view(rows, steps.nodes, at=100.0 * (number + 1)), memory=memory)
        decision = decide(policy, seen, silent)
        assert fault(seen, decision) is None
        found.append((seen, decision))
        memory, places = decision.memory, {choice.job_id: choice for choice in decision.choices}
        for name in places:
            done[name] += rounds[name] * steps.jobs[name].tasks
    return found


@pytest.mark.parametrize("policy", EVERY)
@given(steps=runs())
@limits(deadline=None, max_examples=12)
def test_a_queue_never_rises(policy: str, steps: Steps) -> None:
    last: dict[JobId, float] = {}
    for _, decision in played(steps, policy):
        now = {job_id: standing.priority or 0.0 for job_id, standing in decision.standings.items()}
        assert all(now[job_id] >= queue for job_id, queue in last.items())
        last = now


@pytest.mark.parametrize("policy", EVERY)
@given(steps=runs())
@limits(deadline=None, max_examples=12)
def test_every_gpu_is_in_one_group_and_each_group_a_job_s_or_idle(policy: str, steps: Steps) -> None:
    for seen, decision in played(steps, policy):
        known = remembered(decision.memory)
        found = Counter[NodeId]()
        for group in known.groups:
            found.update(group.place)
        assert found == {node.node_id: node.gpus for node in seen.nodes}
        held = Counter(group for job in known.jobs.values() for group in job.groups)
        assert not held or max(held.values()) == 1
        assert {job_id for job_id, job in known.jobs.items() if job.groups} == {
            each.job_id for each in decision.choices
        }


@pytest.mark.parametrize("policy", EVERY)
@given(steps=runs())
@limits(deadline=None, max_examples=12)
def test_no_group_idles_while_a_job_that_can_use_it_has_none_or_too_few(policy: str, steps: Steps) -> None:
    for seen, decision in played(steps, policy):
        known = remembered(decision.memory)
        taken = {group for job in known.jobs.values() for group in job.groups}
        idle = [each.place for number, each in enumerate(known.groups) if number not in taken]
        gpus = sum(node.gpus for node in seen.nodes)
        for job in seen.jobs:
            own = known.jobs[job.job_id].groups if job.job_id in known.jobs else ()
            need = groups_needed(job.demand[0], gpus, len(known.groups))
            if len(own) < need:
                assert not any(
                    node[1:] == kind[1:] for place in idle for node in place for kind in job.single_gpu
                )


@pytest.mark.parametrize("policy", EVERY)
@given(steps=runs())
@limits(deadline=None, max_examples=12)
def test_no_job_waits_while_a_less_urgent_one_runs_on_gpus_it_could_use(policy: str, steps: Steps) -> None:
    """Behind it in a later queue, or in the same one."""
    for seen, decision in played(steps, policy):
        urgency = urgencies(seen, decision)
        everything = [job_id for job_id, one in steps.jobs.items() if len(one.task_s) == len(steps.nodes)]
        for left in decision.left:
            if left.job_id in everything:
                assert all(urgency[choice.job_id] < urgency[left.job_id] for choice in decision.choices)


def urgencies(seen: View, decision: Decision) -> dict[JobId, tuple[object, ...]]:
    """Places in the order, the smaller the earlier; of a job that has not begun nothing is remembered."""
    known = remembered(decision.memory).jobs
    found: dict[JobId, tuple[object, ...]] = {}
    for job in seen.jobs:
        place = known[job.job_id].queue_place if job.job_id in known else QueuePlace(0, job.submitted_at)
        rounds = yardstick(job.demand[0], 1.0, 1).rounds(job.samples_done)
        found[job.job_id] = *place.urgency(rounds), job.submitted_at, job.job_id
    return found


@pytest.mark.parametrize("policy", EVERY)
@given(steps=runs())
@limits(deadline=None, max_examples=12)
def test_the_global_batch_survives_every_move(policy: str, steps: Steps) -> None:
    for _, decision in played(steps, policy):
        for choice in decision.choices:
            assert isinstance(choice.gang.sync, Relaxed)
            assert gangs.global_batch(choice.gang, 1) == steps.jobs[choice.job_id].tasks


@given(steps=runs())
@limits(deadline=None, max_examples=12)
def test_hlas_p_without_predictions_is_hlas(steps: Steps) -> None:
    plain, ours = played(steps, "hlas"), played(steps, "hlas-p+predictor=none")
    assert [one.choices for _, one in plain] == [one.choices for _, one in ours]
    assert [one.standings for _, one in plain] == [one.standings for _, one in ours]


@pytest.mark.parametrize("policy", EVERY)
@given(steps=runs(), factor=st.floats(0.1, 100.0))
@limits(deadline=None, max_examples=10)
def test_claimed_sizes_of_jobs_change_nothing(policy: str, steps: Steps, factor: float) -> None:
    for seen, decision in played(steps, policy):
        lied = [
            msgspec.structs.replace(job, samples=job.samples * factor, age_s=job.age_s * factor)
            for job in seen.jobs
        ]
        assert decide(policy, msgspec.structs.replace(seen, jobs=tuple(lied)), silent) == decision


@given(st.integers(1, 9), st.floats(1.0, 1e3), st.integers(1, 9), st.floats(0.1, 10.0), st.integers(0, 10**6))
def test_size_rises_with_rounds_and_falls_with_speed(
    tasks: int, speed: float, groups: int, faster: float, rounds: int
) -> None:
    yard, other = yardstick(tasks, speed, groups), yardstick(tasks, faster * speed, groups)
    assert other.round_s == pytest.approx(yard.round_s / faster)
    assert yard.rounds(rounds * tasks) == rounds
    assert yard.rounds_to(rounds * yard.round_s) == max(rounds, 1)


@given(
    st.lists(st.integers(1, 9), min_size=2, max_size=2),
    st.floats(1.0, 1e3),
    st.integers(1, 9),
    st.integers(1, 99),
)
def test_neither_tasks_nor_batch_make_a_size(
    scales: list[int], speed: float, groups: int, times: int
) -> None:
    """H = U · samples done / Σ speeds, so what has done as many samples has been served as much."""
    samples = float(scales[0] * scales[1] * times)
    yards = [yardstick(each, speed, groups) for each in scales]
    sizes = [yard.rounds(samples) * yard.round_s for yard in yards]
    assert sizes == pytest.approx([groups * samples / speed] * 2)


@given(runs(), st.permutations(range(4)))
@limits(deadline=None, max_examples=20)
def test_sizes_do_not_depend_on_which_gpus_are_grouped(steps: Steps, order: list[int]) -> None:
    """The same number of groups, of other GPUs: every job is in the queue in which it would be anyway."""
    seen, decision = played(steps, "hlas")[-1]
    known = remembered(decision.memory)
    gpus = [node_id for group in known.groups for node_id, count in group.place.items() for _ in range(count)]
    sizes = [sum(group.place.values()) for group in known.groups]
    dealt = sorted(gpus, key=lambda node_id: order[int(node_id[1:]) % 4])
    groups = []
    for size, group in zip(sizes, known.groups, strict=True):
        own, dealt = dealt[:size], dealt[size:]
        groups.append(msgspec.structs.replace(group, place=dict(Counter(own))))
    jobs = {job_id: msgspec.structs.replace(job, groups=()) for job_id, job in known.jobs.items()}
    other = msgspec.msgpack.encode(msgspec.structs.replace(known, groups=tuple(groups), jobs=jobs))
    waiting = tuple(msgspec.structs.replace(job, present=None) for job in seen.jobs)
    again = msgspec.structs.replace(seen, jobs=waiting, memory=other)
    assert decide("hlas", again, silent).standings == decision.standings


@given(st.lists(st.floats(0.0, 2e4), min_size=1, max_size=5), st.integers(1, 4))
@limits(deadline=None, max_examples=40)
def test_on_equal_single_gpus_the_queues_are_those_of_tiresias_by_time(ran_s: list[float], gpus: int) -> None:
    """A task is a second, so a round is; jobs ran so long and wait."""
    ran_s = [float(round(each)) for each in ran_s]
    rows = [
        toy(
            f"j{index}", Toy((1.0,), 1, 10**6), done, submitted_at=0.0, wait_s=1e5 - done, attained_gpu_s=done
        )
        for index, done in enumerate(ran_s)
    ]
    seen = view(rows, [single(0, gpus)], at=1e5)
    ours = decide("hlas", seen, silent, groups=gpus)
    theirs = decide("tiresias", seen, silent, service="time", thresholds="60 240 960 3840 15360")
    assert ours.standings == theirs.standings
