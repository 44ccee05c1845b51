"""Where the GPU time of a run went, from its event log. Pure.

All GPU time that nodes offered from the first submission to the last end, in parts that sum to it:

| part           | what                                                                                  |
|----------------|---------------------------------------------------------------------------------------|
| useful         | samples that counted, each at the speed of one GPU of the type that is fastest for it |
| slower_types   | what they took more on single GPUs of the types that they ran on                      |
| gangs          | what they took more in their gangs, first starts included                             |
| restarts       | checkpoints, restores, work done twice (`lost_work_gpu_s`)                            |
| profiling      | GPUs that measure workloads                                                           |
| beside_waiting | idle, while a job waited, was measured, or was to be                                  |
| idle           | idle, and no job waited                                                               |

A worker has its GPUs from the order to start it to its end. Speeds of single GPUs are the estimator's, so a
gang may seem to lose less than nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from math import fsum
from typing import Any

import msgspec

from hopyard.lab.runs.trials import GpuTime
from schemas.base import Event
from schemas.events import (
    JobCancelled,
    JobCompleted,
    JobEvent,
    JobFailed,
    JobPreempted,
    JobRejected,
    JobSubmitted,
    NodeEvent,
    NodeJoined,
    PlacementRefused,
    StartOrdered,
    WorkerStopped,
)
from schemas.ids import JobId, NodeId, PlacementId
from shared.domain import in_turns
from shared.domain.ledger import Ledger
from shared.domain.ledger.records import JobRecord, Run
from shared.domain.metrics import lost_work_gpu_s
from shared.domain.metrics.use import span_s
from shared.domain.nodes import NODE_FOLDS, KnownNode, fold_node, known_node


def gpu_time(ledger: Ledger, events: Sequence[Event]) -> GpuTime | None:
    """`ledger`: of these events, with its runs. None: there were no jobs."""
    if not ledger.jobs:
        return None
    first, last = span_s(ledger, ledger.at)
    clock = _Clock(at=first, until=last)
    for event in events:
        clock.advance(event.at)
        if (change := CHANGES.get(type(event))) is not None:
            change(clock, event)
    clock.advance(last)
    useful = fsum(_samples(record, run) / max(record.single_gpu.values()) for record, run in _runs(ledger))
    on_type = fsum(_samples(record, run) / _speed(ledger, record, run) for record, run in _runs(ledger))
    restarts = min(lost_work_gpu_s(ledger), max(clock.training - on_type, 0.0))
    return GpuTime(
        useful=useful,
        slower_types=on_type - useful,
        gangs=clock.training - on_type - restarts,
        restarts=restarts,
        profiling=clock.profiling,
        beside_waiting=clock.beside_waiting,
        idle=clock.idle,
    )


def _runs(ledger: Ledger) -> list[tuple[JobRecord, Run]]:
    return [(record, run) for record in ledger.jobs.values() for run in record.runs if record.single_gpu]


def _samples(record: JobRecord, run: Run) -> float:
    """Samples of the run that counted; work after its last checkpoint did not."""
    reached = record.samples_done if run.samples_to is None else run.samples_to
    return max(reached - run.samples_from, 0.0)


def _speed(ledger: Ledger, record: JobRecord, run: Run) -> float:
    """Samples/s of one GPU, in the mean over those of the gang; of an unknown type: the fastest."""
    known = {one.node: ledger.nodes[one.node].node.gpu_type for one in run.gang.members}
    best = max(record.single_gpu.values())
    speeds = [one.gpus * record.single_gpu.get(known[one.node], best) for one in run.gang.members]
    return fsum(speeds) / run.gang.gpus


# ---- the cluster from fact to fact


class _Held(msgspec.Struct, frozen=True):
    holder: str
    """placements of a rota have one, and hold their GPUs once"""
    node: NodeId
    gpus: int
    profiles: bool


class _Clock(msgspec.Struct, kw_only=True):
    at: float
    """nothing before the first submission counts"""
    until: float
    nodes: dict[NodeId, KnownNode] = {}
    held: dict[tuple[PlacementId, NodeId], _Held] = {}
    waiting: set[JobId] = set()
    placed: dict[JobId, PlacementId] = {}
    """by job, where it was last ordered to train"""
    training: float = 0.0
    profiling: float = 0.0
    beside_waiting: float = 0.0
    idle: float = 0.0

    def advance(self, to: float) -> None:
        passed_s = min(to, self.until) - self.at
        if passed_s <= 0:
            return
        self.at += passed_s
        there = {name: known.node.gpus for name, known in self.nodes.items() if known.alive}
        held = {(one.holder, one.node): one for one in self.held.values() if one.node in there}.values()
        profiles = sum(one.gpus for one in held if one.profiles)
        trains = sum(one.gpus for one in held) - profiles
        free = max(sum(there.values()) - trains - profiles, 0)
        self.training += passed_s * trains
        self.profiling += passed_s * profiles
        if self.waiting:
            self.beside_waiting += passed_s * free
        else:
            self.idle += passed_s * free


def _node(clock: _Clock, fact: NodeEvent) -> None:
    fold_node(clock.nodes, fact, known_node)
    if isinstance(fact, NodeJoined):
        kept = set(fact.workers)
        gone = [key for key, one in clock.held.items() if one.node == fact.node_id and key[0] not in kept]
        for key in gone:
            del clock.held[key]


def _start(clock: _Clock, fact: StartOrdered) -> None:
    profiles = fact.profile_iterations > 0
    holder = in_turns.holder(fact.placement_id, fact.gang)
    gpus = fact.gang.on(fact.node_id)
    clock.held[fact.placement_id, fact.node_id] = _Held(holder, fact.node_id, gpus, profiles)
    if not profiles:
        clock.placed[fact.job_id] = fact.placement_id
        clock.waiting.discard(fact.job_id)


def _stop(clock: _Clock, fact: WorkerStopped) -> None:
    clock.held.pop((fact.placement_id, fact.node_id), None)


def _wait(clock: _Clock, fact: JobEvent) -> None:
    clock.waiting.add(fact.job_id)


def _refuse(clock: _Clock, fact: PlacementRefused) -> None:
    """The job waits again if it was about to train there; it may train elsewhere, or be measured."""
    if clock.placed.get(fact.job_id) == fact.placement_id:
        clock.waiting.add(fact.job_id)


def _end(clock: _Clock, fact: JobEvent) -> None:
    clock.waiting.discard(fact.job_id)
    clock.placed.pop(fact.job_id, None)


CHANGES: Mapping[type[Event], Callable[[_Clock, Any], None]] = {
    **dict.fromkeys(NODE_FOLDS, _node),
    StartOrdered: _start,
    WorkerStopped: _stop,
    PlacementRefused: _refuse,
    **dict.fromkeys((JobSubmitted, JobPreempted), _wait),
    **dict.fromkeys((JobCompleted, JobFailed, JobCancelled, JobRejected), _end),
}
