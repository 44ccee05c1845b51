"""How facts about plans, nodes and workers enter the ledger."""

from collections.abc import Collection

from schemas.events import (
    NodeEvent,
    NodeJoined,
    NodeLost,
    Outcome,
    PlacementRefused,
    PlanPublished,
    PolicyChosen,
    ProfileFailed,
    ProfileMeasured,
    ProfileRun,
    ProfilingAdded,
    ProfilingPlanned,
    StartOrdered,
    StopOrdered,
    TurnsOrdered,
    WorkerCheckpointed,
    WorkerEvent,
    WorkerStarted,
    WorkerStopped,
)
from schemas.ids import GpuType, JobId, NodeId, PlacementId
from schemas.plans import Placement, PlanKind, Waiting
from schemas.views import PlanView
from shared.domain import gangs
from shared.domain.ledger.jobs import broken_as, count_interruption, is_present, lose_work, waits_after
from shared.domain.ledger.records import (
    Broken,
    Chosen,
    JobRecord,
    Ledger,
    NodeRecord,
    PlanRecord,
    Supply,
    Verdict,
    WorkerRecord,
)
from shared.domain.nodes import as_joined, fold_node
from shared.domain.states import JobState
from shared.domain.tally import WELL, Tally

REFUSED = "refused"
"""the reason of a job whose placement the placer refused"""
NOT_YET = frozenset({Waiting.PROFILING, Waiting.NOT_PLANNED, Waiting.NO_ESTIMATE, Waiting.ON_HOLD})
"""reasons for waiting that more idle GPUs would not remove"""

NODES_KEPT = 256
"""nodes of a job that are remembered, at most"""
INTERVALS_KEPT = 100
"""intervals of a node's time that are kept one by one. Those before are added up, even where they are after
the end of the last job, so that they would not count yet"""
BROKEN = frozenset({Outcome.FAILED, Outcome.INTERRUPTED})
"""outcomes of a worker that ended by itself before its work was done"""

# ---- plans


def plan(ledger: Ledger, fact: PlanPublished) -> None:
    if fact.token < ledger.token:
        return
    ledger.token, ledger.policy = fact.token, fact.policy
    ledger.plans.append(PlanRecord(_plan_view(fact), _fragments(fact)))
    planned, verdicts = ledger.planned, ledger.verdicts
    if fact.kind is PlanKind.FIRST:
        refused = {job_id: verdict for job_id, verdict in verdicts.items() if verdict.reason == REFUSED}
        ledger.planned, ledger.verdicts = {}, refused  # a job may be held back after a refusal
    for placement in fact.placements:
        before = planned.get(placement.job_id)
        if before is None or before.placement_id != placement.placement_id:
            if _has_ended(ledger, placement.job_id):
                continue
            ledger.chosen[placement.job_id] = _chosen(fact, placement)
        elif placement is not before:
            _take_other_turns(ledger, placement)
        ledger.planned[placement.job_id] = placement
        ledger.verdicts.pop(placement.job_id, None)
    if ledger.explains:
        ledger.verdicts |= _verdicts(ledger, fact, verdicts)


def _has_ended(ledger: Ledger, job_id: JobId) -> bool:
    """Whether the job's end was stored before the plan: nothing would remove what is entered about it now."""
    record = ledger.jobs.get(job_id)
    return record is not None and record.ended


def _take_other_turns(ledger: Ledger, placement: Placement) -> None:
    record = ledger.jobs.get(placement.job_id)
    run = record.present if record else None
    if run is not None and run.placement_id == placement.placement_id:
        run.share = placement.share


def turn(ledger: Ledger, fact: TurnsOrdered) -> None:
    record = ledger.jobs.get(fact.job_id)
    run = record.present if record else None
    if run is not None and run.placement_id == fact.placement_id and gangs.retimes(run.gang, fact.gang):
        run.gang = fact.gang


def _chosen(fact: PlanPublished, placement: Placement) -> Chosen:
    standing = fact.standings.get(placement.job_id)
    return Chosen(placement_id=placement.placement_id, plan_id=fact.plan_id, standing=standing, at=fact.at)


