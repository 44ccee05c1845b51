"""Why a job waits, or why it runs where it does: one dominant reason, with the plan and rivals behind it."""

from collections.abc import Iterator

import msgspec

from schemas.ids import JobId, NodeId, PlanId
from schemas.placement import Gang
from schemas.plans import Standing, Waiting
from schemas.views import HolderView, HoldView, PlanView, PreemptionView, WhyView
from shared.domain.cluster import gpus_by_type
from shared.domain.ledger import Ledger
from shared.domain.ledger.records import JobRecord, Run, Verdict
from shared.domain.metrics import expected_wait_s
from shared.domain.states import JobState

STARTING = "starting"
NO_NODES = "no-nodes"
PREEMPTIONS_SHOWN = 20
"""newest preemptions of a job that are shown"""


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """The dominant reason. `since`: the cluster time from which it holds."""

    reason: str
    detail: str
    since: float
    plan_id: PlanId | None = None
    gang: Gang | None = None
    standing: Standing | None = None
    verdict: Verdict | None = None


def why(ledger: Ledger, record: JobRecord, raqlr: float | None, now: float) -> WhyView:
    found = dominant(ledger, record)
    verdict = found.verdict
    return WhyView(
        job_id=record.job_id,
        state=record.state.value,
        reason=found.reason,
        detail=found.detail,
        held_by=verdict.held_by if verdict else (),
        plan_id=found.plan_id,
        expected_wait_s=expected_wait_s(record, raqlr),
        since=found.since,
        wait_s=record.wait_s(now),
        plan=_plan(ledger, found.plan_id),
        position=verdict.position or None if verdict else None,
        queue_length=verdict.waiting or None if verdict else None,
        standing=found.standing,
        holders=tuple(_holders(ledger, record, verdict)) if verdict else (),
        gang=found.gang,
        estimated_throughput=_estimated(ledger, record) if found.gang else None,
        last_preemption=next(iter(preemptions(record)[-1:]), None),
        hold=hold_view(record),
    )


def hold_view(record: JobRecord) -> HoldView | None:
    hold = None if record.ended else record.hold
    if hold is None:
        return None
    keeps_gpus = record.present is not None and not record.spec.preemptible
    return HoldView(at=hold.at, by=hold.by.rpartition("/")[0], keeps_gpus=keeps_gpus)


def preemptions(record: JobRecord) -> tuple[PreemptionView, ...]:
    """The preemptions of a job: its runs that ended with the job back in the queue, oldest first."""
    ended = [run for run in record.runs if run.preempted is not None]
    return tuple(_preemption(run) for run in ended[-PREEMPTIONS_SHOWN:])


def _preemption(run: Run) -> PreemptionView:
    assert run.preempted is not None
    return PreemptionView(
        at=run.ended_at or run.started_at,
        started_at=run.started_at,
        gang=run.gang,
        reason=run.preempted,
        cause=run.cause,
        samples_done=run.samples_to or 0.0,
        detail=run.broken.reason if run.broken else "",
        exit_code=run.broken.exit_code if run.broken else None,
        signal=run.broken.signal if run.broken else None,
    )


# ---- the reason


def dominant(ledger: Ledger, record: JobRecord) -> Reason:
    """The first reason that applies.

    They are: ended, runs, on hold, no usable node, not measured, not estimated, the plans'.
    """
    run = record.present
    if record.ended:
        detail = record.reason or f"it is {record.state}"
        return Reason(reason=record.state.value, detail=detail, since=record.since)
    if run is not None:
        return Reason(
            reason=record.state.value,
            detail=f"it runs on {_places(run.gang)}{'; it is on hold' if record.hold else ''}",
            since=run.started_at,
            plan_id=run.plan_id,
            gang=run.gang,
            standing=run.standing,
        )
    hold = hold_view(record)
    if hold is not None:
        detail = f"by {hold.by}" if hold.by else ""
        return Reason(reason=Waiting.ON_HOLD.value, detail=detail, since=hold.at)
    supplied, since = _supply(ledger, record)
    if not supplied:
        detail = f"no node with {_types(record)} is alive and takes jobs"
        return Reason(reason=NO_NODES, detail=detail, since=max(since, _waits_from(record)))
    since = max(since, record.since)
    match record.state:
        case JobState.SUBMITTED:
            reason = Waiting.PROFILING
            detail = f"{_profiling(ledger, record)}{_without_nodes(ledger, record)}"
        case JobState.PROFILED:
            reason, detail = Waiting.NO_ESTIMATE, "it is measured; the estimator has not answered yet"
        case _:
            return _planned(ledger, record, since)
    return Reason(reason=reason.value, detail=detail, since=since)


def _planned(ledger: Ledger, record: JobRecord, since: float) -> Reason:
    """The reason that follows from plans. `since`: time from which plans can place the job."""
    placement = ledger.planned.get(record.job_id)
    if placement is not None and (not record.runs or record.runs[-1].placement_id != placement.placement_id):
        chosen = ledger.chosen.get(record.job_id)
        return Reason(
            reason=STARTING,
            detail=f"placed on {_places(placement.gang)}; {_not_ready(ledger, record, placement.gang)}",
            since=max(chosen.at, since) if chosen else since,
            plan_id=chosen.plan_id if chosen else None,
            gang=placement.gang,
            standing=chosen.standing if chosen else None,
        )
    newest = ledger.verdicts.get(record.job_id)
    if newest is not None:
        verdict = newest.deciding
        return Reason(
            reason=verdict.reason,
            detail=verdict.detail or _only_mixed(ledger, record, verdict),
            since=max(verdict.since, since),
            plan_id=verdict.plan_id,
            standing=verdict.standing,
            verdict=verdict,
        )
    detail = "no plan has considered it since it came into the queue"
    return Reason(reason=Waiting.NOT_PLANNED.value, detail=detail, since=since)


