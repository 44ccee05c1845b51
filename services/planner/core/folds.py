"""How each fact changes the state. One function a fact, and the table of them at the end."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from schemas.base import Event
from schemas.events import (
    GpusWithheld,
    JobCancelled,
    JobCompleted,
    JobEvent,
    JobFailed,
    JobHeld,
    JobPreempted,
    JobPriorityChanged,
    JobProfiled,
    JobQueued,
    JobRejected,
    JobReleased,
    JobStarted,
    JobSubmitted,
    JobTypeEstimated,
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
    PlanPublished,
    PolicyChosen,
    PreemptReason,
    ProfileFailed,
    ProfileMeasured,
    ProfilingAdded,
    ProfilingPlanned,
    StartOrdered,
    StopOrdered,
    TurnsOrdered,
    WorkerCheckpointed,
    WorkerStarted,
    WorkerStopped,
)
from schemas.ids import GpuType, NodeId, PlacementId
from schemas.measurements import TimeModules
from schemas.plans import Placement, PlanKind
from services.planner.core.state import COMING, State, TrackedJob, shares_of, types_of, waited_s
from services.planner.core.staying import pay_on
from shared.domain import gangs
from shared.domain.iteration import BYTES_PER_PARAMETER
from shared.domain.nodes import fold_node, known_node
from shared.domain.residents import Residents
from shared.domain.states import ENDED, WAITING, IllegalMove, next_state
from shared.domain.tally import WELL, Tally

ON_ORDER = frozenset({PreemptReason.PLAN, PreemptReason.MERGE})
"""reasons of preemptions for which a plan ordered the stop; `stopped` learns from them how long stops take"""

REFUSALS_FREE = 3
"""refusals of one job in a row after which it is planned again at once: the plan may just have come late"""
PUT_OFF_MOST_S = 1_800.0
"""longest time for which a refused job is not planned"""


def fold(state: State, fact: Event) -> None:
    """Change `state` by one fact of `FOLDS`."""
    FOLDS[type(fact)](state, fact)


# ---- jobs: a fact that the table of states does not allow is void


def _submitted(state: State, fact: JobSubmitted) -> None:
    spec = fact.spec
    record = TrackedJob(
        submitted_at=fact.at,
        demand=spec.demand,
        samples=spec.samples,
        priority=spec.priority,
        project=spec.project,
        workload=spec.workload.fingerprint,
        batch_size=spec.workload.batch_size,
        epoch_samples=spec.workload.dataset_samples,
        modes=spec.modes,
        preemptible=spec.preemptible,
        types_named=spec.gpu_types,
    )
    if fact.job_id not in state.jobs:
        state.jobs[fact.job_id] = record
        state.coming[fact.job_id] = None
        if fact.on_hold:
            state.on_hold[fact.job_id] = waited_s(record, fact.at)


def _moved(state: State, fact: JobEvent) -> TrackedJob | None:
    """The job in its next state; None: there is no such job, or the fact is void."""
    job = state.jobs.get(fact.job_id)
    if job is None:
        return None
    try:
        job.status = next_state(job.status, fact)
    except IllegalMove:
        return None
    for jobs, states in ((state.coming, COMING), (state.waiting, WAITING)):
        if job.status in states:
            jobs[fact.job_id] = None
        else:
            jobs.pop(fact.job_id, None)
    return job


def _profiled(state: State, fact: JobProfiled) -> None:
    if (job := _moved(state, fact)) and fact.modules:
        parameters = max(modules.parameters for modules in fact.modules.values())
        job.gradient_bytes = BYTES_PER_PARAMETER * parameters
        _took_memory(job, fact.modules)
        found = [set(modules.modes) for modules in fact.modules.values() if modules.modes]
        if found and not job.modes:  # modes in the job's file take precedence over measured ones
            job.modes = tuple(sorted(set.intersection(*found)))


def _took_memory(job: TrackedJob, modules: Mapping[GpuType, TimeModules]) -> None:
    """Enter how much memory the job took on these types."""
    found = {gpu_type: one.memory_share for gpu_type, one in modules.items() if one.memory_share is not None}
    job.memory_share = dict(sorted((job.memory_share | found).items()))
    job.batch_most = {
        gpu_type: gangs.batch_most(job.batch_size, share) for gpu_type, share in job.memory_share.items()
    }


def _queued(state: State, fact: JobQueued) -> None:
    if job := _moved(state, fact):
        job.age_s, job.sensitivity = fact.age_s, fact.sensitivity
        _is_as_fast(job, fact.single_gpu)


def _is_as_fast(job: TrackedJob, single_gpu: dict[GpuType, float]) -> None:
    """Enter how fast the job is on one GPU of these types."""
    job.single_gpu = dict(sorted((job.single_gpu | single_gpu).items()))
    job.gpu_types = tuple(job.single_gpu)


def _type_profiled(state: State, fact: JobTypeProfiled) -> None:
    if job := state.jobs.get(fact.job_id):
        _took_memory(job, {fact.gpu_type: fact.modules})


def _type_estimated(state: State, fact: JobTypeEstimated) -> None:
    if job := state.jobs.get(fact.job_id):
        _is_as_fast(job, {fact.gpu_type: fact.single_gpu})


def _started(state: State, fact: JobStarted) -> None:
    if job := _moved(state, fact):
        assert job.running is None, "a job that waits has no GPUs"
        job.running = fact.gang
        if job.placement != fact.placement_id:
            job.placement, job.tally = fact.placement_id, Tally.of(fact.gang, job.samples_done, fact.at)
        if job.ordered_at is not None:
            learn = state.restarts.switched if job.switched else state.restarts.started
            learn(job.workload, types_of(state, fact.gang), max(fact.at - job.ordered_at, 0.0))
            job.ordered_at = None
        job.running_since = fact.at
        placement = state.claims.placement_of(fact.job_id)
        known = placement is not None and placement.placement_id == fact.placement_id
        job.share = placement.share if placement is not None and known else 1.0
        _reported(job, job.samples_done, fact.at)


def _reported(job: TrackedJob, samples: float, at: float) -> None:
    """Set the job's progress to a report's; the estimate of what it did since begins again at 0."""
    job.samples_done, job.samples_at = samples, at
    job.ahead, job.ahead_at = 0.0, at


def _preempted(state: State, fact: JobPreempted) -> None:
    if job := _moved(state, fact):
        assert job.running is not None, "only a job that runs is preempted"
        stretch_s = fact.at - job.running_since
        if job.ordered_at is not None and fact.reason in ON_ORDER:
            took_s = max(fact.at - job.ordered_at, 0.0)  # it may have ended before its order reached it
            state.restarts.stopped(job.workload, types_of(state, job.running), took_s)
        job.ordered_at = None
        job.held_s += stretch_s
        _serve(state, job, stretch_s * job.share)
        job.restarts += fact.reason is not PreemptReason.MERGE
        job.running = job.placement = None
        _reported(job, fact.samples_done, fact.at)
    state.claims.withdraw(fact.placement_id)


def _serve(state: State, job: TrackedJob, seconds: float) -> None:
    """Count seconds for which the job held its GPUs."""
    if job.running is None or not seconds:
        return
    job.attained_gpu_s += seconds * job.running.gpus
    for gpu_type, share in shares_of(state, job.running).items():  # a view may hold the present dict
        received_s = job.received_s.get(gpu_type, 0.0) + share * seconds
        job.received_s = job.received_s | {gpu_type: received_s}


def _priority_changed(state: State, fact: JobPriorityChanged) -> None:
    if job := state.jobs.get(fact.job_id):
        job.priority = fact.priority


def _held(state: State, fact: JobHeld) -> None:
    if job := state.jobs.get(fact.job_id):
        state.on_hold.setdefault(fact.job_id, waited_s(job, fact.at))


def _released(state: State, fact: JobReleased) -> None:
    before_s = state.on_hold.pop(fact.job_id, None)
    if before_s is not None:
        job = state.jobs[fact.job_id]
        job.submitted_at += max(waited_s(job, fact.at) - before_s, 0.0)


def _ended(state: State, fact: JobCompleted | JobFailed | JobCancelled | JobRejected) -> None:
    if job := _moved(state, fact):
        assert job.status in ENDED
        del state.jobs[fact.job_id]
        state.on_hold.pop(fact.job_id, None)
        state.claims.drop_job(fact.job_id)


# ---- rounds and plans


def _round_opened(state: State, fact: ProfilingPlanned) -> None:
    if fact.round > state.opened_round:
        state.opened_round, state.opened_at = fact.round, fact.at
    state.claims.reserve(fact)


def _profiling_added(state: State, fact: ProfilingAdded) -> None:
    state.claims.reserve(fact)


def _profile_ended(state: State, fact: ProfileMeasured | ProfileFailed) -> None:
    state.claims.end_profile(fact.placement_id, fact.node_id)


def _profile_failed(state: State, fact: ProfileFailed) -> None:
    job = state.jobs.get(fact.job_id)
    if job is not None and fact.final and state.claims.profiles.get(fact.placement_id) == fact.node_id:
        job.types_failed |= {fact.gpu_type}
    _profile_ended(state, fact)


def _plan_published(state: State, fact: PlanPublished) -> None:
    state.plans += 1
    if fact.token < state.token:
        return  # its leader was already replaced, and the placer refuses it
    state.token = fact.token
    state.memory, state.memory_of = fact.memory, fact.policy
    if fact.kind == PlanKind.FIRST:
        state.planned_round, state.planned_at = fact.round, fact.at
    unfinished = [placement for placement in fact.placements if placement.job_id in state.jobs]
    for placement in unfinished:
        _take_other_turns(state, placement, fact.at)
    state.claims.plan(fact.kind, unfinished)


def _take_other_turns(state: State, placement: Placement, at: float) -> None:
    """Before a plan changes a running job's turns: count what it did at its old share and speed."""
    job, before = state.jobs.get(placement.job_id), state.claims.planned.get(placement.placement_id)
    if job is None or job.running is None or before is None or before is placement:
        return
    if before.share != placement.share:
        _serve(state, job, (at - job.running_since) * (job.share - placement.share))
        job.share = placement.share
    if gangs.retimes(before.gang, placement.gang):
        job.ahead += before.throughput * (at - job.ahead_at)
        job.ahead_at = at


