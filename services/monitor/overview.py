"""Answers for the page: timeline, job summaries, runs and plans."""

from collections.abc import Callable, Iterator, Sequence

from schemas.ids import JobId, PlacementId
from schemas.overview import (
    Holding,
    JobSummary,
    NodeLane,
    NodeSpell,
    PlanDetail,
    PlanPage,
    RunPage,
    RunView,
    SummaryPage,
    TimelineView,
    Which,
)
from schemas.plans import Placement
from schemas.questions import (
    JOBS_PER_PAGE,
    ListPlans,
    ListRuns,
    ListSummaries,
    Refused,
    ShowPlan,
    ShowTimeline,
)
from services.monitor.cluster_now import ClusterNow, listed, node_state
from services.monitor.history import RUNS_KEPT, History, changed
from services.monitor.reasons import dominant
from shared.domain.ledger import Ledger
from shared.domain.ledger.records import JobRecord, Run
from shared.domain.metrics import expected_wait_s

CHANGES_AT_MOST = 5_000
HOLDERS_NAMED = 3
MEASURABLE_S = 1.0
"""seconds that a run must have lasted before its throughput is computed"""


def timeline(question: ShowTimeline, cluster: ClusterNow) -> TimelineView:
    history = cluster.history
    found = changed(history, question.after)
    shown = found[: min(max(question.limit, 1), CHANGES_AT_MOST)]
    more = len(shown) < len(found)
    speeds = cluster.speeds()
    return TimelineView(
        at=cluster.now,
        revision=shown[-1].revision if more else history.revision,
        more=more,
        complete_from=history.complete_from,
        nodes=tuple(
            NodeLane(
                node_id=known.node.node_id,
                gpu_type=known.node.gpu_type,
                gpus=known.whole.gpus,
                state=node_state(known),
                slow=speed.ratio if (speed := speeds.get(known.node.node_id)) and speed.slow else None,
            )
            for known in listed(cluster.ledger)
        ),
        holdings=tuple(each for each in shown if isinstance(each, Holding)),
        spells=tuple(each for each in shown if isinstance(each, NodeSpell)),
        planned=tuple(_planned(cluster.ledger, history)),
        expected=dict(_expected(cluster)),
    )


def _planned(ledger: Ledger, history: History) -> Iterator[Placement]:
    begun = {placement_id for here in history.open_holdings.values() for placement_id in here}
    for job_id, placement in ledger.planned.items():
        record = ledger.jobs.get(job_id)
        over = record is None or record.ended or _has_run(record, placement.placement_id)
        if not over and placement.placement_id not in begun:
            yield placement


def _has_run(record: JobRecord, placement_id: PlacementId) -> bool:
    return any(run.placement_id == placement_id for run in record.runs)


def _expected(cluster: ClusterNow) -> Iterator[tuple[PlacementId, float]]:
    for record in cluster.ledger.jobs.values():
        run = record.present
        end = expected_end(record, cluster)
        if run is not None and end is not None:
            yield run.placement_id, end


def expected_end(record: JobRecord, cluster: ClusterNow) -> float | None:
    """When a running job will complete, at its measured throughput or, before that, at the estimated one.

    None: it does not run.
    """
    run = record.present
    if run is None:
        return None
    samples, at = reached(record, run, cluster)
    speed = _measured(run, samples, at) or run.throughput
    return at + max(record.spec.samples - samples, 0.0) / speed if speed else None


# ---- jobs


def summaries(question: ListSummaries, cluster: ClusterNow) -> SummaryPage:
    chosen, order = _WHICH[question.which]
    found = sorted(filter(chosen, cluster.ledger.jobs.values()), key=order)
    limit = min(max(question.limit, 1), JOBS_PER_PAGE)
    return SummaryPage(total=len(found), jobs=tuple(_summary(record, cluster) for record in found[:limit]))


