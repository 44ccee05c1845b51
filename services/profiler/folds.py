"""How each fact changes the state: a function for each fact, and their table at the end.

A run leaves the state when its `ProfileMeasured` or `ProfileFailed` is in the stream. If anything else ends a
run (a lost node, a refusal), the fold only marks it as failed; the core then publishes the `ProfileFailed`.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from schemas.base import Event
from schemas.events import (
    GpusWithheld,
    JobCancelled,
    JobCompleted,
    JobFailed,
    JobHeld,
    JobProfiled,
    JobRejected,
    JobReleased,
    JobSubmitted,
    JobTypeProfiled,
    NodeDrained,
    NodeEvent,
    NodeJoined,
    NodeLost,
    NodeRemoved,
    NodeRestored,
    NodeReturned,
    Outcome,
    PlacementRefused,
    ProfileEvent,
    ProfileFailed,
    ProfileMeasured,
    ProfilingAdded,
    ProfilingPlanned,
    StartOrdered,
    StopOrdered,
    WorkerStarted,
    WorkerStopped,
)
from schemas.ids import Fingerprint, GpuType, PlacementId
from schemas.measurements import Measured
from services.profiler.modules import objection
from services.profiler.needs import allowed_types, types_of
from services.profiler.state import Exclusion, KnownJob, PendingRun, Rules, State
from shared.domain import gangs
from shared.domain.nodes import fold_node, known_node

RUNS_REMEMBERED = 1_000
"""ended runs that are kept, since their measurements may arrive late"""
WORKLOADS_REMEMBERED = 10_000
"""workloads whose measurements are kept; a job of a workload that was forgotten is measured again"""
OTHER_GPUS = "the node came back with other GPUs"

F = TypeVar("F")
V = TypeVar("V")


def fold(state: State, fact: Event, rules: Rules) -> None:
    """Change `state` by one fact of `FOLDS`."""
    FOLDS[type(fact)](state, fact, rules)


# ---- jobs


def _submitted(state: State, fact: JobSubmitted, rules: Rules) -> None:
    if state.job(fact.job_id) is not None:
        return  # published again, perhaps after its release
    fingerprint = rules.measured_as(fact.job_id, fact.spec.workload)
    state.jobs[fact.job_id] = KnownJob(spec=fact.spec, fingerprint=fingerprint)
    if fact.on_hold:
        state.on_hold[fact.job_id] = None


def _profiled(state: State, fact: JobProfiled, rules: Rules) -> None:
    job = state.jobs.pop(fact.job_id, None)
    fingerprint = job.fingerprint if job else rules.measured_as(fact.job_id, fact.workload)
    _remember(state.modules, fingerprint, fact.modules)
    if job is not None:
        unfit = {gpu_type: one.reason for gpu_type, one in job.excluded.items() if one.whole_workload}
        if unfit:
            _remember(state.unfit, fingerprint, unfit)
        job.types = frozenset(fact.modules)
        state.profiled[fact.job_id] = job
    _drop_raw(state, fingerprint, fact.modules)


def _type_profiled(state: State, fact: JobTypeProfiled, rules: Rules) -> None:
    fingerprint = rules.measured_as(fact.job_id, fact.workload)
    _remember(state.modules, fingerprint, {fact.gpu_type: fact.modules})
    if (job := state.profiled.get(fact.job_id)) is not None:
        job.types |= {fact.gpu_type}
    _drop_raw(state, fingerprint, {fact.gpu_type})


def _drop_raw(state: State, fingerprint: Fingerprint, published: Collection[GpuType]) -> None:
    """Drop the measurements whose time modules are published."""
    raw = state.raw.pop(fingerprint, {})
    left = {gpu_type: one for gpu_type, one in raw.items() if gpu_type not in published}
    if left:
        state.raw[fingerprint] = left


def _ended(state: State, fact: JobCancelled | JobRejected | JobCompleted | JobFailed, _: Rules) -> None:
    state.jobs.pop(fact.job_id, None)
    state.profiled.pop(fact.job_id, None)
    state.on_hold.pop(fact.job_id, None)
    for run in state.runs.values():
        if run.plan.job_id == fact.job_id:
            _excuse(run, "the job has ended")


def _held(state: State, fact: JobHeld, _: Rules) -> None:
    if state.job(fact.job_id) is not None:
        state.on_hold[fact.job_id] = None


def _released(state: State, fact: JobReleased, _: Rules) -> None:
    state.on_hold.pop(fact.job_id, None)


# ---- runs


def _planned(state: State, fact: ProfilingPlanned, _: Rules) -> None:
    if fact.round > state.round:
        state.round, state.opened_at = fact.round, fact.at
    _expect(state, fact)
    _count_away(state)


def _added(state: State, fact: ProfilingAdded, _: Rules) -> None:
    state.additions = max(state.additions, fact.number + 1)
    _expect(state, fact)
    for plan in fact.runs:
        if (job := state.job(plan.job_id)) is not None:
            job.added.append(plan.gpu_type)


def _expect(state: State, fact: ProfilingPlanned | ProfilingAdded) -> None:
    for plan in fact.runs:
        job, known = state.job(plan.job_id), state.nodes.get(plan.node_id)
        fingerprint = job.fingerprint if job else Fingerprint("")
        run = PendingRun(plan=plan, fingerprint=fingerprint, planned_at=fact.at)
        state.runs[plan.placement_id] = run
        if job is None:
            _excuse(run, "the job has ended")
        elif known is None or not known.alive:
            _excuse(run, "the node is lost")
        elif known.node.gpu_type != plan.gpu_type:
            _excuse(run, OTHER_GPUS)


def _count_away(state: State) -> None:
    """Count, for each job, the rounds in a row in which a type that it may use had no open node.

    On hold it waits for none.
    """
    if not state.jobs:
        return
    types = types_of(state)
    for job in (job for job_id, job in state.jobs.items() if job_id not in state.on_hold):
        away = (gpu_type for gpu_type in allowed_types(job, types) if gpu_type not in types.open)
        job.rounds_without_node = {
            gpu_type: job.rounds_without_node.get(gpu_type, 0) + 1 for gpu_type in away
        }


def _is_asked(state: State, fact: ProfileEvent) -> bool:
    """Whether this node was ordered to make this measurement; reports of others are ignored."""
    run = state.runs.get(fact.placement_id)
    plan = run.plan if run is not None else state.ended.get(fact.placement_id)
    asked = None if plan is None else (plan.job_id, plan.node_id, plan.gpu_type)
    return asked == (fact.job_id, fact.node_id, fact.gpu_type)


def _end(state: State, placement_id: PlacementId) -> PendingRun | None:
    """End a run; None if it had ended before."""
    run = state.runs.pop(placement_id, None)
    if run is not None:
        state.ended[placement_id] = run.plan
        while len(state.ended) > RUNS_REMEMBERED:
            del state.ended[next(iter(state.ended))]
    return run


def _measured(state: State, fact: ProfileMeasured, rules: Rules) -> None:
    if not _is_asked(state, fact):
        return
    run, job = _end(state, fact.placement_id), state.job(fact.job_id)
    measurement = Measured(
        data_s=fact.data_s,
        forward_s=fact.forward_s,
        backward_s=fact.backward_s,
        update_s=fact.update_s,
        iteration_s=fact.iteration_s,
        parameters=fact.parameters,
        memory_share=fact.memory_share,
        modes=gangs.known_modes(fact.modes),
    )
    wrong = objection(measurement)
    if wrong is not None:
        if run is not None:
            _count_failure(job, fact.gpu_type, Exclusion(wrong, whole_workload=False), rules.attempts)
        return
    if job is not None:
        job.measured = True
    fingerprint = job.fingerprint if job else run.fingerprint if run else None
    if fingerprint and fact.gpu_type not in state.modules.get(fingerprint, {}):
        _remember(state.raw, fingerprint, {fact.gpu_type: measurement})


def _failed(state: State, fact: ProfileFailed, rules: Rules) -> None:
    """Count a failed run, once: a report about a run that has ended changes nothing.

    Facts of earlier versions have other ids, so after an upgrade a report may come a second time.
    """
    run = _end(state, fact.placement_id) if _is_asked(state, fact) else None
    if run is None:
        return
    job = state.job(fact.job_id)
    if fact.absent and job is not None:
        job.absent[fact.node_id] = fact.reason
        job.added = [gpu_type for gpu_type in job.added if gpu_type != fact.gpu_type]
    elif fact.final or not run.excused:
        limit = 1 if fact.final else rules.attempts
        _count_failure(job, fact.gpu_type, Exclusion(fact.reason, fact.whole_workload), limit)
        if job is not None:
            job.failed_on.append(fact.node_id)
        if fact.repeatable and job is not None:
            job.added = [gpu_type for gpu_type in job.added if gpu_type != fact.gpu_type]


def _count_failure(job: KnownJob | None, gpu_type: GpuType, exclusion: Exclusion, attempts: int) -> None:
    if job is None:
        return
    job.failed_runs[gpu_type] = job.failed_runs.get(gpu_type, 0) + 1
    if job.failed_runs[gpu_type] >= attempts:
        job.excluded[gpu_type] = exclusion


def _refused(state: State, fact: PlacementRefused, _: Rules) -> None:
    if fact.placement_id in state.runs:
        _excuse(state.runs[fact.placement_id], fact.reason)


def _ordered(state: State, fact: StartOrdered, _: Rules) -> None:
    if fact.node_id in state.workers:
        state.workers[fact.node_id][fact.placement_id] = fact.gang.on(fact.node_id)


def _stop_ordered(state: State, fact: StopOrdered, _: Rules) -> None:
    """Excuse a run that is stopped from elsewhere, as by a node that began a new life after its order."""
    run = state.runs.get(fact.placement_id)
    if run is not None and run.plan.node_id == fact.node_id:
        _excuse(run, "it was stopped")


def _started(state: State, fact: WorkerStarted, _: Rules) -> None:
    if fact.node_id in state.workers:
        state.workers[fact.node_id][fact.placement_id] = len(fact.gpu_indices)
    run = state.runs.get(fact.placement_id)
    if run is not None and run.plan.node_id == fact.node_id:
        run.started_at = fact.at


def _stopped(state: State, fact: WorkerStopped, _: Rules) -> None:
    state.workers.get(fact.node_id, {}).pop(fact.placement_id, None)
    run = state.runs.get(fact.placement_id)
    if run is None or run.failure or run.plan.node_id != fact.node_id:
        return
    run.failure = fact.reason or "it ended without a measurement"
    run.excused = fact.outcome in (Outcome.CHECKPOINTED, Outcome.REFUSED)


# ---- nodes


def _joined(state: State, fact: NodeJoined, _: Rules) -> None:
    fold_node(state.nodes, fact, known_node)
    before = state.workers.get(fact.node_id, {})
    state.workers[fact.node_id] = {pid: gpus for pid, gpus in before.items() if pid in fact.workers}
    for placement_id, run in state.runs.items():
        if run.plan.node_id != fact.node_id or placement_id in fact.workers:
            continue
        if placement_id in before:  # ordered to an earlier life, so that no later one begins it
            _excuse(run, "the agent restarted")
        elif run.plan.gpu_type != fact.node.gpu_type:
            _excuse(run, OTHER_GPUS)


def _lost(state: State, fact: NodeLost, _: Rules) -> None:
    fold_node(state.nodes, fact, known_node)
    for run in state.runs.values():
        if run.plan.node_id == fact.node_id:
            _excuse(run, "the node is lost")


def _node_changed(state: State, fact: NodeEvent, _: Rules) -> None:
    fold_node(state.nodes, fact, known_node)


def _excuse(run: PendingRun, reason: str) -> None:
    if not run.failure:
        run.failure, run.excused = reason, True


def _remember(table: dict[F, dict[GpuType, V]], fingerprint: F, more: Mapping[GpuType, V]) -> None:
    table[fingerprint] = {**table.get(fingerprint, {}), **more}
    while len(table) > WORKLOADS_REMEMBERED:
        del table[next(iter(table))]


Fold = Callable[[State, Any, Rules], None]

FOLDS: dict[type[Event], Fold] = {
    JobSubmitted: _submitted,
    JobProfiled: _profiled,
    JobTypeProfiled: _type_profiled,
    JobRejected: _ended,
    JobCancelled: _ended,
    JobCompleted: _ended,
    JobFailed: _ended,
    JobHeld: _held,
    JobReleased: _released,
    ProfilingPlanned: _planned,
    ProfilingAdded: _added,
    ProfileMeasured: _measured,
    ProfileFailed: _failed,
    PlacementRefused: _refused,
    NodeJoined: _joined,
    NodeLost: _lost,
    NodeReturned: _node_changed,
    NodeDrained: _node_changed,
    NodeRestored: _node_changed,
    NodeRemoved: _node_changed,
    GpusWithheld: _node_changed,
    StartOrdered: _ordered,
    StopOrdered: _stop_ordered,
    WorkerStarted: _started,
    WorkerStopped: _stopped,
}