def _turns_ordered(state: State, fact: TurnsOrdered) -> None:
    job = state.jobs.get(fact.job_id)
    if job is not None and job.running is not None and gangs.retimes(job.running, fact.gang):
        job.running = fact.gang


def _policy_chosen(state: State, fact: PolicyChosen) -> None:
    state.policy = fact.policy


def _placement_refused(state: State, fact: PlacementRefused) -> None:
    job, claims = state.jobs.get(fact.job_id), state.claims
    if job is not None and job.running is None and fact.placement_id not in claims.profiles:
        job.ordered_at = None
        if job.placement == fact.placement_id:
            job.tally = Tally()  # what its workers still report counts for nobody
        if fact.placement_id in claims.planned:  # else a later plan took it back
            job.refusals += 1
            job.put_off_until = fact.at + _put_off_s(job.refusals)
    claims.withdraw(fact.placement_id)


def _put_off_s(refusals: int) -> float:
    """Seconds for which a job is not planned after refusals, so that the two do not alternate for ever."""
    beyond = refusals - REFUSALS_FREE
    return min(2.0**beyond, PUT_OFF_MOST_S) if beyond > 0 else 0.0


# ---- nodes and workers


def _node_joined(state: State, fact: NodeJoined) -> None:
    known = state.nodes.get(fact.node_id)
    if known is not None and known.life != fact.life:
        _lose_copies(state, fact, but=fact.workers)
        for job in state.jobs.values():
            if fact.node_id in job.unfit:
                job.unfit -= {fact.node_id}
        state.residents.pop(fact.node_id, None)
    _node_changed(state, fact)
    state.claims.restart_node(fact)


