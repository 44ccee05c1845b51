"""Gavel as a policy: rounds of its own, memory, reasons; what it costs at scale."""

import time
from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as limits

from schemas.ids import JobId, NodeId
from schemas.plans import PlanKind, Stage, Waiting
from services.planner.policies.contract.configurations import Configurations
from services.planner.policies.contract.decision import Decision, Trigger, fault
from services.planner.policies.contract.estimates import Estimated
from services.planner.policies.contract.view import View, ViewJob, ViewNode
from services.planner.policies.gavel.memory import Memory, read
from services.planner.policies.gavel.policy import Gavel
from services.planner.policies.registry import Registry
from services.planner.solver.effort import Effort
from tests.services.planner.planner_builders import (
    FAST,
    SLOW,
    chosen,
    decide,
    job,
    linear,
    node,
    nodes,
    place_on,
    present,
    silent,
    view,
)
from tests.services.planner.planner_views import mentioned, views

HERE = "services.planner.policies.gavel.policy:"
VARIANTS = [
    HERE + name + blind
    for name in ("gavel", "gavel_ftf", "gavel_makespan", "gavel_throughput", "gavel_fifo")
    for blind in ("", "_agnostic")
]
GAVEL = VARIANTS[0]
every_variant = pytest.mark.parametrize("policy", VARIANTS)
BOTH = (FAST, SLOW)
ROUND_S = 360.0


def twofold(wanted: Configurations) -> Estimated:
    """An estimator: type `a` is twice as fast as type `b`."""
    even = linear(wanted)
    fast = np.array([node.startswith("a") for node in wanted.nodes], dtype=np.float64)
    return Estimated(
        throughput=even.throughput * (1 + fast[wanted.node[wanted.start[:-1]]]), layer=even.layer
    )


def one_gains(wanted: Configurations) -> Estimated:
    """An estimator: `fond` is as fast on both types, any other job twice as fast on `a`."""
    even, gain = linear(wanted), twofold(wanted)
    fond = np.array([name == "fond" for name in wanted.jobs])[wanted.job]
    return Estimated(throughput=np.where(fond, even.throughput, gain.throughput), layer=even.layer)


def small(*gpus: int, gpu_type: str = FAST) -> tuple[ViewNode, ...]:
    """Nodes with so many GPUs, all idle."""
    return tuple(
        node(f"{gpu_type}{index}", size, gpus=size, gpu_type=gpu_type) for index, size in enumerate(gpus)
    )


def jobs(count: int, demand: Sequence[int] = (1,), **fields: object) -> list[ViewJob]:
    return [job(f"j{index}", demand, submitted_at=float(index), **fields) for index in range(count)]


def after(seen: View, decision: Decision, *, members: Sequence[ViewJob] | None = None) -> View:
    """The view one round later: what was chosen has run on, and is where it was put."""
    types = {node.node_id: node.gpu_type for node in seen.nodes}
    places = chosen(decision)
    moved = []
    for own in members if members is not None else seen.jobs:
        place = places.get(own.job_id, {})
        received = dict(own.received_s)
        for gpu_type in {types[node_id] for node_id in place}:
            received[gpu_type] = received.get(gpu_type, 0.0) + ROUND_S
        here = present(**place) if place else None
        moved.append(msgspec.structs.replace(own, received_s=received, present=here))
    return msgspec.structs.replace(
        seen, at=seen.at + ROUND_S, round=seen.round + 1, jobs=tuple(moved), memory=decision.memory
    )


# ---- rounds


@pytest.mark.parametrize("faithful", [False, True])
def test_time_received_approaches_the_shares(*, faithful: bool) -> None:
    """Three jobs on two GPUs of one type: each has two thirds of the time."""
    seen, times = view(jobs(3), small(2)), Counter[str]()
    for _ in range(30):
        decision = decide(GAVEL, seen, faithful=faithful)
        times.update(list(chosen(decision)))
        seen = after(seen, decision)
    assert times == {"j0": 20, "j1": 20, "j2": 20}


def test_time_is_given_where_it_counts_most() -> None:
    """The one that gains has the fast GPU to itself."""
    cluster = (*small(1), *small(1, gpu_type=SLOW))
    seen = view([job("fond", gpu_types=BOTH), job("other", gpu_types=BOTH)], cluster)
    for _ in range(4):
        decision = decide(GAVEL, seen, estimator=one_gains)
        assert chosen(decision) == {"other": place_on(a0=1), "fond": place_on(b0=1)}
        seen = after(seen, decision)


