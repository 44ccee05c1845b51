"""The audit finds what is planted: a clean log of a whole run, spoilt in every place where it can be."""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from typing import Any, TypeVar

import msgspec
import pytest

from loadgen.simulation import simulate
from schemas.base import Event
from schemas.events import (
    JobCompleted,
    JobPreempted,
    JobQueued,
    JobStarted,
    JobSubmitted,
    NodeJoined,
    PlanPublished,
    StartOrdered,
    WorkerStarted,
    WorkerStopped,
)
from schemas.ids import NodeId, PlacementId, RotaId
from schemas.placement import Gang, Proportional, Relaxed
from schemas.plans import PlanKind
from shared.domain.audit import __doc__ as audit_doc
from shared.domain.audit import audit
from tests.simulation.storms import RTX, SMALL, XP

Log = list[Event]
E = TypeVar("E", bound=Event)
Spoil = Callable[[Log], Iterator[Log]]
"""a log → logs that are each spoilt in one place"""

OTHER = PlacementId("planted")


@cache
def clean() -> tuple[Event, ...]:
    return tuple(simulate(SMALL).events)


def all_of(log: Log, kind: type[E]) -> Iterator[tuple[int, E]]:
    return ((index, fact) for index, fact in enumerate(log) if isinstance(fact, kind))


def without(log: Log, kind: type[Event]) -> Iterator[Log]:
    return ([*log[:index], *log[index + 1 :]] for index, _ in all_of(log, kind))


def changed(log: Log, index: int, **changes: Any) -> Log:  # noqa: ANN401 - any field of the fact
    return [*log[:index], msgspec.structs.replace(log[index], **changes), *log[index + 1 :]]


def followed(log: Log, index: int, fact: Event) -> Log:
    """The log with one more fact, right after that one."""
    return [*log[: index + 1], fact, *log[index + 1 :]]


def plans(log: Log) -> Iterator[tuple[int, PlanPublished]]:
    """Plans that place a job."""
    return ((index, plan) for index, plan in all_of(log, PlanPublished) if plan.placements)


def completions_dropped(log: Log) -> Iterator[Log]:
    return without(log, JobCompleted)


def submissions_dropped(log: Log) -> Iterator[Log]:
    return without(log, JobSubmitted)


def queueings_dropped(log: Log) -> Iterator[Log]:
    return without(log, JobQueued)


def preemptions_dropped(log: Log) -> Iterator[Log]:
    return without(log, JobPreempted)


def nodes_dropped(log: Log) -> Iterator[Log]:
    return without(log, NodeJoined)


def jobs_started_again(log: Log) -> Iterator[Log]:
    for index, fact in all_of(log, JobStarted):
        yield followed(log, index, msgspec.structs.replace(fact, placement_id=OTHER))


def jobs_planned_after_their_end(log: Log) -> Iterator[Log]:
    for index, end in all_of(log, JobCompleted):
        order = next(fact for _, fact in all_of(log, StartOrdered) if fact.placement_id == end.placement_id)
        plan = next(plan for _, plan in plans(log) if end.placement_id in ids(plan))
        one = next(one for one in plan.placements if one.placement_id == end.placement_id)
        again = msgspec.structs.replace(one, placement_id=OTHER)
        planted = [
            msgspec.structs.replace(plan, plan_id=OTHER, placements=(again,), kind=PlanKind.FRAGMENT),
            msgspec.structs.replace(order, placement_id=OTHER),
        ]
        yield [*log[: index + 1], *planted, *log[index + 1 :]]


def ids(plan: PlanPublished) -> set[PlacementId]:
    return {placement.placement_id for placement in plan.placements}


def starts_without_a_plan(log: Log) -> Iterator[Log]:
    return (changed(log, index, placement_id=OTHER) for index, _ in all_of(log, StartOrdered))


def jobs_that_no_plan_might_move(log: Log) -> Iterator[Log]:
    """Jobs that a plan preempted while their nodes did not drain."""
    moved = {fact.job_id for _, fact in all_of(log, JobPreempted) if fact.cause and fact.cause.plan_id}
    for index, fact in all_of(log, JobSubmitted):
        if fact.job_id in moved:
            yield changed(log, index, spec=msgspec.structs.replace(fact.spec, preemptible=False))


def work_cut_short(log: Log) -> Iterator[Log]:
    for index, fact in all_of(log, JobCompleted):
        yield changed(log, index, samples_done=fact.samples_done * 0.999)