def _only_mixed(ledger: Ledger, record: JobRecord, verdict: Verdict) -> str:
    """Why a job has NO_CONFIGURATION if it needs more GPUs than there are of any one type.

    Empty: the job does not need so many, so there is another reason.
    """
    wanted, least = record.spec.gpu_types or record.single_gpu, min(record.spec.demand)
    nodes = (known.node for known in ledger.nodes.values() if known.usable)
    gpus = {name: count for name, count in gpus_by_type(nodes).items() if name in wanted}
    if verdict.reason != Waiting.NO_CONFIGURATION.value or not max(gpus.values(), default=least) < least:
        return ""
    there = ", ".join(f"{count} {name}" for name, count in gpus.items())
    enough = sum(gpus.values()) >= least
    only = "so only a policy that mixes GPU types can place it" if enough else "too few for it"
    return f"it needs at least {least} GPUs; of the types that it may use there are {there}, {only}"


def _not_ready(ledger: Ledger, record: JobRecord, gang: Gang) -> str:
    stopping = {
        f"{worker.job_id} on {node_id}"
        for node_id in gang.nodes
        if node_id in ledger.nodes
        for worker in ledger.nodes[node_id].workers.values()
        if worker.stop_ordered_at is not None and worker.job_id != record.job_id
    }
    if stopping:
        return f"still stopping there: {', '.join(sorted(stopping))}"
    return "its GPUs or its processes are not ready yet"


def _profiling(ledger: Ledger, record: JobRecord) -> str:
    runs = [run for run in ledger.measuring.values() if run.job_id == record.job_id]
    there = ", ".join(f"{run.gpu_type} ({run.node_id})" for run in runs)
    if record.unmeasured:
        again = f"on {there}, now" if runs else "again from the start of the next round at the latest"
        return f"{again}; it could not be measured {record.unmeasured}"
    if not runs:
        return "it is measured as soon as GPUs are idle, or from the start of the next round"
    return f"it is being measured on {there}"


def _without_nodes(ledger: Ledger, record: JobRecord) -> str:
    """The types that the job's file names and of which no node is usable: the job waits for them."""
    supply = ledger.supply
    missing = [one for one in record.spec.gpu_types if one not in supply or not supply[one].usable]
    if not missing:
        return ""
    none = f"; no node with {' or '.join(missing)} takes jobs"
    waits = "waits for one: profile_attempts rounds, or without end if the job can use no other type"
    return f"{none}, and the measurement there {waits}"


# ---- the plan and the rivals behind the reason


def _plan(ledger: Ledger, plan_id: PlanId | None) -> PlanView | None:
    if plan_id is None:
        return None
    return next((one.view for one in reversed(ledger.plans) if one.view.plan_id == plan_id), None)


def _estimated(ledger: Ledger, record: JobRecord) -> float | None:
    """Estimated samples/s of the job's present placement, else of the one that is planned for it."""
    at = record.present or ledger.planned.get(record.job_id)
    return at.throughput if at else None


def _holders(ledger: Ledger, record: JobRecord, verdict: Verdict) -> Iterator[HolderView]:
    """The jobs that the plan preferred to this one, as far as they still have GPUs that it can use."""
    standings = verdict.rivals or (None,) * len(verdict.held_by)
    found = [
        HolderView(
            job_id=job_id,
            gpus=_usable_gpus(ledger, record, job_id),
            submitted_at=holder.submitted_at,
            started_at=holder.present.started_at if holder.present else None,
            standing=standing,
        )
        for job_id, standing in zip(verdict.held_by, standings, strict=True)
        if (holder := ledger.jobs.get(job_id)) is not None and not holder.ended
    ]
    yield from sorted((one for one in found if one.gpus), key=lambda one: -one.gpus)


def _usable_gpus(ledger: Ledger, record: JobRecord, holder: JobId) -> int:
    """GPUs of another job's planned placement, of the types on which this job has a throughput."""
    placement = ledger.planned.get(holder)
    if placement is None:
        return 0
    types = record.single_gpu.keys()
    members = placement.gang.members
    return sum(one.gpus for one in members if one.node in ledger.nodes and _type(ledger, one.node) in types)


def _type(ledger: Ledger, node_id: NodeId) -> str:
    return ledger.nodes[node_id].node.gpu_type


def _supply(ledger: Ledger, record: JobRecord) -> tuple[bool, float]:
    """Whether some node that the job may use is usable, and the time from which that is known to be so."""
    supply = [ledger.supply[one] for one in record.spec.gpu_types or ledger.supply if one in ledger.supply]
    usable = [one.since for one in supply if one.usable]
    return bool(usable), min(usable) if usable else max((one.since for one in supply), default=0.0)


def _waits_from(record: JobRecord) -> float:
    """The end of its newest run, else its submission."""
    ended_at = record.runs[-1].ended_at if record.runs else None
    return record.submitted_at if ended_at is None else ended_at


def _types(record: JobRecord) -> str:
    return "GPUs of " + ", ".join(record.spec.gpu_types) if record.spec.gpu_types else "GPUs"


def _places(gang: Gang) -> str:
    return ", ".join(f"{one.node} ({one.gpus} GPU{'s' if one.gpus > 1 else ''})" for one in gang.members)
