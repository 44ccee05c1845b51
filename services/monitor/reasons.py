"""Why a job is not running: one dominant reason, from the newest plan that looked at it."""

from schemas.ids import JobId, PlanId
from schemas.placement import Gang
from schemas.plans import Waiting
from schemas.views import WhyView
from shared.domain.ledger import Ledger
from shared.domain.ledger.records import JobRecord
from shared.domain.metrics import expected_wait_s
from shared.domain.states import JobState

STARTING = "starting"
NO_NODES = "no-nodes"


def why(ledger: Ledger, record: JobRecord, raqlr: float | None) -> WhyView:
    reason, detail, to, plan_id = _reason(ledger, record)
    return WhyView(
        job_id=record.job_id,
        state=record.state.value,
        reason=reason,
        detail=detail,
        to=to,
        plan_id=plan_id,
        expected_wait_s=expected_wait_s(record, raqlr),
    )


_Reason = tuple[str, str, tuple[JobId, ...], PlanId | None]


def _reason(ledger: Ledger, record: JobRecord) -> _Reason:
    if record.ended:
        return record.state.value, record.reason or f"it is {record.state}", (), None
    if record.present is not None:
        return record.state.value, f"it runs on {_places(record.present.gang)}", (), None
    if not _some_node(ledger, record):
        return NO_NODES, f"no node with {_types(record)} is alive and takes jobs", (), None
    match record.state:
        case JobState.SUBMITTED:
            return Waiting.PROFILING.value, _profiling(ledger, record), (), None
        case JobState.PROFILED:
            return Waiting.NO_ESTIMATE.value, "it is measured; the estimator has not answered yet", (), None
        case _:
            return _planned(ledger, record)


def _planned(ledger: Ledger, record: JobRecord) -> _Reason:
    placement = ledger.planned.get(record.job_id)
    if placement is not None and (not record.runs or record.runs[-1].placement_id != placement.placement_id):
        detail = f"placed on {_places(placement.gang)}; its GPUs or its processes are not ready yet"
        return STARTING, detail, (), None
    verdict = ledger.verdicts.get(record.job_id)
    if verdict is not None:
        return verdict.reason, verdict.detail, verdict.to, verdict.plan_id
    return Waiting.NOT_PLANNED.value, "no plan has looked at it since it came into the queue", (), None


def _profiling(ledger: Ledger, record: JobRecord) -> str:
    runs = [run for run in ledger.measuring.values() if run.job_id == record.job_id]
    if not runs:
        return "it is measured from the start of the next round"
    return "it is measured on " + ", ".join(f"{run.gpu_type} ({run.node_id})" for run in runs)


def _some_node(ledger: Ledger, record: JobRecord) -> bool:
    wanted = record.spec.gpu_types
    return any(
        known.alive and not known.draining and (not wanted or known.node.gpu_type in wanted)
        for known in ledger.nodes.values()
    )


def _types(record: JobRecord) -> str:
    return "GPUs of " + ", ".join(record.spec.gpu_types) if record.spec.gpu_types else "GPUs"


def _places(gang: Gang) -> str:
    return ", ".join(f"{one.node} ({one.gpus} GPU{'s' if one.gpus > 1 else ''})" for one in gang.members)
