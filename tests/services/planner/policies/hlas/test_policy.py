"""What HLAS decides of one view, and from plan to plan."""

from random import Random

import msgspec
import pytest

from schemas.ids import Fingerprint, GpuType, JobId, NodeId
from schemas.plans import PlanKind, Waiting
from services.planner.policies.contract.decision import Decision, fault
from services.planner.policies.contract.view import View, ViewJob
from services.planner.policies.hlas.memory import (
    JOBS_AT_MOST,
    GpuGroup,
    HlasMemory,
    RememberedJob,
    remembered,
    stored,
)
from services.planner.policies.hlas.queues import QueuePlace
from services.planner.policies.kit.packing import PACKED_BYTES_MAX, is_packed
from services.planner.policies.registry import Registry, UnfitPolicy
from tests.services.planner.planner_builders import decide, linear, silent, view
from tests.services.planner.policies.hlas.hlas_builders import (
    Toy,
    cluster,
    gang_of,
    placed,
    single,
    tasks_of,
    toy,
)

EIGHT = [single(0, gpus=4), single(1, gpus=4)]
ALIKE = (1.0, 1.0)
"""seconds of a task on either type"""


def asked(
    jobs: list[ViewJob], before: Decision | None = None, policy: str = "hlas", **options: object
) -> Decision:
    return of(view(jobs, EIGHT), before, policy, **options)


def of(seen: View, before: Decision | None = None, policy: str = "hlas", **options: object) -> Decision:
    known = seen if before is None else msgspec.structs.replace(seen, memory=before.memory)
    return decide(policy, known, silent, None, **{"groups": 2, **options})


def after(decision: Decision, jobs: list[ViewJob]) -> list[ViewJob]:
    """The jobs, where they were placed."""
    places = {choice.job_id: choice for choice in decision.choices}
    return [
        placed(one, places[one.job_id].gang, places[one.job_id].throughput) if one.job_id in places else one
        for one in jobs
    ]


def gpus(decision: Decision) -> dict[str, int]:
    return {choice.job_id: choice.gang.gpus for choice in decision.choices}


def queues(decision: Decision) -> dict[str, float | None]:
    return {job_id: standing.priority for job_id, standing in decision.standings.items()}


def waiting(decision: Decision) -> list[str]:
    return [left.job_id for left in decision.left]


# ---- who gets how many groups


@pytest.mark.parametrize("number", [0, 1])
def test_a_job_takes_the_idle_group_where_its_processes_stand_by(number: int) -> None:
    """Two nodes alike, a group on each: what a start takes is all that differs."""
    alike = [single(index, gpus=4, gpu_type=GpuType("g00")) for index in range(2)]
    one = toy("x", Toy(ALIKE, 4, 9))
    groups = remembered(of(view([one], alike)).memory).groups
    place = groups[number].place
    [choice] = of(view([msgspec.structs.replace(one, warm=place)], alike)).choices
    assert choice.gang.configuration == place
    [choice] = of(view([one], alike)).choices
    assert choice.gang.configuration == groups[0].place


@pytest.mark.parametrize("number", [0, 1])
def test_a_job_takes_the_released_group_where_its_processes_stand_by(number: int) -> None:
    alike = [single(index, gpus=4, gpu_type=GpuType("g00")) for index in range(2)]
    large = toy("x", Toy(ALIKE, 8, 999), 8.0 * 250)
    first = of(view([large], alike))
    place = remembered(first.memory).groups[number].place
    new = toy("z", Toy(ALIKE, 4, 9), warm=place)
    decision = of(view([*after(first, [large]), new], alike), first)
    assert [one.gang.configuration for one in decision.choices if one.job_id == "z"] == [place]


def test_a_job_gets_groups_for_its_tasks_and_their_spare_gpus_stay_idle() -> None:
    decision = asked([toy("x", Toy(ALIKE, tasks=3, rounds=9))])
    assert gpus(decision) == {"x": 3}
    assert waiting(
        asked([toy("x", Toy(ALIKE, 3, 9)), toy("y", Toy(ALIKE, 3, 9)), toy("z", Toy(ALIKE, 1, 9))])
    ) == ["z"]