_WHICH: dict[Which, tuple[Callable[[JobRecord], bool], Callable[[JobRecord], tuple[float, JobId]]]] = {
    Which.WAITING: (
        lambda record: not record.ended and record.present is None,
        lambda record: (record.submitted_at, record.job_id),
    ),
    Which.RUNNING: (
        lambda record: record.present is not None,
        lambda record: (-record.since, record.job_id),
    ),
    Which.ENDED: (
        lambda record: record.ended,
        lambda record: (-(record.ended_at or 0.0), record.job_id),
    ),
}


def _summary(record: JobRecord, cluster: ClusterNow) -> JobSummary:
    run = record.present
    reason = dominant(cluster.ledger, record)
    done = record.samples_done if run is None else reached(record, run, cluster)[0]
    return JobSummary(
        job_id=record.job_id,
        state=record.state.value,
        project=record.spec.project,
        model=record.spec.workload.model,
        demand=record.spec.demand,
        gang=run.gang if run else None,
        submitted_at=record.submitted_at,
        ended_at=record.ended_at,
        wait_s=record.wait_s(cluster.now),
        age_s=record.age_s,
        expected_wait_s=expected_wait_s(record, cluster.raqlr),
        expected_end=expected_end(record, cluster),
        progress=min(done / record.spec.samples, 1.0),
        reason=reason.reason,
        detail=reason.detail or _held_by(reason.verdict.held_by if reason.verdict else ()),
    )


def _held_by(jobs: Sequence[JobId]) -> str:
    """A sentence that names the jobs with GPUs that the job could use; those with most GPUs come first."""
    return f"{', '.join(jobs[:HOLDERS_NAMED])} {'have' if len(jobs) > 1 else 'has'} the GPUs" if jobs else ""


# ---- runs


def runs(question: ListRuns, cluster: ClusterNow) -> RunPage | Refused:
    record = cluster.ledger.jobs.get(question.job_id)
    if record is None:
        return Refused(reason=f"job {question.job_id} is not known")
    kept = record.runs[-RUNS_KEPT:]
    return RunPage(
        job_id=record.job_id,
        runs=tuple(_run_view(record, run, cluster) for run in kept),
        total=record.starts,
    )


def _run_view(record: JobRecord, run: Run, cluster: ClusterNow) -> RunView:
    samples, at = reached(record, run, cluster)
    return RunView(
        placement_id=run.placement_id,
        gang=run.gang,
        started_at=run.started_at,
        ended_at=run.ended_at,
        samples_from=run.samples_from,
        samples_to=samples,
        estimated_throughput=run.throughput,
        measured_throughput=_measured(run, samples, at),
        layer=run.layer,
        plan_id=run.plan_id,
        preempted=run.preempted,
        cause=run.cause,
        start_s=run.start_s,
        stop_s=run.stop_s,
    )


def reached(record: JobRecord, run: Run, cluster: ClusterNow) -> tuple[float, float]:
    """Samples that the job had done when the run ended, or according to its last heartbeat, and when.

    Samples after the last checkpoint of a run that has ended are lost, so neither they nor their time count.
    A run that saved nothing has no time that counts.
    """
    if run.ended_at is not None:
        samples = record.samples_done if run.samples_to is None else run.samples_to
        unsaved = run.saved_at <= run.started_at and samples > run.samples_from
        return samples, run.ended_at if unsaved else run.saved_at
    heard = cluster.progress.get(record.job_id)
    saved = record.samples_done, run.saved_at
    return max(saved, heard) if heard is not None else saved


def _measured(run: Run, samples: float, at: float) -> float | None:
    ran_s = at - run.started_at
    return (samples - run.samples_from) / ran_s if ran_s >= MEASURABLE_S else None


# ---- plans


def plans(question: ListPlans, cluster: ClusterNow) -> PlanPage:
    newest = cluster.history.plans[-max(question.limit, 1) :]
    return PlanPage(plans=tuple(kept.summary for kept in reversed(newest)))


def plan_detail(question: ShowPlan, cluster: ClusterNow) -> PlanDetail | Refused:
    kept_plans = cluster.history.plans
    found = (kept.detail for kept in kept_plans if kept.detail.plan_id == question.plan_id)
    return next(found, Refused(reason=f"plan {question.plan_id} is not among the last {len(kept_plans)}"))