def _node_lost(state: State, fact: NodeLost) -> None:
    for job in state.jobs.values():
        if job.running is not None and job.running.on(fact.node_id):
            job.ordered_at = None  # a stop that a loss cuts short does not show how long stops take
    _lose_copies(state, fact)
    _node_changed(state, fact)


def _lose_copies(state: State, fact: NodeJoined | NodeLost, but: Collection[PlacementId] = ()) -> None:
    """End the copies on a node; its GPUs stay claimed, since workers may still hold them."""
    for job in state.jobs.values():
        if job.tally.copies and job.placement is not None and job.placement not in but:
            _leave(state, job, fact.node_id, fact.at, saved=False)
            state.claims.lose_copy(job.placement, fact.node_id)


def _leave(state: State, job: TrackedJob, node_id: NodeId, at: float, *, saved: bool) -> None:
    """End a job's copy on a node while the others train on; the last copy ends with its placement."""
    job.tally.end(node_id, saved=saved)
    rest = gangs.without(job.running, node_id) if job.running is not None else None
    if job.running is None or rest is None or not job.running.on(node_id):
        return
    held_s = at - job.running_since
    job.attained_gpu_s += held_s * job.running.on(node_id)
    before, after = shares_of(state, job.running), shares_of(state, rest)
    for gpu_type, share in before.items():  # `after` is counted for the whole stretch when that ends
        more_s = held_s * (share - after.get(gpu_type, 0.0))
        job.received_s = job.received_s | {gpu_type: job.received_s.get(gpu_type, 0.0) + more_s}
    job.running = rest


