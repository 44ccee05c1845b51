"""How each fact changes the state, and which facts are published for it at once. The table is at the end.

A fold changes which placements are wanted, or which workers are known to run. It returns only facts that do
not follow from the state afterwards: a refusal, or an order to a worker that has no placement. `converge`
does the rest.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from schemas.base import Event
from schemas.cluster import Node
from schemas.events import (
    GpusWithheld,
    JobCancelled,
    JobCompleted,
    JobFailed,
    JobRejected,
    JobStarted,
    JobSubmitted,
    NodeDrained,
    NodeEvent,
    NodeJoined,
    NodeLost,
    NodeRemoved,
    NodeRestored,
    NodeReturned,
    Outcome,
    PlacementRefused,
    PlanPublished,
    PreemptReason,
    ProfileFailed,
    ProfilingAdded,
    ProfilingPlanned,
    StopOrdered,
    TurnsOrdered,
    WorkerCheckpointed,
    WorkerStarted,
    WorkerStopped,
)
from schemas.ids import GpuType, JobId, NodeId, PlacementId, PlanId
from schemas.placement import Gang
from schemas.plans import Cause, Placement, PlanKind
from services.placer.causes import causes
from services.placer.objections import objection
from services.placer.orders import refusal, refused, stop_order
from services.placer.phases import ComingUp, Training, Waiting, WorkerState
from services.placer.state import Placed, State, UnfinishedJob
from shared.domain import gangs
from shared.domain.nodes import fold_node, known_node
from shared.domain.tally import WELL

Published = Iterable[Event] | None


def fold(state: State, fact: Event) -> list[Event]:
    """Change `state` by one fact of `FOLDS`. Returns the facts to publish at once."""
    return list(FOLDS[type(fact)](state, fact) or ())


# ---- plans: what is wanted


def _plan_published(state: State, plan: PlanPublished) -> Published:
    if plan.token < state.token:
        return [
            _refused_new(placement, plan, "its plan is by an older leader of the planner")
            for placement in plan.placements
            if placement.placement_id not in state.placements  # it runs or waits already
        ]
    state.token = plan.token
    if plan.kind is PlanKind.FIRST:
        for placed, reason, cause in causes(state, plan):
            state.stop(placed, reason, cause)
    found: list[Event] = []
    for placement in plan.placements:
        known = state.placements.get(placement.placement_id)
        found += _admit(state, placement, plan) if known is None else _order_turns(known, placement, plan)
    return found


def _order_turns(placed: Placed, placement: Placement, plan: PlanPublished) -> Iterator[Event]:
    """Order other turns on nodes that were ordered to start; other nodes get them with the start order."""
    if not placed.wanted or not gangs.retimes(placed.gang, placement.gang):
        return
    placed.gang = placement.gang
    for node_id in placed.workers:
        yield TurnsOrdered(
            at=plan.at,
            node_id=node_id,
            placement_id=placed.placement_id,
            job_id=placed.job_id,
            gang=placed.gang,
            plan_id=plan.plan_id,
        )


def _admit(state: State, placement: Placement, plan: PlanPublished) -> Iterator[Event]:
    reason = objection(state, placement, plan.made_from)
    if reason:
        yield _refused_new(placement, plan, reason)
        return
    state.add(
        Placed(
            placement_id=placement.placement_id,
            job_id=placement.job_id,
            plan_id=plan.plan_id,
            gang=placement.gang,
        )
    )


def _refused_new(placement: Placement, plan: PlanPublished, reason: str) -> Event:
    return refusal(placement.placement_id, plan.plan_id, placement.job_id, reason, plan.at)


def _round_opened(state: State, opened: ProfilingPlanned) -> Iterator[Event]:
    for placed in state.placements.values():
        if placed.profile and isinstance(placed.phase, Waiting):
            yield refused(placed, "no GPU came free for the measurement within a round", opened.at)
            state.stop(placed, PreemptReason.PLAN)
    yield from _runs_planned(state, opened)


def _runs_planned(state: State, opened: ProfilingPlanned | ProfilingAdded) -> Iterator[Event]:
    plan_id = PlanId(f"round-{opened.round}")
    for run in opened.runs:
        known = state.nodes.get(run.node_id)
        if run.job_id not in state.jobs:
            yield refusal(
                run.placement_id, plan_id, run.job_id, "the job has ended, or was cancelled", opened.at
            )
        elif known is None or not known.alive:
            reason = f"node {run.node_id} is lost"
            yield refusal(run.placement_id, plan_id, run.job_id, reason, opened.at)
        elif known.whole.gpu_type != run.gpu_type:
            reason = f"node {run.node_id} came back with other GPUs"
            yield refusal(run.placement_id, plan_id, run.job_id, reason, opened.at)
        elif run.placement_id not in state.placements:
            state.add(
                Placed(
                    placement_id=run.placement_id,
                    job_id=run.job_id,
                    plan_id=plan_id,
                    gang=Gang.of({run.node_id: 1}),
                    profile=True,
                )
            )


def _taken_back(state: State, fact: ProfileFailed | PlacementRefused) -> None:
    placed = state.placements.get(fact.placement_id)
    if placed is None or (isinstance(fact, ProfileFailed) and not _measures(placed, fact.node_id)):
        return
    state.stop(placed, PreemptReason.PLAN)
    placed.refused = isinstance(fact, PlacementRefused)


def _measures(placed: Placed, node_id: NodeId) -> bool:
    """Whether the placement is a measurement on this node: only that node's agent may report its failure."""
    return placed.profile and placed.gang.on(node_id) > 0