@pytest.mark.parametrize("policy", VARIANTS)
def test_a_place_on_several_types_is_no_evidence_about_any_type(policy: str) -> None:
    """Another policy put it on both types, where it is a thousand times slower than on either."""
    cluster = (*small(2), *small(2, gpu_type=SLOW))
    spread = present(a0=1, b0=1)
    there = job("j0", (2,), gpu_types=BOTH, present=spread)

    def slow_where_mixed(wanted: Configurations) -> Estimated:
        mixed = [wanted.at(row) == spread.gang.configuration for row in range(len(wanted))]
        even = twofold(wanted)
        return Estimated(
            throughput=np.where(mixed, even.throughput / 1000, even.throughput), layer=even.layer
        )

    decision = decide(policy, view([there], cluster), estimator=slow_where_mixed)
    [choice] = decision.choices
    assert choice.gang.nodes in [("a0",), ("b0",)]
    assert choice.throughput == (40.0 if choice.gang.nodes == ("a0",) else 20.0)


def test_shares_are_kept_between_resets_and_computed_again_after_them() -> None:
    seen = view(jobs(2), small(1))
    first = decide(GAVEL, seen)
    assert first.stage is Stage.OPTIMAL
    later = after(seen, first, members=jobs(3))
    second = decide(GAVEL, later)
    assert (second.stage, read(second.memory).jobs) == (Stage.QUEUE, read(first.memory).jobs)
    third = decide(GAVEL, msgspec.structs.replace(later, at=seen.at + 1920.0))
    assert third.stage is Stage.OPTIMAL
    assert len(read(third.memory).jobs) == 3


def test_a_job_that_came_and_went_between_resets_counts_as_a_change() -> None:
    seen = view(jobs(2), small(1))
    first = decide(GAVEL, seen)
    visited = after(seen, first, members=jobs(3))
    alone = after(visited, decide(GAVEL, visited), members=jobs(2))
    assert decide(GAVEL, alone).stage is Stage.QUEUE
    assert decide(GAVEL, msgspec.structs.replace(alone, at=seen.at + 1920.0)).stage is Stage.OPTIMAL


def test_another_priority_counts_as_a_change() -> None:
    seen = view(jobs(2), small(1))
    first = decide(GAVEL, seen)
    raised = (*jobs(1), job("j1", priority=3.0))
    changed = msgspec.structs.replace(after(seen, first, members=raised), at=seen.at + 1920.0)
    assert decide(GAVEL, changed).stage is Stage.OPTIMAL
    same = msgspec.structs.replace(after(seen, first, members=jobs(2)), at=seen.at + 1920.0)
    assert decide(GAVEL, same).stage is Stage.QUEUE


def test_shares_computed_without_jobs_hold_for_the_next_job() -> None:
    seen = view(jobs(1), small(1))
    gone = msgspec.structs.replace(after(seen, decide(GAVEL, seen), members=()), at=seen.at + 1920.0)
    empty = decide(GAVEL, gone)
    assert read(empty.memory) == Memory(at=gone.at, gpus={FAST: 1.0})
    assert decide(GAVEL, after(gone, empty, members=jobs(1))).stage is Stage.QUEUE


def test_the_authors_go_through_the_types_as_listed() -> None:
    """A job runs on the first type with room, though all of its time is due on another as fast."""
    cluster = (*small(1), *small(1, gpu_type=SLOW))
    seen = view([job(gpu_types=BOTH)], cluster)
    places = [
        chosen(decide(GAVEL, seen, faithful=True, types=types))["job"]
        for types in (f"{FAST} {SLOW}", f"{SLOW} {FAST}", SLOW, "")
    ]
    assert places == [place_on(a0=1), place_on(b0=1), place_on(b0=1), place_on(a0=1)]


def test_a_gang_that_could_stay_is_not_driven_out() -> None:
    """By the authors' rules that is a matter of GPUs, not of nodes: `stays` has the last two of its node.

    The large gang takes all of the first node and one GPU of the second; `moves` the next two.
    """
    members = [
        job("large", (5,)),
        job("moves", (2,), submitted_at=1.0),
        job("stays", (2,), submitted_at=2.0, present=present(a1=2)),
    ]
    before = Memory(gpus_of={JobId("stays"): {NodeId("a1"): (2, 3)}})
    seen = msgspec.structs.replace(view(members, small(4, 4, 4)), memory=msgspec.msgpack.encode(before))
    decision = decide(GAVEL, seen, faithful=True)
    assert read(decision.memory).gpus_of == {
        "large": {"a0": (0, 1, 2, 3), "a1": (0,)},
        "stays": {"a1": (2, 3)},
        "moves": {"a1": (1,), "a2": (0,)},
    }
    assert chosen(decision)["stays"] == place_on(a1=2)