def test_where_groups_are_lacking_tasks_take_turns() -> None:
    decision = asked([toy("x", Toy(ALIKE, 3, 9)), toy("y", Toy(ALIKE, 8, 9))])
    assert gpus(decision) == {"x": 3, "y": 4}
    [_, waves] = decision.choices
    assert tasks_of(waves.gang) == {"g00": (2, 2), "g01": (2, 2)}
    assert waves.throughput == pytest.approx(8 / 2)


def test_groups_hold_gpus_of_both_types() -> None:
    decision = asked([toy("x", Toy((1.0, 3.0), 4, 9))])
    assert tasks_of(decision.choices[0].gang) == {
        "g00": (2, 2)
    }  # two in turn end before one on the slow type
    decision = asked([toy("x", Toy((1.0, 1.5), 9, 9))], groups=1)
    assert tasks_of(decision.choices[0].gang) == {"g00": (2, 1, 1, 1), "g01": (1, 1, 1, 1)}


def test_a_running_job_grows_when_no_job_waits() -> None:
    jobs = [toy("x", Toy(ALIKE, 3, 9)), toy("y", Toy(ALIKE, 8, 9))]
    first = asked(jobs)
    alone = asked(after(first, jobs)[1:], first)
    assert gpus(alone) == {"y": 8}


def test_a_running_job_does_not_grow_at_the_cost_of_others() -> None:
    jobs = [toy("y", Toy(ALIKE, 8, 99)), toy("x", Toy(ALIKE, 3, 999), submitted_at=1.0)]
    first = asked([jobs[1]])
    both = asked(after(first, [jobs[1]]) + jobs[:1], first)
    assert gpus(both) == {"x": 3, "y": 4}
    late = msgspec.structs.replace(after(both, jobs)[1], samples_done=3.0 * 600)
    assert gpus(asked([after(both, jobs)[0], late], both)) == {"x": 3, "y": 4}


def test_the_last_in_order_that_runs_gives_way() -> None:
    """Two run, of the third queue and of the second; a new one takes the groups of the former."""
    jobs = [toy("x", Toy(ALIKE, 4, 999), 4.0 * 250), toy("y", Toy(ALIKE, 4, 999), 4.0 * 70)]
    first = asked(jobs)
    assert queues(first) == {"x": 3.0, "y": 2.0}
    again = asked([*after(first, jobs), toy("z", Toy(ALIKE, 4, 9))], first)
    assert gpus(again) == {"y": 4, "z": 4}
    assert waiting(again) == ["x"]


def test_a_job_that_is_larger_than_it_needs_gives_no_more_than_is_needed() -> None:
    jobs = [toy("x", Toy(ALIKE, 8, 999), 8.0 * 250)]
    first = asked(jobs)
    again = asked([*after(first, jobs), toy("z", Toy(ALIKE, 4, 9))], first)
    assert gpus(again) == {"z": 4, "x": 4}
    assert tasks_of(again.choices[1].gang) == {"g00": (2, 2), "g01": (2, 2)}


def test_a_job_that_may_not_be_moved_keeps_its_groups() -> None:
    jobs = [toy("x", Toy(ALIKE, 8, 999), 8.0 * 250)]
    first = asked(jobs)
    stays = [msgspec.structs.replace(one, stays=True) for one in after(first, jobs)]
    again = asked([*stays, toy("z", Toy(ALIKE, 4, 9))], first)
    assert gpus(again) == {"x": 8}
    assert waiting(again) == ["z"]


def test_one_to_each_has_a_partly_served_job_go_on_first() -> None:
    """By spread the next job of the queue starts; by one to each the first one gets all it has tasks for."""
    jobs = [toy("w", Toy(ALIKE, 4, 999)), toy("x", Toy(ALIKE, 8, 999)), toy("y", Toy(ALIKE, 4, 999))]
    for fill, expected in (("spread", {"x": 4, "y": 4}), ("one-each", {"x": 8})):
        first = asked(jobs, hlas_fill=fill)
        assert gpus(first) == {"w": 4, "x": 4}
        assert gpus(asked(after(first, jobs)[1:], first, hlas_fill=fill)) == expected


# ---- GPUs that not everybody can use