def work_counted_twice(log: Log) -> Iterator[Log]:
    for index, fact in (*all_of(log, JobCompleted), *all_of(log, JobPreempted)):
        assert isinstance(fact, JobCompleted | JobPreempted)
        if fact.samples_done:
            yield changed(log, index, samples_done=fact.samples_done * 1.001)


def jobs_forgotten_by_a_plan(log: Log) -> Iterator[Log]:
    for index, plan in all_of(log, PlanPublished):
        if plan.kind is PlanKind.FIRST:
            for job_id in [placement.job_id for placement in plan.placements]:
                kept = tuple(one for one in plan.placements if one.job_id != job_id)
                yield changed(log, index, placements=kept)
            for job_id in [left.job_id for left in plan.left_out]:
                yield changed(
                    log, index, left_out=tuple(one for one in plan.left_out if one.job_id != job_id)
                )


def gpus_not_given_back(log: Log) -> Iterator[Log]:
    """Where somebody takes them afterwards."""
    for index, stopped in all_of(log, WorkerStopped):
        if any(fact.node_id == stopped.node_id for at, fact in all_of(log, WorkerStarted) if at > index):
            yield [*log[:index], *log[index + 1 :]]


def gpus_that_are_not_there(log: Log) -> Iterator[Log]:
    return (changed(log, index, gpu_indices=(2,)) for index, _ in all_of(log, WorkerStarted))


def workers_missing_from_their_gang(log: Log) -> Iterator[Log]:
    started = {fact.placement_id for _, fact in all_of(log, JobStarted)}
    for index, fact in all_of(log, WorkerStarted):
        if fact.placement_id in started:
            yield [*log[:index], *log[index + 1 :]]


def plans_larger_than_their_nodes(log: Log) -> Iterator[Log]:
    for index, plan in plans(log):
        first, *rest = plan.placements
        larger = {node_id: gpus + 1 for node_id, gpus in first.gang.configuration.items()}
        if max(larger.values()) > 2:
            wider = msgspec.structs.replace(first, gang=Gang.of(larger))
            yield changed(log, index, placements=(wider, *rest))


def jobs_placed_twice(log: Log) -> Iterator[Log]:
    for index, plan in plans(log):
        again = msgspec.structs.replace(plan.placements[0], placement_id=OTHER)
        yield changed(log, index, placements=(*plan.placements, again))


def plans_of_a_leader_long_gone(log: Log) -> Iterator[Log]:
    """Where it starts something new."""
    index, _ = next(all_of(log, PlanPublished))
    yield changed(log, index, token=10**9)


def counts_outside_the_demand(log: Log) -> Iterator[Log]:
    for index, fact in all_of(log, JobStarted):
        yield changed(log, index, gang=Gang.of(dict.fromkeys(fact.gang.nodes, 7)))