def test_gpus_assumed_to_be_profiled_on_are_not_those_of_jobs() -> None:
    """Which GPUs are idle is not known: those that jobs hold are never among the others."""
    cluster = [node("a0", 3, gpus=4)]
    before = Memory(gpus_of={JobId("stays"): {NodeId("a0"): (3,)}})
    members = [job("stays", present=present(a0=1)), job("new", (2,))]
    seen = msgspec.structs.replace(view(members, cluster), memory=msgspec.msgpack.encode(before))
    decision = decide(GAVEL, seen, faithful=True)
    assert read(decision.memory).gpus_of == {"new": {"a0": (0, 1)}, "stays": {"a0": (3,)}}


@pytest.mark.parametrize("memory", [b"", msgspec.msgpack.encode(Memory(gpus_of={JobId("x"): {}}))])
def test_a_job_started_by_another_policy_keeps_its_gpu_counts_by_node(memory: bytes) -> None:
    members = [job("x", (2,), present=present(a1=2)), job("y", (2,), present=present(a1=2))]
    seen = msgspec.structs.replace(view(members, small(4, 4)), memory=memory)
    decision = decide(GAVEL, seen, faithful=True)
    assert read(decision.memory).gpus_of == {"x": {"a1": (0, 1)}, "y": {"a1": (2, 3)}}


def test_a_newcomer_takes_left_over_gpus() -> None:
    """The authors keep room for it and leave that idle."""
    seen = view(jobs(1), small(2))
    later = after(seen, decide(GAVEL, seen), members=jobs(2))
    assert set(chosen(decide(GAVEL, later))) == {"j0", "j1"}
    assert set(chosen(decide(GAVEL, later, faithful=True))) == {"j0"}


def test_fifo_does_not_keep_a_newcomer_waiting_for_a_reset() -> None:
    fifo = HERE + "gavel_fifo"
    seen = view(jobs(1), small(2))
    later = after(seen, decide(fifo, seen), members=jobs(2))
    assert set(chosen(decide(fifo, later))) == {"j0", "j1"}


def test_a_blind_variant_gives_all_jobs_the_same_part_of_every_type() -> None:
    members = [job("fond", gpu_types=BOTH), job("other", gpu_types=BOTH)]
    seen = view(members, (*small(1), *small(1, gpu_type=SLOW)))
    places = Counter[str]()
    for _ in range(8):
        decision = decide(GAVEL + "_agnostic", seen, estimator=one_gains)
        places.update(f"{name} on {next(iter(place))}" for name, place in chosen(decision).items())
        seen = after(seen, decision)
    assert places == {"fond on a0": 4, "fond on b0": 4, "other on a0": 4, "other on b0": 4}


def test_demand_is_rigid_at_the_median() -> None:
    decision = decide(GAVEL, view([job("x", (1, 2, 8))], small(8)))
    assert chosen(decision) == {"x": place_on(a0=2)}


def test_a_throughput_is_that_of_the_place() -> None:
    """The estimate of this very place; else of one as much alike as was asked about."""
    whole = decide(GAVEL, view([job("x", (4,))], small(4, 4)))
    split = decide(GAVEL, view([job("x", (4,))], [node("a0", 2), node("a1", 2)]))
    assert chosen(split) == {"x": place_on(a0=2, a1=2)}
    assert [own.choices[0].throughput for own in (whole, split)] == pytest.approx([40.0, 40.0])
    run = decide(GAVEL, view([job("x", (4,))], small(3, 3)))
    assert run.choices[0].throughput == pytest.approx(32.0)


def test_gavel_plans_only_at_the_start_of_rounds() -> None:
    assert dict(Gavel.calls) == {Trigger.ROUND: PlanKind.FIRST}


# ---- who takes part


def test_reasons_are_distinct() -> None:
    seen = view([job("runs"), job("giant", (64,)), job("waits")], small(1))
    decision = decide(GAVEL, seen)
    reasons = {left.job_id: (left.reason, left.detail) for left in decision.left}
    assert reasons == {
        "giant": (Waiting.NO_CONFIGURATION, ""),
        "waits": (Waiting.OUTWEIGHED, "it is due 50% of its time on a"),
    }
    assert decide(GAVEL, seen, estimator=silent).left[0].reason == Waiting.NO_ESTIMATE


def test_a_queue_may_be_cut_to_the_service_window() -> None:
    members = [job("fresh", wait_s=1.0), job("late", wait_s=1000.0), job("older", wait_s=500.0)]
    decision = decide(GAVEL, view(members, small(2)), queue="window")
    assert set(chosen(decision)) == {"late", "older"}
    assert [(left.job_id, left.reason) for left in decision.left] == [("fresh", Waiting.OUTSIDE_WINDOW)]


