"""What Hare decides: turns on shared GPUs, and that a plan is one that nodes can run."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from schemas.ids import Fingerprint, GpuType, NodeId, PlacementId, RotaId
from schemas.placement import Gang, Relaxed
from schemas.plans import Layer, Stage, Waiting
from services.planner.policies.contract.decision import Decision, Trigger, fault
from services.planner.policies.contract.view import Present, View, ViewJob, ViewNode
from services.planner.policies.registry import Registry
from services.planner.solver.effort import Effort
from shared.domain import gangs, in_turns
from tests.services.planner.planner_builders import chosen, decide, job, node, place_on, view
from tests.services.planner.planner_views import views

RATES = {GpuType("slow"): 10.0, GpuType("fast"): 30.0}
MB = 1e6


def gpus(name: str, count: int, gpu_type: str) -> ViewNode:
    one = node(name, count, gpus=count, gpu_type=gpu_type)
    return msgspec.structs.replace(
        one, modes=("lockstep", "relaxed"), link_bandwidth=1000 * MB, network_bandwidth=100 * MB
    )


def trains(name: str, samples: float = 1000.0, demand: tuple[int, ...] = (4,), **fields: object) -> ViewJob:
    types = tuple(sorted(RATES))
    return job(name, demand, gpu_types=types, single_gpu=RATES, samples=samples, **fields)


def sync(decision: Decision, name: str) -> Relaxed:
    [found] = [one.gang.sync for one in decision.choices if one.job_id == name]
    assert isinstance(found, Relaxed)
    return found


CLUSTER = [gpus("f0", 1, "fast"), gpus("s0", 1, "slow")]


def test_hare_is_called_when_jobs_arrive_and_end() -> None:
    assert set(Registry().find("hare").calls) == {Trigger.ARRIVAL, Trigger.FREED, Trigger.NODE}


def test_a_fast_gpu_has_more_tasks_of_a_round() -> None:
    decision = decide("hare", view([trains("only")], CLUSTER))
    assert sync(decision, "only").tasks == ((3,), (1,))
    assert [one.throughput for one in decision.choices] == pytest.approx([40.0])


TWO = [gpus("f0", 2, "fast")]


def test_a_second_job_computes_while_the_first_exchanges() -> None:
    """2/30 s of computing and 1/20 s of exchange in a round of the first."""
    first = trains("first", gradient_bytes=100 * MB)
    seen = view([first, trains("second", samples=5000.0)], TWO)
    decision = decide("hare", seen)
    assert fault(seen, decision) is None
    own, other = sync(decision, "first"), sync(decision, "second")
    assert own.rota == other.rota != RotaId("")
    assert (own.place, other.place) == (0, 1)
    alone = {str(one.job_id): one.throughput for one in decide("hare", view([first], TWO)).choices}
    together = {str(one.job_id): one.throughput for one in decision.choices}
    assert together["first"] > 0.8 * alone["first"]
    assert together["second"] > 0.3 * 40.0
    assert sum(one.share for one in decision.choices) == pytest.approx(1.0)


def test_users_say_how_many_jobs_take_turns_on_a_gpu() -> None:
    """The first leaves a good third of either GPU."""
    seen = view([trains("first", gradient_bytes=100 * MB), trains("second", samples=5000.0)], TWO)
    assert set(chosen(decide("hare", seen, residents_max=2))) == {"first", "second"}
    decision = decide("hare", seen, residents_max=1)
    assert set(chosen(decision)) == {"first"}
    assert [(one.job_id, one.reason) for one in decision.left] == [("second", Waiting.OUTWEIGHED)]


def test_the_job_of_the_least_time_left_over_weight_comes_first() -> None:
    jobs = [trains("long", samples=9000.0), trains("short", samples=1000.0)]
    assert set(chosen(decide("hare", view(jobs, CLUSTER)))) == {"short"}
    urgent = [msgspec.structs.replace(jobs[0], priority=10.0), jobs[1]]
    decision = decide("hare", view(urgent, CLUSTER))
    assert set(chosen(decision)) == {"long"}
    assert [(one.job_id, one.reason) for one in decision.left] == [("short", Waiting.OUTWEIGHED)]


def test_a_rota_on_the_same_gpus_keeps_its_name() -> None:
    jobs = [trains("first", gradient_bytes=100 * MB), trains("second", samples=5000.0)]
    before = decide("hare", view(jobs, TWO))
    running = [
        msgspec.structs.replace(
            one,
            present=Present(
                placement_id=PlacementId(one.job_id), gang=made.gang, throughput=1.0, layer=Layer.THEORY
            ),
        )
        for one in jobs
        for made in before.choices
        if made.job_id == one.job_id
    ]
    third = trains("third", samples=9000.0)
    again = decide("hare", view([*running, third], TWO, at=900.0))
    assert {gangs.rota(one.gang) for one in again.choices} == {sync(before, "first").rota}
    elsewhere = decide("hare", view(jobs, TWO, at=900.0))
    assert sync(elsewhere, "first").rota != sync(before, "first").rota


def test_a_rota_that_may_not_be_moved_keeps_its_name_to_itself() -> None:
    """As many GPUs of the same node, and other ones."""
    two = [gpus("f0", 2, "fast")]
    held = Gang.of(place_on(f0=1), Relaxed(tasks=((4,),), rota=RotaId("r")))
    there = Present(placement_id=PlacementId("p"), gang=held, throughput=1.0, layer=Layer.THEORY)
    moved = trains("moved", present=there)
    free = [msgspec.structs.replace(two[0], idle=1)]
    seen = msgspec.structs.replace(view([moved], free), apart={trains("stays").job_id: there})
    [choice] = decide("hare", seen).choices
    assert gangs.rota(choice.gang) != "r"


def running(jobs: list[ViewJob], decision: Decision, stays: frozenset[str] = frozenset()) -> list[ViewJob]:
    """The jobs as the next view has them, where each came up at its place."""
    chosen_for = {one.job_id: one for one in decision.choices}
    found = []
    for one in jobs:
        made = chosen_for.get(one.job_id)
        there = made and Present(
            placement_id=PlacementId(one.job_id),
            gang=made.gang,
            throughput=made.throughput,
            layer=made.layer,
            share=made.share,
        )
        found.append(msgspec.structs.replace(one, present=there, stays=bool(there) and one.job_id in stays))
    return found


PAIR = [trains("first", gradient_bytes=100 * MB), trains("second", samples=5000.0, gradient_bytes=100 * MB)]


def test_a_new_job_takes_turns_in_a_rota_that_stays() -> None:
    """All GPUs are held by two jobs of which one may not be moved; the third is the shortest."""
    before = decide("hare", view(PAIR, TWO))
    jobs = [*running(PAIR, before, frozenset({"second"})), trains("third", samples=100.0)]
    seen = view(jobs, TWO, at=900.0)
    decision = decide("hare", seen)
    assert fault(seen, decision) is None
    now = {str(one.job_id): one.gang for one in decision.choices}
    assert now.keys() == {"first", "second", "third"}
    assert all(gangs.retimes(one.gang, now[str(one.job_id)]) for one in before.choices)
    assert all(gangs.tasks(one.gang) == gangs.tasks(now[str(one.job_id)]) for one in before.choices)
    assert gangs.rota(now["third"]) == gangs.rota(now["first"])
    assert sync(decision, "third").turns >= sync(decision, "second").turns


def test_no_job_joins_a_rota_on_a_closed_node() -> None:
    before = decide("hare", view(PAIR, TWO))
    jobs = [*running(PAIR, before, frozenset({"first", "second"})), trains("third", samples=100.0)]
    shut = [msgspec.structs.replace(one, closed=True) for one in TWO]
    decision = decide("hare", view(jobs, shut, at=900.0))
    assert set(chosen(decision)) == {"first", "second"}
    assert [(one.job_id, one.reason) for one in decision.left] == [("third", Waiting.OUTWEIGHED)]


def test_a_job_for_which_no_gpu_is_idle_could_still_run_somewhere() -> None:
    full = [msgspec.structs.replace(one, idle=0) for one in CLUSTER]
    left = decide("hare", view([trains("only")], full)).left
    assert [one.reason for one in left] == [Waiting.OUTWEIGHED]


def test_the_end_of_one_job_stops_no_other() -> None:
    """Two jobs in turns on four GPUs; the one that is left has tasks on two of them."""
    cluster = [gpus("f0", 4, "fast")]
    jobs = [
        trains("wide", demand=(4,), gradient_bytes=40 * MB),
        trains("narrow", samples=9e4, demand=(2,), gradient_bytes=40 * MB),
    ]
    before = decide("hare", view(jobs, cluster))
    [narrow] = [one for one in before.choices if one.job_id == "narrow"]
    assert gangs.rota(narrow.gang)
    after = decide("hare", view([running(jobs, before)[1]], cluster, at=900.0))
    [again] = after.choices
    assert gangs.keeps(narrow.gang, again.gang)
    assert again.gang.gpus == 4
    assert gangs.computing(again.gang).gpus == 2


# ---- warm jobs

APART = [gpus("f0", 1, "fast"), gpus("s0", 1, "slow")]


def alone_on_the_slow_gpu(rounds: float, **more: object) -> View:
    """The fast one is idle. What a move saves is two thirds of all rounds."""
    slow = Gang.of(place_on(s0=1), Relaxed(tasks=((1,),), rota=RotaId("r")))
    there = Present(placement_id=PlacementId("p"), gang=slow, throughput=10.0, layer=Layer.THEORY)
    one = trains("only", samples=rounds, demand=(1,), present=there, **more)
    seen = view([one], APART)
    return msgspec.structs.replace(seen, restart_s=15.0, switch_s=0.003)


def node_of(seen: View) -> str:
    [choice] = decide("hare", seen).choices
    [found] = gangs.computing(choice.gang).nodes
    return str(found)


def test_a_job_moves_for_less_to_where_its_processes_stand_by() -> None:
    """At the fast GPU 100 rounds take 3.3 s in place of 10: less than it takes to restart."""
    assert node_of(alone_on_the_slow_gpu(1000.0)) == "f0", "67 s are worth a start"
    assert node_of(alone_on_the_slow_gpu(100.0)) == "s0"
    warm = {NodeId("f0"): 1, NodeId("s0"): 1}
    assert node_of(alone_on_the_slow_gpu(100.0, warm=warm)) == "f0"
    assert node_of(alone_on_the_slow_gpu(100.0, warm={NodeId("s0"): 1})) == "s0"


def test_a_switch_that_takes_as_long_as_a_start_is_no_reason_to_move() -> None:
    """As by the paper's column of switches by default: seconds."""
    seen = alone_on_the_slow_gpu(100.0, warm={NodeId("f0"): 1, NodeId("s0"): 1})
    assert node_of(msgspec.structs.replace(seen, switch_s=5.87)) == "s0"
    measured = {GpuType("slow"): 5.87}
    assert node_of(msgspec.structs.replace(seen, switches_s={Fingerprint("w"): measured})) == "f0"
    [job] = seen.jobs
    own = msgspec.structs.replace(job, workload=Fingerprint("w"))
    known = msgspec.structs.replace(seen, jobs=(own,), switches_s={Fingerprint("w"): measured})
    assert node_of(known) == "s0"