# ---- jobs


def _job_submitted(state: State, submitted: JobSubmitted) -> None:
    state.jobs.setdefault(submitted.job_id, UnfinishedJob(spec=submitted.spec))


def _job_started(state: State, started: JobStarted) -> None:
    if job := state.jobs.get(started.job_id):
        job.started = True


def _job_completed(state: State, completed: JobCompleted) -> None:
    """End the job, unless it never started: then the table of states makes the fact void."""
    job = state.jobs.get(completed.job_id)
    if job is not None and job.started:
        _job_ended(state, completed)


def _job_ended(state: State, ended: JobCompleted | JobFailed | JobCancelled | JobRejected) -> None:
    state.jobs.pop(ended.job_id, None)
    _stop_silently(state, ended.job_id)


def _stop_silently(state: State, job_id: JobId) -> None:
    for placed in state.of_job(job_id):
        state.stop_silently(placed)


# ---- workers: what runs


def _worker_started(state: State, worker: WorkerStarted) -> Published:
    placed = state.placements.get(worker.placement_id)
    if placed is None or worker.node_id not in placed.workers:
        return [_stop_unknown(state, worker)]
    if placed.workers[worker.node_id] is WorkerState.ORDERED:
        state.worker_up(placed, worker.node_id)
        _up(state, placed, worker)
    return None


def _up(state: State, placed: Placed, worker: WorkerStarted) -> None:
    """Note where a worker's processes meet, and the samples in the checkpoint that it found on disk."""
    if isinstance(placed.phase, ComingUp) and worker.meeting:
        placed.phase.meetings[worker.node_id] = worker.meeting
    job = None if placed.profile else state.jobs.get(worker.job_id)
    if job is None or worker.samples_restored is None:
        return
    if placed.tally.restore(worker.node_id, worker.samples_restored):
        job.samples_done = placed.tally.merged(job.spec.samples)


def _stop_unknown(state: State, worker: WorkerStarted) -> Event:
    """Stop a worker without a placement: its start was ordered before the agent's new life was known here."""
    if worker.node_id in state.nodes:
        state.stale.setdefault(worker.node_id, {})[worker.placement_id] = len(worker.gpu_indices)
    return StopOrdered(
        at=worker.at, node_id=worker.node_id, placement_id=worker.placement_id, job_id=worker.job_id
    )


def _worker_checkpointed(state: State, worker: WorkerCheckpointed) -> None:
    if placed := state.placements.get(worker.placement_id):
        _save_progress(state, placed, worker)


def _worker_stopped(state: State, worker: WorkerStopped) -> Iterator[Event]:
    if state.stale.get(worker.node_id, {}).pop(worker.placement_id, None):
        state.gpus_freed(worker.node_id)
    placed = state.placements.get(worker.placement_id)
    if placed is None:
        return
    if placed.copies:
        _copy_stopped(state, placed, worker)
        return
    if not state.worker_gone(placed, worker.node_id):
        return
    if worker.outcome is Outcome.REFUSED:
        yield refused(placed, worker.reason or f"node {worker.node_id} refused it", worker.at)
    elif worker.leads:
        _save_progress(state, placed, worker)
    job = None if placed.profile else state.jobs.get(worker.job_id)
    if job is not None and _ends_the_job(state, job, placed, worker):
        job.ended = True
        _stop_silently(state, worker.job_id)
    if not _leader_goes_on(placed, worker):
        state.stop(placed, *_why_ended(state, placed, worker))