def test_a_rule_of_priority_may_weigh_the_jobs() -> None:
    members = [job("fresh", wait_s=100.0), job("late", wait_s=300.0)]
    decision = decide(GAVEL, view(members, small(1)), queue="weights")
    share = {name: entry.share[FAST] for name, entry in read(decision.memory).jobs.items()}
    assert share == pytest.approx({"fresh": 0.25, "late": 0.75})


# ---- the contract


@every_variant
@given(seen=views())
@limits(max_examples=15, deadline=None)
def test_the_authors_quirks_break_no_rule(policy: str, seen: View) -> None:
    decision = decide(policy, seen, faithful=True)  # which checks capacity, gangs, one configuration a job
    assert decision == decide(policy, seen, faithful=True)
    assert mentioned(decision) == sorted(own.job_id for own in seen.jobs)
    again = msgspec.structs.replace(seen, memory=decision.memory, at=seen.at + ROUND_S)
    assert fault(again, decide(policy, again, faithful=True)) is None


@every_variant
def test_without_solving_each_gets_its_part(policy: str) -> None:
    effort = Effort(modelled=True, greedy=True)
    decision = decide(policy, view(jobs(4), small(2), effort=effort))
    assert decision.stage in {Stage.GREEDY, Stage.QUEUE}
    assert len(decision.choices) == 2


def test_a_budget_that_runs_out_is_noted_and_the_next_round_tries_again() -> None:
    seen = view(jobs(4), small(2), effort=Effort(modelled=True, budget_s=0.0))
    decision = decide(GAVEL, seen)
    assert decision.stage is Stage.INCUMBENT
    assert decision.notes == ("the solver's time was out before all shares were filled",)
    assert len(decision.choices) == 2
    again = msgspec.structs.replace(after(seen, decision), effort=Effort(modelled=True))
    assert decide(GAVEL, again).stage is Stage.OPTIMAL


def test_memory_survives_a_restart_of_the_planner() -> None:
    """One planner decides round after round; the other is restarted for each."""
    lasting = Registry()
    straight = resumed = view(jobs(3), small(2))
    for _ in range(8):
        one = decide(GAVEL, straight, registry=lasting)
        other = decide(GAVEL, resumed, registry=Registry())
        assert one == other
        straight, resumed = after(straight, one), after(resumed, other)


@pytest.mark.parametrize("memory", [b"garbage", b"\x80", b"\xc0"])
def test_memory_that_is_not_its_own_is_a_fresh_start(memory: bytes) -> None:
    seen = view(jobs(3), small(2))
    assert decide(GAVEL, msgspec.structs.replace(seen, memory=memory)) == decide(GAVEL, seen)


# ---- speed


@pytest.mark.benchmark
@every_variant
@pytest.mark.parametrize(("count", "gpus"), [(64, 64), (256, 512), (512, 512), (256, 2048), (1024, 2048)])
def test_a_round_stays_far_below_the_deadline(policy: str, count: int, gpus: int) -> None:
    random = np.random.default_rng(count + gpus)
    cluster = [own for kind in ("a", "b", "c", "d") for own in nodes(*[8] * (gpus // 32), gpu_type=kind)]
    members = [
        job(
            f"j{index:04}",
            sorted(int(size) + 1 for size in random.choice(16, 3, replace=False)),
            gpu_types=("a", "b", "c", "d"),
        )
        for index in range(count)
    ]
    speed = {
        (name, kind): random.uniform(0.5, 2.0) * 2**step
        for name in (own.job_id for own in members)
        for step, kind in enumerate("abcd")
    }

    def estimator(wanted: Configurations) -> Estimated:
        even = linear(wanted)
        kinds = [node[0] for node in wanted.nodes]
        factor = np.array([[speed[name, kind] for kind in kinds] for name in wanted.jobs])
        return Estimated(
            throughput=even.throughput * factor[wanted.job, wanted.node[wanted.start[:-1]]], layer=even.layer
        )

    seen = view(members, cluster, effort=Effort(modelled=False))
    began = time.perf_counter()
    decision = decide(policy, seen, estimator=estimator)
    whole_s = time.perf_counter() - began
    name = policy.partition(":")[2]
    print(f"{name:26}{count:5} jobs{gpus:5} GPUs: solve {decision.solve_s:.3f} s, all {whole_s:.3f} s")
    assert decision.stage in {Stage.OPTIMAL, Stage.QUEUE}
    assert whole_s < 10.0