def test_a_waiting_job_starts_where_its_processes_stand_by() -> None:
    """Two nodes alike but for that."""
    alike = [gpus("f0", 1, "fast"), gpus("f1", 1, "fast")]
    for name in ("f0", "f1"):
        waits = trains("only", demand=(1,), warm={NodeId(name): 1})
        seen = msgspec.structs.replace(view([waits], alike), restart_s=15.0, switch_s=0.003)
        assert node_of(seen) == name


@pytest.mark.parametrize(("rate", "together"), [(30.0, True), (0.1, False)])
def test_jobs_go_on_together_only_where_no_cycle_holds_them_up(rate: float, together: bool) -> None:  # noqa: FBT001
    """Of a rota on two nodes two are left, one on each; a round of the slow one takes 300 of the other's."""
    held = [
        Gang.of(place_on(f0=1, s0=1), Relaxed(tasks=tasks, rota=RotaId("r"), place=place))
        for place, tasks in enumerate([((1,), (0,)), ((0,), (1,))])
    ]
    jobs = [
        job(
            name,
            (1,),
            gpu_types=(kind,),
            single_gpu={kind: own},
            present=Present(placement_id=PlacementId(name), gang=gang, throughput=own, layer=Layer.THEORY),
        )
        for name, kind, own, gang in zip(
            "xy", map(GpuType, ("fast", "slow")), (30.0, rate), held, strict=True
        )
    ]
    seen = view(jobs, CLUSTER)
    decision = decide("hare", seen)
    assert fault(seen, decision) is None
    assert {gangs.rota(one.gang) for one in decision.choices} == {RotaId("r")} or not together
    assert together or len({gangs.rota(one.gang) for one in decision.choices}) == len(decision.choices)
    assert [one.throughput for one in decision.choices] == pytest.approx([30.0, rate], rel=0.02)