def _leader_goes_on(placed: Placed, worker: WorkerStopped) -> bool:
    """Whether a worker has done all samples, and rank 0 on another node may still evaluate or save the model.

    Stopped now, it would never be done: the job would be planned again, and come to the same point.
    """
    return isinstance(placed.phase, Training) and worker.outcome is Outcome.COMPLETED and not worker.leads


def _copy_stopped(state: State, placed: Placed, worker: WorkerStopped) -> None:
    """End a copy. What it saved counts even if its node was lost in between, since it is on disk."""
    if worker.leads:
        _save_progress(state, placed, worker)
    _copy_left(state, placed, worker.node_id, saved=worker.outcome in WELL)
    job = state.jobs.get(placed.job_id)
    if job is not None and _copies_end_the_job(state, job, placed, worker):
        job.ended = True
        _stop_silently(state, placed.job_id)
    if not placed.workers:
        wasted = placed.tally.wasted
        state.stop(placed, *(_why_ended(state, placed, worker) if wasted else (PreemptReason.MERGE, None)))


def _copy_left(state: State, placed: Placed, node_id: NodeId, *, saved: bool) -> None:
    state.worker_gone(placed, node_id)
    placed.tally.end(node_id, saved=saved)
    state.shrink(placed, node_id)


def _copies_end_the_job(state: State, job: UnfinishedJob, placed: Placed, worker: WorkerStopped) -> bool:
    """Whether the monitor will end the job: all samples are done, or all copies have failed."""
    if worker.outcome in WELL:
        return placed.tally.complete(job.spec.samples)
    if worker.outcome is Outcome.FAILED and not placed.workers and placed.tally.wasted:
        job.failures += state.fail(placed, Cause(node=worker.node_id))
        return job.failures > job.spec.retries
    return False


def _why_ended(state: State, placed: Placed, worker: WorkerStopped) -> tuple[PreemptReason, Cause]:
    """Why a placement ends after the end of one worker.

    If a node of it leaves, any worker may end first, also one that was not asked to: the gang stops together.
    """
    known = ((node_id, state.nodes.get(node_id)) for node_id in placed.gang.nodes)
    left = next((node_id for node_id, node in known if node is not None and node.leaving), None)
    if left is not None:
        return PreemptReason.NODE_LEFT, Cause(node=left)
    interrupted = worker.outcome is Outcome.INTERRUPTED
    return PreemptReason.INTERRUPTED if interrupted else PreemptReason.PLAN, Cause(node=worker.node_id)


def _ends_the_job(state: State, job: UnfinishedJob, placed: Placed, worker: WorkerStopped) -> bool:
    """Whether the monitor will publish that the job completed or failed; one failed worker is enough.

    A failure counts even if the placement was ending: the worker's peers may have reported first that they
    lost it. Reports after a refusal count neither here nor for the monitor, since the job is in the queue
    again.
    """
    if placed.refused:
        return False
    if worker.outcome is Outcome.FAILED:
        job.failures += state.fail(placed, Cause(node=worker.node_id))
        return job.failures > job.spec.retries
    return worker.outcome is Outcome.COMPLETED and worker.leads and placed.trained


def _save_progress(state: State, placed: Placed, worker: WorkerCheckpointed | WorkerStopped) -> None:
    placed.tally.count(worker.node_id, worker.samples_done, worker.at)
    if (job := state.jobs.get(placed.job_id)) and placed.tally.leaders:
        job.samples_done = max(job.samples_done, placed.tally.merged(job.spec.samples))


# ---- nodes


def _node_joined(state: State, joined: NodeJoined) -> Iterator[Event]:
    known = state.nodes.get(joined.node_id)
    if known is not None and known.life != joined.life:
        _count_as_gone(state, joined.node_id, PreemptReason.AGENT_RESTARTED, keep=frozenset(joined.workers))
        if _gpus(known.whole) != _gpus(joined.node):
            yield from _take_back(state, joined)
        if known.whole.gpu_type != joined.node.gpu_type:
            state.retyped[joined.node_id] = state.seq
    stale = state.stale.pop(joined.node_id, {})
    if adopted := {key: gpus for key, gpus in stale.items() if key in joined.workers}:
        state.stale[joined.node_id] = adopted
    fold_node(state.nodes, joined, known_node)
    state.gpus_freed(joined.node_id)
    _take_back_what_exceeds(state, joined.node_id)


def _gpus(node: Node) -> tuple[GpuType, int]:
    return node.gpu_type, node.gpus