def test_a_type_that_a_job_cannot_use_gets_none_of_its_tasks() -> None:
    decision = asked([toy("x", Toy((1.0,), 4, 9))], groups=1)
    assert tasks_of(decision.choices[0].gang) == {"g00": (1, 1, 1, 1)}


def test_a_job_that_no_gpu_can_run_has_no_configuration() -> None:
    stranger = msgspec.structs.replace(toy("x", Toy(ALIKE, 1, 9)), gpu_types=())
    seen = view([stranger, toy("y", Toy(ALIKE, 1, 9))], EIGHT)
    decision = of(seen)
    assert [(left.job_id, left.reason) for left in decision.left] == [("x", Waiting.NO_CONFIGURATION)]


def test_nodes_that_run_no_relaxed_gangs_are_left_alone() -> None:
    nodes = [msgspec.structs.replace(EIGHT[0], modes=("lockstep",)), EIGHT[1]]
    decision = of(view([toy("x", Toy(ALIKE, 8, 9))], nodes))
    assert tasks_of(decision.choices[0].gang) == {"g01": (2, 2, 2, 2)}


def test_gpus_that_are_profiled_on_are_missing_from_idle_groups() -> None:
    nodes = [msgspec.structs.replace(EIGHT[0], idle=1), EIGHT[1]]
    jobs = [toy("x", Toy(ALIKE, 4, 9)), toy("y", Toy(ALIKE, 4, 9))]
    seen = view(jobs, nodes)
    decision = of(seen)
    assert fault(seen, decision) is None
    assert [tasks_of(choice.gang) for choice in decision.choices] == [
        {"g00": (2,), "g01": (1, 1)},
        {"g01": (2, 2)},
    ]


# ---- queues


def test_sizes_are_counted_in_whole_rounds_of_a_mean_group() -> None:
    """Two groups of four GPUs at 1 and 0.5 tasks/s: 3 tasks/s, so 6 tasks take 2 s, and 30 rounds 60."""
    one = Toy((1.0, 2.0), tasks=6, rounds=999)
    for rounds, queue in ((29.99, 1.0), (30.0, 2.0), (119.9, 2.0), (120.0, 3.0), (7680.0, 6.0), (1e6, 6.0)):
        assert queues(asked([toy("x", one, 6 * rounds)]))["x"] == queue


def test_a_queue_never_rises() -> None:
    """The cluster doubles, so all sizes halve; who is in a queue stays there."""
    job = toy("x", Toy(ALIKE, 4, 999), 4.0 * 70)
    first = asked([job])
    more = view([job], [single(0, gpus=8), single(1, gpus=8)])
    assert queues(of(more, groups=2))["x"] == 1.0
    assert queues(of(more, first, groups=2))["x"] == 2.0


def test_within_a_queue_jobs_are_in_order_of_entry() -> None:
    early, late = toy("early", Toy(ALIKE, 8, 999)), toy("late", Toy(ALIKE, 8, 999), submitted_at=5.0)
    ran = msgspec.structs.replace(late, samples_done=8.0 * 70)
    first = asked([early, ran])
    assert queues(first) == {"early": 1.0, "late": 2.0}
    both = [msgspec.structs.replace(early, samples_done=8.0 * 70), ran]
    second = of(msgspec.structs.replace(view(both, EIGHT), at=200.0), first)
    assert gpus(second) == {"late": 8}
    assert waiting(second) == ["early"]


def test_the_next_change_of_queue_is_the_next_wakeup() -> None:
    """8 tasks/s on 8 GPUs; T̄ = 8 / 4 = 2 s, so 30 rounds of 1 s lead to the second queue."""
    job = toy("x", Toy(ALIKE, 8, 999), 8.0 * 10)
    decision = asked([job])
    assert decision.again_at == pytest.approx(100.0 + 20.0)
    assert asked([toy("x", Toy(ALIKE, 8, 9999), 8.0 * 8000)]).again_at is None


def test_exchanges_of_gradients_slow_a_round_once() -> None:
    """Four GPUs take 0.4 s for an iteration in lockstep, one alone 0.1: so 0.3 s are for the exchange."""
    job = toy("x", Toy((0.1, 0.1), 8, 99))
    other = toy("w", Toy((0.1, 0.1), 4, 99))
    decision = decide(
        "hlas",
        view([other, job], EIGHT),
        lambda wanted: msgspec.structs.replace(
            linear(wanted), throughput=0 * linear(wanted).throughput + 10.0
        ),
        groups=2,
    )
    assert decision.choices[1].throughput == pytest.approx(8 / (2 * 0.1 + 0.3))
    assert asked([job]).choices[0].throughput == pytest.approx(8 / 0.1)