@given(views(), st.data())
@limits(max_examples=60, deadline=None)
def test_a_decision_can_be_the_start_of_the_next(seen: View, data: st.DataObject) -> None:
    """Some jobs end, others come, and some may not be moved."""
    jobs = [msgspec.structs.replace(one, present=None) for one in seen.jobs]
    there = frozenset(one.job_id for one in jobs if data.draw(st.booleans()))
    begun = msgspec.structs.replace(seen, jobs=tuple(one for one in jobs if one.job_id in there))
    decision = decide("hare", begun)
    assert fault(begun, decision) is None
    held = frozenset(one for one in sorted(there) if data.draw(st.booleans()))
    ended = {one for one in sorted(there) if data.draw(st.booleans())}
    left = [one for one in running(jobs, decision, held) if one.job_id not in ended]
    rotas = {gangs.rota(one.present.gang) for one in left if one.stays and one.present} - {RotaId("")}
    now = msgspec.structs.replace(seen, jobs=tuple(left), at=seen.at + 1.0)
    again = decide("hare", now)
    assert fault(now, again) is None
    placed = {one.job_id: one.gang for one in again.choices}
    for one in left:
        if one.present and gangs.rota(one.present.gang) in rotas:
            assert gangs.keeps(one.present.gang, placed[one.job_id])
            assert gangs.tasks(one.present.gang) == gangs.tasks(placed[one.job_id])