def shares_that_leave_samples_out(log: Log) -> Iterator[Log]:
    """One sample an iteration less than the gang's global batch."""
    for index, fact in all_of(log, JobStarted):
        taken = (*(fact.global_batch // fact.gang.gpus * one.gpus for one in fact.gang.members),)
        if taken[0] > fact.gang.members[0].gpus:
            short = Proportional(samples=(taken[0] - 1, *taken[1:]))
            yield changed(log, index, gang=Gang(fact.gang.members, short))


def types_the_job_may_not_use(log: Log) -> Iterator[Log]:
    wants_xp = {fact.job_id for _, fact in all_of(log, JobSubmitted) if fact.spec.gpu_types == (XP,)}
    rtx = [fact.node_id for _, fact in all_of(log, NodeJoined) if fact.node.gpu_type == RTX]
    for index, fact in all_of(log, JobStarted):
        if fact.job_id in wants_xp:
            yield changed(log, index, gang=Gang.of(dict.fromkeys(rtx, 2)))


def nodes_nobody_knows(log: Log) -> Iterator[Log]:
    for index, fact in all_of(log, JobStarted):
        yield changed(log, index, gang=Gang.of({NodeId("nowhere"): fact.gang.gpus}))


# ---- of a run whose jobs take turns


@cache
def turned() -> tuple[Event, ...]:
    return tuple(simulate(SMALL, policy="tests.simulation.mode_policies:Rotas").events)


def _other_rota(gang: Gang) -> Gang:
    assert isinstance(gang.sync, Relaxed)
    return Gang(gang.members, msgspec.structs.replace(gang.sync, rota=RotaId("planted")))


def orders_into_a_rota_of_ones_own(log: Log) -> Iterator[Log]:
    """Where others take turns on the GPUs."""
    ends = {(fact.placement_id, fact.node_id): at for at, fact in all_of(log, WorkerStopped)}
    begins = [(at, fact) for at, fact in all_of(log, WorkerStarted)]
    for up, worker in begins:
        there = [one for at, one in begins if at < up and one.node_id == worker.node_id]
        if any(ends[one.placement_id, one.node_id] > up for one in there):
            yield [
                msgspec.structs.replace(fact, gang=_other_rota(fact.gang))
                if isinstance(fact, StartOrdered) and fact.placement_id == worker.placement_id
                else fact
                for fact in log
            ]


def plans_with_one_in_another_rota(log: Log) -> Iterator[Log]:
    for index, plan in plans(log):
        shared = Counter(one.gang.members for one in plan.placements)
        if first := next((one for one in plan.placements if shared[one.gang.members] > 1), None):
            alone = msgspec.structs.replace(first, gang=_other_rota(first.gang))
            others = (one for one in plan.placements if one is not first)
            yield changed(log, index, placements=(alone, *others))


def plans_with_two_at_one_place(log: Log) -> Iterator[Log]:
    for index, plan in plans(log):
        turning = [
            one for one in plan.placements if isinstance(one.gang.sync, Relaxed) and one.gang.sync.turns
        ]
        for one, other in pairwise(turning):
            if one.gang.members == other.gang.members:
                assert isinstance(one.gang.sync, Relaxed)
                assert isinstance(other.gang.sync, Relaxed)
                sync = msgspec.structs.replace(other.gang.sync, place=one.gang.sync.place)
                twin = msgspec.structs.replace(other, gang=Gang(other.gang.members, sync))
                kept = (each for each in plan.placements if each is not other)
                yield changed(log, index, placements=(*kept, twin))


IN_TURNS: list[tuple[Spoil, str]] = [
    (orders_into_a_rota_of_ones_own, "gpu-two-owners"),
    (plans_with_one_in_another_rota, "node-overbooked"),
    (plans_with_two_at_one_place, "rota-discord"),
]

SPOILT: dict[str, list[Spoil]] = {
    "job-lost": [completions_dropped, jobs_forgotten_by_a_plan],
    "state-table": [submissions_dropped, queueings_dropped],
    "job-unknown": [submissions_dropped],
    "started-twice": [jobs_started_again, preemptions_dropped],
    "start-after-end": [jobs_planned_after_their_end],
    "start-unplanned": [starts_without_a_plan],
    "place-taken": [jobs_that_no_plan_might_move],
    "work-undone": [work_cut_short],
    "work-overcounted": [work_counted_twice],
    "gpu-two-owners": [gpus_not_given_back],
    "gpu-unknown": [gpus_that_are_not_there],
    "gang-broken": [workers_missing_from_their_gang],
    "node-overbooked": [plans_larger_than_their_nodes],
    "placed-twice": [jobs_placed_twice],
    "stale-plan-followed": [plans_of_a_leader_long_gone],
    "gpu-count": [counts_outside_the_demand],
    "shares-whole": [shares_that_leave_samples_out],
    "gpu-type": [types_the_job_may_not_use],
    "node-unknown": [nodes_dropped, nodes_nobody_knows],
}
CASES = [pytest.param(spoil, rule, id=spoil.__name__) for rule, ways in SPOILT.items() for spoil in ways]


def test_every_rule_of_the_audit_is_shown_to_fail() -> None:
    first_cells = [row.split("|")[1] for row in (audit_doc or "").splitlines() if row.startswith("| ")]
    rules = {rule for cell in first_cells for rule in re.findall(r"[a-z]+-[a-z-]*[a-z]", cell)}
    assert rules == {*SPOILT, *(rule for _, rule in IN_TURNS)}


def test_the_log_of_a_run_is_clean() -> None:
    assert audit(clean(), drained=True) == []


@pytest.mark.parametrize(("spoil", "rule"), CASES)
def test_every_planted_violation_is_found(spoil: Spoil, rule: str) -> None:
    logs = list(spoil(list(clean())))
    assert logs, "the run gives no occasion"
    for log in logs:
        assert rule in {violation.rule for violation in audit(log, drained=True)}


def test_the_log_of_a_run_in_turns_is_clean() -> None:
    assert audit(turned(), drained=True) == []


@pytest.mark.parametrize(("spoil", "rule"), [pytest.param(*case, id=case[0].__name__) for case in IN_TURNS])
def test_every_violation_planted_among_turns_is_found(spoil: Spoil, rule: str) -> None:
    logs = list(spoil(list(turned())))
    assert logs, "the run gives no occasion"
    for log in logs:
        assert rule in {violation.rule for violation in audit(log, drained=True)}
