"""Estimated against measured throughput: executions from facts, and figures over them. Pure.

An execution is a placement from the forming of its gang to the order that stops it, or to its end. Each copy
of a forked gang is an execution too. The estimate is that of the plan that placed it, or the copy's part of
that; the measured throughput is the number of samples that the leader did, divided by the time.
Restoring and checkpointing are no part of it. The estimator keeps its prediction log with this fold, and
an experiment reads the log of a run with it, so both mean the same by "measured".
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import fsum
from typing import Any, TypeVar

import msgspec

from schemas.accuracy import AccuracyReport, AccuracyRow, Execution
from schemas.base import Event
from schemas.events import (
    GangFormed,
    JobCancelled,
    JobCompleted,
    JobFailed,
    JobPreempted,
    JobProfiled,
    JobTypeProfiled,
    NodeJoined,
    NodeLost,
    PlacementRefused,
    PlanPublished,
    StartOrdered,
    StopOrdered,
    WorkerEvent,
    WorkerStarted,
    WorkerStopped,
)
from schemas.ids import Fingerprint, NodeId, PlacementId
from schemas.plans import Placement, PlanKind
from shared.domain import gangs
from shared.domain.metrics import percentile
from shared.domain.tally import WELL

V = TypeVar("V")

SHORTEST_S = 60.0
"""seconds; a shorter execution measures little but the start of its processes"""
WORKLOADS_REMEMBERED = 10_000
"""workloads, those profiled or run last, of which a fold knows more than the placements under way"""

# ---- executions


class RunningPlacement(msgspec.Struct, kw_only=True):
    """A placement under way, or a copy."""

    order: StartOrdered
    """the order to its leader"""
    placement: Placement
    """as in the plan that placed it"""
    samples_restored: float | None = None
    """samples of the checkpoint that the leader restored; None: those of the order"""
    began_at: float | None = None
    stopped_at: float | None = None
    """time of the order to stop, since writing the checkpoint is not running"""


class Executions(msgspec.Struct, kw_only=True):
    """What the fold remembers."""

    token: int = 0
    """fencing token of the newest leader of the planner that published a plan"""
    planned: dict[PlacementId, Placement] = {}
    """placements of the round's plans"""
    running: dict[PlacementId, dict[NodeId, RunningPlacement]] = {}
    """placements under way, by id and leader"""
    numbers: dict[Fingerprint, int] = {}
    """executions so far, by workload, the one that ran last at the end"""
    unstable: dict[Fingerprint, bool] = {}
    """whether the loading times of a workload have two components, the one profiled last at the end"""


def executions_of(facts: Iterable[Event]) -> list[Execution]:
    """All executions of a log, in the order in which they ended."""
    known = Executions()
    return [one for fact in facts if (one := fold(known, fact)) is not None]


def fold(known: Executions, fact: Event) -> Execution | None:
    """Enter one fact; returns the execution that it ends, if any. Facts of other kinds change nothing."""
    enter = FOLDS.get(type(fact))
    return enter(known, fact) if enter else None


def _profile(known: Executions, fact: JobProfiled) -> None:
    if fact.modules:
        modes = (len(modules.data) for modules in fact.modules.values())
        _remember(known.unstable, fact.workload.fingerprint, max(modes) > 1)


def _type_profile(known: Executions, fact: JobTypeProfiled) -> None:
    if len(fact.modules.data) > 1:
        _remember(known.unstable, fact.workload.fingerprint, True)


def _remember(table: dict[Fingerprint, V], fingerprint: Fingerprint, value: V) -> None:
    """Enter the value at the end of the table; above the limit, the first ones leave it."""
    table.pop(fingerprint, None)
    table[fingerprint] = value
    while len(table) > WORKLOADS_REMEMBERED:
        del table[next(iter(table))]


def _plan(known: Executions, fact: PlanPublished) -> None:
    """Enter a plan, unless it is by an earlier leader of the planner: the placer refuses all of those."""
    if fact.token < known.token:
        return
    known.token = fact.token
    if fact.kind is PlanKind.FIRST:
        known.planned = {}
    known.planned |= {placement.placement_id: placement for placement in fact.placements}


def _order(known: Executions, fact: StartOrdered) -> None:
    placement = known.planned.get(fact.placement_id)
    leads = gangs.observed(fact.gang) and fact.node_id in gangs.leaders(fact.gang)
    if leads and placement is not None and _running(known, fact) is None:
        own = known.running.setdefault(fact.placement_id, {})
        own[fact.node_id] = RunningPlacement(order=fact, placement=placement)


def _running(known: Executions, fact: WorkerEvent) -> RunningPlacement | None:
    return known.running.get(fact.placement_id, {}).get(fact.node_id)


def _restore(known: Executions, fact: WorkerStarted) -> None:
    running = _running(known, fact)
    if running is not None and fact.samples_restored is not None:
        running.samples_restored = fact.samples_restored


def _begin(known: Executions, fact: GangFormed) -> None:
    running = _running(known, fact)
    if running is not None and running.began_at is None:
        running.began_at = fact.at


def _stop(known: Executions, fact: StopOrdered) -> None:
    running = _running(known, fact)
    if running is not None and running.stopped_at is None:
        running.stopped_at = fact.at


def _end(known: Executions, fact: WorkerStopped) -> Execution | None:
    running = _running(known, fact)
    if running is None:
        return None
    del known.running[fact.placement_id][fact.node_id]
    if not known.running[fact.placement_id]:
        del known.running[fact.placement_id]
    return _execution(known, running, fact) if fact.leads and fact.outcome in WELL else None