# ---- memory


def test_the_scale_of_a_job_stays_the_same() -> None:
    """Of 2, 4 and 8 the median of what fits; when the cluster shrinks, tasks take turns."""
    job = msgspec.structs.replace(toy("x", Toy((1.0,), 4, 99)), demand=(2, 4, 8))
    first = of(view([job], [single(0, gpus=8)]))
    assert gpus(first) == {"x": 4}
    ran = msgspec.structs.replace(job, samples_done=8.0)
    later = of(view([ran], [single(0, gpus=2)]), first)
    assert tasks_of(later.choices[0].gang) == {"g00": (2, 2)}


def test_memory_is_small() -> None:
    jobs = [toy(f"job-{index:05}", Toy(ALIKE, 1, 99), submitted_at=float(index)) for index in range(3000)]
    decision = asked(jobs)
    assert (
        len(decision.memory) < 100_000
    )  # of jobs that have not begun nothing is remembered but the workload


def test_memory_is_bounded_for_any_number_of_jobs() -> None:
    """Of those that are forgotten the queue is known by what they have done."""
    jobs = [toy(f"a-job-of-a-longer-name-{index:05}", Toy(ALIKE, 1, 999), 70.0) for index in range(21_000)]
    jobs = [msgspec.structs.replace(one, workload=Fingerprint("one")) for one in jobs]
    decision = asked(jobs)
    known = remembered(decision.memory, [one.job_id for one in jobs])
    assert {choice.job_id for choice in decision.choices} <= known.jobs.keys()
    assert len(known.jobs) == JOBS_AT_MOST
    assert len(decision.memory) <= PACKED_BYTES_MAX
    assert queues(asked(after(decision, jobs), decision)) == queues(decision)


def test_of_jobs_too_many_for_its_memory_those_that_run_are_kept() -> None:
    """With numbers that no compression makes smaller."""
    draw = Random(1)
    jobs = {
        JobId(f"j{number}"): RememberedJob(
            scale=1,
            queue_place=QueuePlace(entered_at=draw.random()),
            groups=(0,) if number >= JOBS_AT_MOST - 9 else (),
            workload=Fingerprint(""),
            samples=draw.random(),
            rate=draw.random(),
        )
        for number in range(JOBS_AT_MOST)
    }
    memory = stored(HlasMemory(groups=(GpuGroup({NodeId("a"): 1}, ""),), jobs=jobs))
    known = remembered(memory, jobs).jobs
    assert len(memory) <= PACKED_BYTES_MAX
    assert len(known) == JOBS_AT_MOST / 2
    assert list(known)[:9] == list(jobs)[-9:]
    assert known[JobId("j0")].samples == pytest.approx(jobs[JobId("j0")].samples)


def test_a_fragment_plan_leaves_running_jobs_alone() -> None:
    """It shows only who waits, and what is idle."""
    jobs = [toy("x", Toy(ALIKE, 4, 99)), toy("y", Toy(ALIKE, 8, 99))]
    first = asked(jobs[:1])
    idle = [msgspec.structs.replace(node, idle=2) for node in EIGHT]
    seen = view(jobs[1:], idle, kind=PlanKind.FRAGMENT, at=110.0)
    second = of(seen, first)
    assert gpus(second) == {"y": 4}
    known = remembered(second.memory)
    assert set(known.jobs) == {"x", "y"}
    assert known.jobs[JobId("x")].samples == pytest.approx(40.0)
    third = asked([*after(first, jobs)[:1], *after(second, jobs)[1:]], second)
    assert gpus(third) == {"x": 4, "y": 4}