def test_only_nodes_that_run_relaxed_gangs_are_used() -> None:
    plain = node("f1", 4, gpus=4, gpu_type="fast")
    bare = msgspec.structs.replace(plain, modes=("lockstep",))
    assert set(chosen(decide("hare", view([trains("only")], [bare, CLUSTER[1]])))["only"]) == {"s0"}
    decision = decide("hare", view([trains("only")], [bare]))
    assert [one.reason for one in decision.left] == [Waiting.NO_CONFIGURATION]


@given(views())
@limits(max_examples=30, deadline=None)
def test_gpus_are_left_idle_only_where_no_waiting_job_can_use_them(seen: View) -> None:
    decision = decide("hare", seen)
    used = in_turns.held((one.job_id, one.gang) for one in decision.choices)
    able = [one for one in seen.nodes if "relaxed" in one.modes]
    idle = {one.gpu_type for one in able if one.idle > used.get(one.node_id, 0)}
    left = {one.job_id for one in decision.left}
    for one in seen.jobs:
        assert one.job_id not in left or not idle & set(one.gpu_types)


# ---- limited time


@pytest.mark.parametrize(("seconds", "served"), [(1.0, 2), (3e-7, 1), (0.0, 1)])
def test_a_job_whose_turn_comes_when_time_is_out_gets_idle_gpus_or_none(seconds: float, served: int) -> None:
    """The second could share the GPUs of the first."""
    jobs = [trains("first", gradient_bytes=100 * MB), trains("second", samples=5000.0)]
    decision = decide("hare", view(jobs, TWO, effort=Effort(modelled=True, budget_s=seconds)))
    assert len(decision.choices) == served
    assert (decision.stage, len(decision.notes)) == (
        (Stage.QUEUE, 0) if served == 2 else (Stage.INCUMBENT, 1)
    )


@pytest.mark.parametrize("rota", [True, False])
def test_without_solving_jobs_stay_where_they_are(rota: bool) -> None:  # noqa: FBT001
    """Also one that is in no rota, as another policy placed it."""
    jobs = [trains("first", demand=(2,)), trains("second", 5000.0, (2,))]
    cluster = [*TWO, gpus("s0", 2, "slow")]
    before = decide("hare", view(jobs, cluster))
    later = running(jobs, before)
    if not rota:
        later = [msgspec.structs.replace(one, present=alone(one)) for one in later]
    now = decide("hare", view(later, cluster, effort=Effort(modelled=True, greedy=True)))
    assert (now.stage, chosen(now)) == (Stage.GREEDY, chosen(before))


def alone(job: ViewJob) -> Present:
    assert job.present is not None
    gang = Gang.of(job.present.gang.configuration)
    return msgspec.structs.replace(job.present, gang=gang)