def _node_changed(state: State, fact: NodeEvent) -> None:
    state.node_facts += 1
    fold_node(state.nodes, fact, known_node)
    pay_on(state, fact.at)


def _start_ordered(state: State, fact: StartOrdered) -> None:
    state.claims.order(fact)
    job = state.jobs.get(fact.job_id)
    if job is None or fact.profile_iterations:
        return
    if job.running is None and job.ordered_at is None:
        job.ordered_at = fact.at
    if job.placement != fact.placement_id:
        job.placement, job.tally, job.switched = fact.placement_id, Tally(), True
    job.tally.order(fact)
    job.switched &= _enters(state, fact)


def _enters(state: State, fact: StartOrdered) -> bool:
    """Whether the job's processes stood by on the node, which they now occupy."""
    known = state.nodes.get(fact.node_id)
    if known is None or not known.residents_max or not gangs.resident(fact.gang):
        return False
    there = state.residents.setdefault(fact.node_id, Residents())
    return there.enter(fact.job_id, fact.gang.on(fact.node_id), room=known.residents_max * known.node.gpus)


def _stop_ordered(state: State, fact: StopOrdered) -> None:
    """Note when the job was ordered to stop; an order to a lost copy, or to an old placement, does not."""
    job = state.jobs.get(fact.job_id)
    if job is None or job.running is None or job.placement != fact.placement_id:
        return
    if job.ordered_at is None and job.running.on(fact.node_id):
        job.ordered_at = fact.at


def _worker_started(state: State, fact: WorkerStarted) -> None:
    state.claims.start_worker(fact)
    job = state.jobs.get(fact.job_id)
    if job is None or job.placement != fact.placement_id or fact.samples_restored is None:
        return
    if job.tally.restore(fact.node_id, fact.samples_restored):
        job.samples_done = job.tally.merged(job.samples)


def _worker_stopped(state: State, fact: WorkerStopped) -> None:
    was_up = fact.node_id in state.claims.workers.get(fact.placement_id, {})
    state.claims.stop_worker(fact)
    job = state.jobs.get(fact.job_id)
    if fact.node_id in state.residents:
        saved = fact.outcome is Outcome.CHECKPOINTED
        up = was_up or (job is not None and job.placement == fact.placement_id and job.switched)
        state.residents[fact.node_id].leave(fact.job_id, stays=saved and up)
    if job is None or job.placement != fact.placement_id or fact.node_id not in job.tally.leaders:
        return
    if job.tally.copies:
        if fact.leads:
            _count(job, fact)
        if fact.final:
            job.unfit |= {fact.node_id}
        _leave(state, job, fact.node_id, fact.at, saved=fact.outcome in WELL)


def _checkpointed(state: State, fact: WorkerCheckpointed) -> None:
    job = state.jobs.get(fact.job_id)
    if job is not None and job.placement == fact.placement_id:
        _count(job, fact)


def _count(job: TrackedJob, fact: WorkerCheckpointed | WorkerStopped) -> None:
    if job.tally.leaders and fact.node_id not in job.tally.leaders:
        return
    job.tally.count(fact.node_id, fact.samples_done, fact.at)
    done = job.tally.merged(job.samples)
    if done >= job.samples_done:
        _reported(job, done, fact.at)


FOLDS: Mapping[type[Event], Callable[[State, Any], None]] = {
    JobSubmitted: _submitted,
    JobProfiled: _profiled,
    JobQueued: _queued,
    JobTypeProfiled: _type_profiled,
    JobTypeEstimated: _type_estimated,
    JobStarted: _started,
    JobPreempted: _preempted,
    JobCompleted: _ended,
    JobFailed: _ended,
    JobCancelled: _ended,
    JobRejected: _ended,
    JobPriorityChanged: _priority_changed,
    JobHeld: _held,
    JobReleased: _released,
    ProfilingPlanned: _round_opened,
    ProfilingAdded: _profiling_added,
    ProfileMeasured: _profile_ended,
    ProfileFailed: _profile_failed,
    PlanPublished: _plan_published,
    PolicyChosen: _policy_chosen,
    PlacementRefused: _placement_refused,
    NodeJoined: _node_joined,
    NodeLost: _node_lost,
    NodeReturned: _node_changed,
    NodeDrained: _node_changed,
    NodeRestored: _node_changed,
    NodeRemoved: _node_changed,
    GpusWithheld: _node_changed,
    StartOrdered: _start_ordered,
    StopOrdered: _stop_ordered,
    TurnsOrdered: _turns_ordered,
    WorkerStarted: _worker_started,
    WorkerStopped: _worker_stopped,
    WorkerCheckpointed: _checkpointed,
}