def test_a_fragment_plan_keeps_what_a_large_memory_has_of_jobs_that_it_does_not_show() -> None:
    """It knows them by digests only."""
    names = [f"a-job-of-a-longer-name-{index:05}" for index in range(1500)]
    jobs = [toy(name, Toy(ALIKE, 4, 999), 70.0) for name in names]
    first = asked(jobs)
    idle = [msgspec.structs.replace(node, idle=0) for node in EIGHT]
    second = of(view([toy("new", Toy(ALIKE, 4, 99))], idle, kind=PlanKind.FRAGMENT, at=110.0), first)
    assert is_packed(first.memory)
    assert is_packed(second.memory)
    before = remembered(first.memory, map(JobId, names))
    known = remembered(second.memory, map(JobId, names))
    assert known.jobs.keys() == before.jobs.keys()
    assert [one.groups for one in known.jobs.values()] == [one.groups for one in before.jobs.values()]
    for job_id, choice in {one.job_id: one for one in first.choices}.items():
        assert known.jobs[job_id].samples == pytest.approx(70.0 + 10.0 * choice.throughput)


def test_memory_that_names_missing_groups_is_discarded() -> None:
    jobs = [toy("x", Toy(ALIKE, 4, 99))]
    known = remembered(asked(jobs).memory)
    assert known.jobs[JobId("x")].groups == (0,)
    broken = msgspec.structs.replace(known, groups=())
    assert remembered(msgspec.msgpack.encode(broken)) == HlasMemory()


def test_a_gang_of_another_memory_is_kept() -> None:
    job = placed(toy("x", Toy(ALIKE, 4, 99)), gang_of({"g00": (1, 1, 1, 1)}))
    assert [choice.gang for choice in asked([job]).choices] == [job.present.gang if job.present else None]


# ---- what it must not know


@pytest.mark.parametrize("policy", ["hlas", "hlas-p", "hlas-p+predictor=none", "hlas-l+predictor=history"])
def test_claimed_lengths_of_jobs_change_nothing(policy: str) -> None:
    jobs = [
        toy(name, Toy(ALIKE, tasks, 99), done)
        for name, tasks, done in (("x", 4, 0.0), ("y", 8, 600.0), ("z", 2, 5.0))
    ]
    lied = [
        msgspec.structs.replace(one, samples=1e12 - 7 * index, age_s=3.0 + index)
        for index, one in enumerate(jobs)
    ]
    first, other = asked(jobs, policy=policy), asked(lied, policy=policy)
    assert first == other
    assert asked(after(first, jobs)[1:], first, policy) == asked(after(other, lied)[1:], other, policy)


def test_a_predictor_that_is_not_installed_is_named() -> None:
    with pytest.raises(
        UnfitPolicy, match=r"^policy [a-z-]+: predictor nonsense is unknown; .* fit, history, none"
    ):
        Registry().find("hlas-p+predictor=nonsense")
    with pytest.raises(UnfitPolicy, match="is unknown"):
        Registry().find("hlas-p+predictor=os:remove")


def test_thresholds_may_come_in_any_order() -> None:
    job = toy("x", Toy(ALIKE, 4, 999), 4.0 * 70)
    assert (
        asked([job], hlas_thresholds="240 60").standings == asked([job], hlas_thresholds="60 240").standings
    )


@pytest.mark.parametrize("rate", [1e-300, 1e-310])
@pytest.mark.parametrize("policy", ["hlas", "hlas-p", "hlas-l"])
def test_a_job_that_hardly_moves_is_not_looked_at_every_second(policy: str, rate: float) -> None:
    slow = toy("slow", Toy(ALIKE, 1, 9))
    slow = msgspec.structs.replace(slow, single_gpu=dict.fromkeys(slow.single_gpu, rate))
    decision = asked([slow], policy=policy)
    assert gpus(decision) == {"slow": 1}
    assert decision.again_at is None or decision.again_at > 1e200


def test_a_first_queue_shorter_than_any_round_is_left_after_the_first() -> None:
    job = toy("x", Toy((10.0, 10.0), 4, 999))
    decision = asked([job], hlas_thresholds="0.0000001")
    [choice] = decision.choices
    assert choice.throughput == pytest.approx(0.4)
    assert decision.again_at == pytest.approx(100.0 + 10.0)


def test_an_empty_cluster_places_no_job() -> None:
    decision = of(view([toy("x", Toy(ALIKE, 1, 9))], []))
    assert waiting(decision) == ["x"]
    assert of(view([], cluster(2))).choices == ()
