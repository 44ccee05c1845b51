"""The monitor's answers to questions, each computed from the ledger and the last heartbeats."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from schemas.base import Message, Question
from schemas.ids import GpuType, JobId
from schemas.questions import (
    ExplainJob,
    FactPlaces,
    FindFacts,
    ListJobs,
    ListNodes,
    ListPlans,
    ListRuns,
    ListSummaries,
    Refused,
    ShowJob,
    ShowPlan,
    ShowStatus,
    ShowTimeline,
)
from schemas.views import JobPage, JobView, NodePage, NodeSpeed, NodeView, StatusView, WhyView
from services.monitor import overview
from services.monitor.cluster_now import ClusterNow, listed, node_state
from services.monitor.pages import InvalidPage, page_of
from services.monitor.reasons import hold_view, preemptions, why
from shared.domain.ledger import Ledger
from shared.domain.ledger.records import JobRecord, NodeRecord
from shared.domain.metrics import expected_wait_s, jobs_by_state, latency_ratio, summary
from shared.domain.states import JobState


def answer(question: Question, cluster: ClusterNow) -> Message:
    make = _ANSWERS.get(type(question))
    if make is None:
        return Refused(reason=f"the monitor does not answer {type(question).__name__}")
    return make(question, cluster)


def _status(_: ShowStatus, cluster: ClusterNow) -> StatusView:
    ledger = cluster.ledger
    figures = summary(ledger, now=cluster.now, raqlr_window_s=cluster.raqlr_window_s)
    return StatusView(
        at=cluster.now,
        jobs=jobs_by_state(ledger),
        gpus=gpus(ledger),
        nodes=nodes_by_state(ledger),
        policy=ledger.policy,
        plan=ledger.plans[-1].view if ledger.plans else None,
        raqlr=figures["raqlr"],
        metrics=figures,
        speed=cluster.speed,
    )


def gpus(ledger: Ledger) -> dict[GpuType, tuple[int, int]]:
    """(busy, all) GPUs by type, without those of lost nodes, and without withheld ones that no job holds."""
    counts: dict[GpuType, tuple[int, int]] = {}
    for known in listed(ledger):
        busy, there = counts.get(known.node.gpu_type, (0, 0))
        if known.alive:
            counts[known.node.gpu_type] = (
                busy + known.gpus_in_use,
                there + known.node.gpus + known.withheld_in_use,
            )
    return dict(sorted(counts.items()))


def nodes_by_state(ledger: Ledger) -> dict[str, int]:
    counts = dict.fromkeys(("alive", "draining", "lost"), 0)
    for known in listed(ledger):
        counts[node_state(known)] += 1
    return counts


def node_view(known: NodeRecord, cluster: ClusterNow, speed: NodeSpeed | None) -> NodeView:
    jobs: dict[JobId, int] = {}
    for worker in known.workers.values() if known.alive else ():
        jobs[worker.job_id] = jobs.get(worker.job_id, 0) + worker.gpus
    return NodeView(
        node=known.whole,
        withheld=known.withheld,
        reason=known.leaving_for or known.drained_for,
        state=node_state(known),
        gpus_free=_free(known) if known.alive else 0,
        jobs=jobs,
        heartbeat_age_s=cluster.silence_s(known.node.node_id, cluster.now),
        left_s=None if known.node.until is None else max(known.node.until - cluster.now, 0.0),
        speed=speed,
    )


def _free(known: NodeRecord) -> int:
    return max(known.node.gpus - known.gpus_in_use + known.withheld_in_use, 0)


def _show_job(question: ShowJob, cluster: ClusterNow) -> JobView | Refused:
    record = cluster.ledger.jobs.get(question.job_id)
    if record is None:
        return _unknown(question.job_id, cluster)
    return msgspec.structs.replace(
        job_view(record, cluster), preemptions=preemptions(record), nodes=tuple(record.nodes)
    )


def _explain_job(question: ExplainJob, cluster: ClusterNow) -> WhyView | Refused:
    record = cluster.ledger.jobs.get(question.job_id)
    if record is None:
        return _unknown(question.job_id, cluster)
    return why(cluster.ledger, record, cluster.raqlr, cluster.now)


def _list_nodes(_: ListNodes, cluster: ClusterNow) -> NodePage:
    speeds = cluster.speeds()
    return NodePage(
        nodes=tuple(
            node_view(known, cluster, speeds.get(known.node.node_id)) for known in listed(cluster.ledger)
        )
    )


def job_view(record: JobRecord, cluster: ClusterNow) -> JobView:
    run = record.present
    progress, _ = cluster.progress.get(record.job_id, (0.0, 0.0)) if run else (0.0, 0.0)
    return JobView(
        job_id=record.job_id,
        state=record.state.value,
        spec=record.spec,
        submitted_at=record.submitted_at,
        started_at=record.started_at,
        ended_at=record.ended_at,
        wait_s=record.wait_s(cluster.now),
        age_s=record.age_s,
        latency_ratio=latency_ratio(record, cluster.now),
        expected_wait_s=expected_wait_s(record, cluster.raqlr),
        samples_done=max(record.samples_done, progress),
        restarts=record.restarts,
        gang=run.gang if run else None,
        estimated_throughput=run.throughput if run else None,
        layer=run.layer if run else None,
        reason=record.reason,
        unmeasured=record.unmeasured if record.state is JobState.SUBMITTED else "",
        interruptions=record.interruptions,
        failures=record.failures,
        exit_code=record.broken.exit_code if record.broken else None,
        signal=record.broken.signal if record.broken else None,
        checkpoints=record.checkpoints,
        samples_saved=record.samples_done if record.checkpoints else 0.0,
        saved_at=_saved_at(record) if record.checkpoints else None,
        running_s=record.running_s(cluster.now if record.ended_at is None else record.ended_at),
        hold=hold_view(record),
    )


def _saved_at(record: JobRecord) -> float | None:
    """Time of the newest checkpoint; None: no run has saved any. `saved_at` of such a run is its start."""
    return next((run.saved_at for run in reversed(record.runs) if run.saved_at > run.started_at), None)


def list_jobs(question: ListJobs, cluster: ClusterNow) -> JobPage | Refused:
    try:
        found, after = page_of(question, cluster.ledger.jobs.values(), cluster.now)
    except InvalidPage as error:
        return Refused(reason=str(error))
    return JobPage(jobs=tuple(job_view(record, cluster) for record in found), next=after)


def _unknown(job_id: JobId, cluster: ClusterNow) -> Refused:
    return Refused(reason=f"job {job_id} is not known", seq=cluster.seq)


def _facts(question: FindFacts, cluster: ClusterNow) -> FactPlaces | Refused:
    places = cluster.history.fact_seqs.get(question.job_id)
    if places is None:
        return Refused(reason=f"job {question.job_id}: no list of its facts is kept")
    return FactPlaces(seqs=tuple(places.seqs), complete=places.complete, last_seq=cluster.seq)


_ANSWERS: Mapping[type[Question], Callable[[Any, ClusterNow], Message]] = {
    ShowStatus: _status,
    ListJobs: list_jobs,
    ShowJob: _show_job,
    ExplainJob: _explain_job,
    ListNodes: _list_nodes,
    ShowTimeline: overview.timeline,
    ListSummaries: overview.summaries,
    ListRuns: overview.runs,
    FindFacts: _facts,
    ListPlans: overview.plans,
    ShowPlan: overview.plan_detail,
}