def _drop(known: Executions, fact: JobPreempted | JobCompleted | JobFailed) -> None:
    """Forget a placement whose node was lost or that never came up: nothing was measured."""
    known.running.pop(fact.placement_id, None)


def _refuse(known: Executions, fact: PlacementRefused) -> None:
    """Forget a placement whose gang will never form: an agent that is gone reports no end."""
    if _idle(known.running.get(fact.placement_id, {}).values()):
        known.running.pop(fact.placement_id, None)


def _leave(known: Executions, fact: NodeLost | NodeJoined) -> None:
    """Forget what ran on a node: if its job was cancelled before, nothing else says that it ended."""
    for placement_id in left_behind(known, fact):
        del known.running[placement_id][fact.node_id]
        if not known.running[placement_id]:
            del known.running[placement_id]


def left_behind(known: Executions, fact: NodeLost | NodeJoined) -> list[PlacementId]:
    """The placements led by a node that is lost, or whose agent does not list them in its new life."""
    adopted = fact.workers if isinstance(fact, NodeJoined) else ()
    return [one for one, own in known.running.items() if fact.node_id in own and one not in adopted]


def _withdraw(known: Executions, fact: JobCancelled) -> None:
    """Forget a placement whose gang never formed: it reports no end."""
    for placement_id, own in list(known.running.items()):
        if _idle(own.values()) and all(one.order.job_id == fact.job_id for one in own.values()):
            del known.running[placement_id]


def _idle(leaders: Iterable[RunningPlacement]) -> bool:
    return all(one.began_at is None for one in leaders)


def _execution(known: Executions, running: RunningPlacement, end: WorkerStopped) -> Execution | None:
    order, placement = running.order, running.placement
    if running.began_at is None or not 0 < placement.throughput < float("inf"):
        return None
    seconds = (end.at if running.stopped_at is None else running.stopped_at) - running.began_at
    samples_from = order.samples_done if running.samples_restored is None else running.samples_restored
    samples = (end.samples_done if end.samples_trained is None else end.samples_trained) - samples_from
    if seconds <= 0 or samples <= 0:
        return None
    fingerprint = order.spec.workload.fingerprint
    number = known.numbers.get(fingerprint, 0) + 1
    _remember(known.numbers, fingerprint, number)
    return Execution(
        placement_id=_name(order),
        job_id=order.job_id,
        fingerprint=fingerprint,
        model=order.spec.workload.model,
        gpu_type="+".join(sorted({node.gpu_type for node in order.nodes})),
        gpus=order.gang.gpus,
        nodes=len(order.nodes),
        layer=placement.layer,
        estimated=placement.throughput * gangs.share(placement.gang, order.node_id),
        measured=samples / seconds,
        at=running.began_at,
        seconds=seconds,
        number=number,
        unstable=known.unstable.get(fingerprint, False),
    )


def _name(order: StartOrdered) -> PlacementId:
    """The name of an execution: each copy of a placement is one of its own."""
    return order.placement_id if order.until is None else PlacementId(f"{order.placement_id}/{order.node_id}")


FOLDS: Mapping[type[Event], Callable[[Executions, Any], Execution | None]] = {
    JobProfiled: _profile,
    JobTypeProfiled: _type_profile,
    PlanPublished: _plan,
    StartOrdered: _order,
    WorkerStarted: _restore,
    GangFormed: _begin,
    StopOrdered: _stop,
    WorkerStopped: _end,
    JobPreempted: _drop,
    JobCompleted: _drop,
    JobFailed: _drop,
    PlacementRefused: _refuse,
    JobCancelled: _withdraw,
    NodeJoined: _leave,
    NodeLost: _leave,
}

# ---- figures

PERIOD_S = 3600.0

KEYS: Mapping[str, Callable[[Execution], str]] = {
    "layer": lambda one: one.layer.value,
    "model": lambda one: one.model,
    "type": lambda one: one.gpu_type,
    "place": lambda one: "distributed" if one.distributed else "aggregated",
    "loader": lambda one: "unstable" if one.unstable else "stable",
    "number": lambda one: f"{one.number:04d}",
    "hour": lambda one: f"{int(one.at // PERIOD_S):04d}",
}
"""what executions can be grouped by"""


def worth_measuring(executions: Iterable[Execution], shortest_s: float = SHORTEST_S) -> list[Execution]:
    return [one for one in executions if one.seconds >= shortest_s]


def report(executions: Sequence[Execution], by: Sequence[str]) -> AccuracyReport:
    """A row for each combination of keys that occurs, in their order. Raises KeyError for an unknown key."""
    keys = [KEYS[name] for name in by]
    groups: dict[tuple[str, ...], list[Execution]] = {}
    for one in executions:
        groups.setdefault(tuple(key(one) for key in keys), []).append(one)
    in_order = sorted(groups.items(), key=lambda one: [_sorted_by(part) for part in one[0]])
    rows = tuple(_row(key, group) for key, group in in_order)
    return AccuracyReport(by=tuple(by), rows=rows, overall=_row((), executions) if executions else None)


def _sorted_by(part: str) -> tuple[int, str]:
    """What a part of a key is sorted by: a number by its size, any other text as it is."""
    return (len(part) if part.isdecimal() else 0, part)


def _row(key: tuple[str, ...], group: Sequence[Execution]) -> AccuracyRow:
    errors = [one.error for one in group]
    return AccuracyRow(
        key=key,
        executions=len(group),
        accuracy=max(1.0 - fsum(errors) / len(errors), 0.0),
        error_p50=percentile(errors, 0.5) or 0.0,
        error_p95=percentile(errors, 0.95) or 0.0,
        bias=fsum(one.bias for one in group) / len(group),
    )