def _verdicts(ledger: Ledger, fact: PlanPublished, verdicts: dict[JobId, Verdict]) -> dict[JobId, Verdict]:
    """The verdicts on the jobs that the plan leaves out; `verdicts`: those before the plan.

    There is none on a job on hold: facts say that it is, and its release may have come before the plan.
    """
    standings, fragment, waiting = fact.standings, fact.kind is PlanKind.FRAGMENT, len(fact.left_out)
    named = {left.held_by for left in fact.left_out} if standings else ()
    rivals = {holders: tuple([standings.get(job_id) for job_id in holders]) for holders in named}
    found = {}
    for position, left in enumerate(fact.left_out, start=1):
        if left.reason is Waiting.ON_HOLD or _has_ended(ledger, left.job_id):
            continue
        before, reason = verdicts.get(left.job_id), str(left.reason)
        shown = before.deciding if before is not None else None
        found[left.job_id] = Verdict(
            plan_id=fact.plan_id,
            reason=reason,
            detail=left.detail,
            held_by=left.held_by,
            since=shown.since if shown is not None and shown.reason == reason else fact.at,
            position=position,
            waiting=waiting,
            standing=standings.get(left.job_id),
            rivals=rivals.get(left.held_by, ()),
            kind=fact.kind,
            first=_first(before) if fragment and before is not None else None,
        )
    return found


def _first(verdict: Verdict) -> Verdict | None:
    """What the first plan of the round said of a job; a refusal is no plan's word."""
    said = verdict.kind is PlanKind.FIRST and verdict.reason != REFUSED
    return verdict if said else verdict.first


def _fragments(fact: PlanPublished) -> int:
    return fact.idle_gpus if any(left.reason not in NOT_YET for left in fact.left_out) else 0


def _plan_view(fact: PlanPublished) -> PlanView:
    return PlanView(
        plan_id=fact.plan_id,
        at=fact.at,
        kind=fact.kind,
        round=fact.round,
        policy=fact.policy,
        stage=fact.stage,
        placements=len(fact.placements),
        left_out=len(fact.left_out),
        idle_gpus=fact.idle_gpus,
        objective=fact.objective,
        bound=fact.bound,
        gap=fact.gap,
        decision_s=fact.decision_s,
        solve_s=fact.solve_s,
        configurations=fact.configurations,
        notes=fact.notes,
        measures=fact.measures,
        horizon_s=fact.horizon_s,
    )


def choose_policy(ledger: Ledger, fact: PolicyChosen) -> None:
    if ledger.policy is None:
        ledger.policy = fact.policy


def refuse(ledger: Ledger, fact: PlacementRefused) -> None:
    ledger.measuring.pop(fact.placement_id, None)
    record = ledger.jobs.get(fact.job_id)
    if record is not None and record.ordered == fact.placement_id:
        record.ordered = None
        if fact.late:
            record.broken = Broken(
                placement_id=fact.placement_id, outcome=Outcome.INTERRUPTED, reason=fact.reason
            )
        broken = broken_as(record, fact.placement_id)
        if broken is not None and broken.outcome is Outcome.INTERRUPTED:
            count_interruption(record)
    placement = ledger.planned.get(fact.job_id)
    if placement is not None and placement.placement_id == fact.placement_id:
        del ledger.planned[fact.job_id]
        ledger.verdicts[fact.job_id] = Verdict(
            plan_id=fact.plan_id, reason=REFUSED, detail=fact.reason, since=fact.at
        )


def open_round(ledger: Ledger, fact: ProfilingPlanned) -> None:
    """A new round: only measurements of jobs that are still to be measured are kept."""
    runs = [run for run in ledger.measuring.values() if _submitted_still(ledger, run.job_id)]
    ledger.measuring = {run.placement_id: run for run in (*runs, *fact.runs)}


def add_measurements(ledger: Ledger, fact: ProfilingAdded) -> None:
    ledger.measuring |= {run.placement_id: run for run in fact.runs}


def _submitted_still(ledger: Ledger, job_id: JobId) -> bool:
    record = ledger.jobs.get(job_id)
    return record is not None and record.state is JobState.SUBMITTED


def measure(ledger: Ledger, fact: ProfileMeasured | ProfileFailed) -> None:
    run = ledger.measuring.get(fact.placement_id)
    if not (has_orders(ledger, fact) if run is None else _is_of(fact, run)):
        return
    ledger.measuring.pop(fact.placement_id, None)
    record = ledger.jobs.get(fact.job_id)
    if record is not None:
        place = f"on {fact.gpu_type} ({fact.node_id})"
        record.unmeasured = f"{place}: {fact.reason}" if isinstance(fact, ProfileFailed) else ""


def _is_of(fact: ProfileMeasured | ProfileFailed | WorkerStopped, run: ProfileRun) -> bool:
    """Whether a report is about this measurement: it has its job and its node."""
    return (fact.job_id, fact.node_id) == (run.job_id, run.node_id)


# ---- nodes


def join(ledger: Ledger, fact: NodeJoined) -> None:
    before = ledger.nodes.get(fact.node_id)
    if before is not None and before.life != fact.life:
        _lose_copies(ledger, before, fact.at, but=fact.workers)
    change(ledger, fact)
    known = ledger.nodes[fact.node_id]
    known.workers = {key: worker for key, worker in known.workers.items() if key in fact.workers}