def _take_back(state: State, joined: NodeJoined) -> Iterator[Event]:
    """Take back what waits for GPUs of a node that came back with others: it was planned for those before."""
    for placed in state.on_node(joined.node_id):
        if isinstance(placed.phase, Waiting):
            if placed.profile:
                yield refused(placed, f"node {joined.node_id} came back with other GPUs", joined.at)
            state.stop(placed, PreemptReason.AGENT_RESTARTED, Cause(node=joined.node_id))


def _node_lost(state: State, lost: NodeLost) -> Iterator[Event]:
    known = state.nodes.get(lost.node_id)
    if known is None or not known.alive:
        return
    fold_node(state.nodes, lost, known_node)
    stale = state.stale.setdefault(lost.node_id, {})
    stale |= _count_as_gone(state, lost.node_id, PreemptReason.NODE_LOST, keep=frozenset())
    for placement_id in stale:
        if placed := state.placements.get(placement_id):
            yield stop_order(placed, lost.node_id, lost.at)  # the agent reads it once the node returns


def _node_changed(state: State, fact: NodeEvent) -> None:
    fold_node(state.nodes, fact, known_node)
    state.gpus_freed(fact.node_id)


def _withheld(state: State, fact: GpusWithheld) -> None:
    _node_changed(state, fact)
    _take_back_what_exceeds(state, fact.node_id)


def _take_back_what_exceeds(state: State, node_id: NodeId) -> None:
    """Take back what waits for GPUs that are withheld by now, the newest first.

    Measurements are left, and what waits to join a rota that runs: without it the rota has the same GPUs. But
    where the node has too few GPUs for what runs, the rota may be what has to leave.
    """
    known = state.nodes.get(node_id)
    if known is None or not known.withheld:
        return
    there = state.on_node(node_id)
    runs = [placed for placed in there if placed.wanted and not isinstance(placed.phase, Waiting)]
    running = {placed.holder: placed.gang.on(node_id) for placed in runs}
    joined = running if sum(running.values()) <= known.node.gpus else {}
    for placed in reversed(there):
        if sum(state.gpus_wanted(node_id).values()) <= known.node.gpus:
            break
        if isinstance(placed.phase, Waiting) and not placed.profile and placed.holder not in joined:
            state.stop(placed, PreemptReason.PLAN, Cause(node=node_id))


def _drained(state: State, fact: NodeDrained) -> None:
    """Take back what waits for GPUs of the node: nothing new starts there. Measurements are left."""
    _node_changed(state, fact)
    known = state.nodes.get(fact.node_id)
    if known is None or not known.emptied:
        return
    why = PreemptReason.NODE_LEFT if known.leaving else PreemptReason.PLAN
    for placed in state.on_node(fact.node_id):
        if isinstance(placed.phase, Waiting) and not placed.profile:
            state.stop(placed, why, Cause(node=fact.node_id))


def _count_as_gone(
    state: State, node_id: NodeId, why: PreemptReason, *, keep: frozenset[PlacementId]
) -> dict[PlacementId, int]:
    """Count the workers on a node as gone. Returns the GPUs that they had, by placement."""
    gone: dict[PlacementId, int] = {}
    for placed in state.on_node(node_id):
        if placed.placement_id in keep:
            continue
        had_worker = state.worker_gone(placed, node_id)
        if had_worker:
            gone[placed.placement_id] = placed.gang.on(node_id)
        if placed.copies:
            _copy_left(state, placed, node_id, saved=False)
            if placed.workers:
                continue
        reason = PreemptReason.MERGE if placed.copies and not placed.tally.wasted else why
        if had_worker or reason is PreemptReason.NODE_LOST:
            state.stop(placed, reason, Cause(node=node_id))
    return gone


FOLDS: Mapping[type[Event], Callable[[State, Any], Published]] = {
    PlanPublished: _plan_published,
    ProfilingPlanned: _round_opened,
    ProfilingAdded: _runs_planned,
    ProfileFailed: _taken_back,
    PlacementRefused: _taken_back,
    JobSubmitted: _job_submitted,
    JobStarted: _job_started,
    JobCompleted: _job_completed,
    JobFailed: _job_ended,
    JobCancelled: _job_ended,
    JobRejected: _job_ended,
    WorkerStarted: _worker_started,
    WorkerCheckpointed: _worker_checkpointed,
    WorkerStopped: _worker_stopped,
    NodeJoined: _node_joined,
    NodeLost: _node_lost,
    NodeReturned: _node_changed,
    NodeDrained: _drained,
    NodeRestored: _node_changed,
    NodeRemoved: _node_changed,
    GpusWithheld: _withheld,
}