def lose(ledger: Ledger, fact: NodeLost) -> None:
    known = ledger.nodes.get(fact.node_id)
    if known is not None and known.alive:
        _lose_copies(ledger, known, fact.at)
    change(ledger, fact)


def _lose_copies(ledger: Ledger, known: NodeRecord, at: float, but: Collection[PlacementId] = ()) -> None:
    """End the copies that a node ran; a gang without copies ends as a whole, by its job's preemption."""
    for placement_id, worker in known.workers.items():
        record = ledger.jobs.get(worker.job_id)
        if record is not None and placement_id not in but and is_present(record, placement_id):
            _end_copy(record, known.node.node_id, at, saved=False)


def _end_copy(record: JobRecord, node_id: NodeId, at: float, *, saved: bool) -> None:
    gone = record.tally.end(node_id, saved=saved) if record.tally.copies else None
    if gone is not None and not saved:
        lose_work(record, gone, at)


def change(ledger: Ledger, fact: NodeEvent) -> None:
    """Fold a fact about a node. An interval of its time ends where the GPUs that jobs can get change."""
    known = ledger.nodes.get(fact.node_id)
    if known is None:
        fold_node(ledger.nodes, fact, _record)
        if isinstance(fact, NodeJoined):
            _note_supply(ledger, fact.node.gpu_type, fact.at)
        return
    known.settle(fact.at)
    alive, gpus, gpu_type = known.alive, known.node.gpus, known.whole.gpu_type
    fold_node(ledger.nodes, fact, _record)
    for changed in dict.fromkeys((gpu_type, known.whole.gpu_type)):
        _note_supply(ledger, changed, fact.at)
    if (known.alive, known.node.gpus, known.whole.gpu_type) != (alive, gpus, gpu_type):
        until = max(fact.at, known.up_since)  # clocks of services differ a little
        known.up += [(known.up_since, until, gpus, gpu_type)] if alive else []
        known.up_since = until
        if len(known.up) > INTERVALS_KEPT:
            _add_up(known, ledger.first_submitted_at)


def _add_up(known: NodeRecord, first: float | None) -> None:
    """Add the oldest interval to the sums. Use is of the time since the first submission."""
    start, end, gpus, _ = known.up.pop(0)
    counted_s = 0.0 if first is None else max(end - max(start, first), 0.0)
    known.up_before_s[gpus] = known.up_before_s.get(gpus, 0.0) + counted_s


def _note_supply(ledger: Ledger, gpu_type: GpuType, at: float) -> None:
    usable = any(known.usable and known.whole.gpu_type == gpu_type for known in ledger.nodes.values())
    before = ledger.supply.get(gpu_type)
    if before is None or before.usable != usable:
        ledger.supply[gpu_type] = Supply(usable, at)


def _record(fact: NodeJoined) -> NodeRecord:
    return as_joined(NodeRecord(whole=fact.node, up_since=fact.at, settled_at=fact.at), fact)


# ---- workers


def order_start(ledger: Ledger, fact: StartOrdered) -> None:
    record = ledger.jobs.get(fact.job_id)
    if record is None:
        return
    record.nodes[fact.node_id] = None
    if len(record.nodes) > NODES_KEPT:
        del record.nodes[next(iter(record.nodes))]
    if fact.profile_iterations:
        return
    if record.ordered != fact.placement_id:
        record.ordered, record.ordered_at, record.tally = fact.placement_id, fact.at, Tally()
    record.tally.order(fact)


def _restore(record: JobRecord, node_id: NodeId, samples: float) -> None:
    """Count the samples in the checkpoint that was found on disk, not those that were expected there."""
    if record.tally.restore(node_id, samples):
        record.samples_done = record.tally.merged(record.spec.samples)
        record.samples_then = min(record.samples_then, record.samples_done)


def start_worker(ledger: Ledger, fact: WorkerStarted) -> None:
    record = ledger.jobs.get(fact.job_id)
    if record is not None and fact.samples_restored is not None and record.ordered == fact.placement_id:
        _restore(record, fact.node_id, fact.samples_restored)
    if known := ledger.nodes.get(fact.node_id):
        known.settle(fact.at)
        known.workers[fact.placement_id] = WorkerRecord(job_id=fact.job_id, gpu_indices=fact.gpu_indices)


def order_stop(ledger: Ledger, fact: StopOrdered) -> None:
    known = ledger.nodes.get(fact.node_id)
    worker = known.workers.get(fact.placement_id) if known else None
    if worker is not None and worker.stop_ordered_at is None:
        worker.stop_ordered_at = fact.at
    record = ledger.jobs.get(fact.job_id)
    run = record.present if record else None
    if record is None or run is None or run.placement_id != fact.placement_id:
        return
    if run.stop_ordered_at is None and not record.tally.is_over(fact.node_id):  # a lost copy stops nothing
        run.stop_ordered_at = fact.at


def checkpoint(ledger: Ledger, fact: WorkerCheckpointed) -> None:
    if has_orders(ledger, fact):
        _save(ledger, fact)


def has_orders(ledger: Ledger, fact: WorkerEvent | ProfileMeasured | ProfileFailed) -> bool:
    """Whether the node was ever ordered to start processes of the job, so that its reports count.

    If more nodes had orders than are remembered, any node's reports count.
    """
    record = ledger.jobs.get(fact.job_id)
    nodes = record.nodes if record else {}
    return not nodes or fact.node_id in nodes or len(nodes) >= NODES_KEPT


def stop_worker(ledger: Ledger, fact: WorkerStopped) -> None:
    if not has_orders(ledger, fact):
        return
    measured = ledger.measuring.get(fact.placement_id)
    if measured is not None and _is_of(fact, measured):
        del ledger.measuring[fact.placement_id]
    stopped = ledger.jobs.get(fact.job_id)
    if fact.leads and (fact.outcome in WELL or (stopped is not None and _saved_more(stopped, fact))):
        _save(ledger, fact)
    if stopped is not None and is_present(stopped, fact.placement_id):
        _end_copy(stopped, fact.node_id, fact.at, saved=fact.outcome in WELL)
    if stopped is not None and fact.leads and fact.samples_trained is not None:
        _end_early(stopped, fact)
    if fact.outcome in BROKEN:
        _break(ledger, fact)
    known = ledger.nodes.get(fact.node_id)
    if known is None:
        return
    known.settle(fact.at)
    worker = known.workers.pop(fact.placement_id, None)
    record = ledger.jobs.get(fact.job_id)
    if worker is None or record is None or record.ended or worker.stop_ordered_at is None:
        return
    run = record.present
    if run is not None and run.placement_id == fact.placement_id:
        record.lost_gpu_s += max(fact.at - worker.stop_ordered_at, 0.0) * worker.gpus * run.share


def _end_early(record: JobRecord, fact: WorkerStopped) -> None:
    """Record that a script ended by itself, and after how many samples, if that completes its job."""
    there = is_present(record, fact.placement_id)
    if record.ended or not (there or waits_after(record, fact.placement_id)):
        return
    record.reason = fact.reason
    if there and record.present is not None:
        record.present.trained = fact.samples_trained


def _saved_more(record: JobRecord, fact: WorkerStopped) -> bool:
    """Whether a leader wrote a checkpoint that it did not report before it ended."""
    leader = record.tally.leaders.get(fact.node_id)
    return leader is not None and fact.samples_done > leader.done


def _break(ledger: Ledger, fact: WorkerStopped) -> None:
    """Record why a placement broke: by its first worker that failed, else by the first interrupted one.

    At most one failure is counted for a placement. An interruption is counted once the job is back in the
    queue. For copies that train, the last worker to end counts, if none has saved its work.
    """
    record = ledger.jobs.get(fact.job_id)
    if record is None or record.ended or not is_present(record, fact.placement_id):
        return
    if record.tally.copies and record.present is not None and not record.tally.wasted:
        return
    known = broken_as(record, fact.placement_id)
    if known is not None and (known.outcome is Outcome.FAILED or fact.outcome is Outcome.INTERRUPTED):
        return
    record.broken = Broken(
        placement_id=fact.placement_id,
        outcome=fact.outcome,
        reason=fact.reason,
        exit_code=fact.exit_code,
        signal=fact.signal,
    )
    record.failures += fact.outcome is Outcome.FAILED


def _save(ledger: Ledger, fact: WorkerCheckpointed | WorkerStopped) -> None:
    """Count the progress of a checkpoint, if the placement is the job's present one, or was at its end.

    A worker may publish a checkpoint and then stop with it: a checkpoint without more samples is the same.
    A job that is cancelled or reaches its time limit saves once more after its end.
    """
    record = ledger.jobs.get(fact.job_id)
    run = (record.present or record.cut_short) if record else None
    if record is not None and run is not None and run.placement_id == fact.placement_id:
        completed = isinstance(fact, WorkerStopped) and fact.outcome is Outcome.COMPLETED
        more = record.tally.count(fact.node_id, fact.samples_done, fact.at)
        record.checkpoints += more and not completed
        record.samples_done = max(record.samples_done, record.tally.merged(record.spec.samples))
        run.saved_at = fact.at
        if run.ended_at is not None:
            run.samples_to, run.copies = record.samples_done, record.tally.by_copy()
