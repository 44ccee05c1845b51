"""Turns the runner's reports about a worker into facts and samples."""

from msgspec import structs

from schemas.events import (
    Outcome,
    ProfileFailed,
    ProfileMeasured,
    StartOrdered,
    WorkerCheckpointed,
    WorkerStarted,
    WorkerStopped,
)
from schemas.ids import NodeId
from schemas.measurements import Measured
from schemas.samples import ThroughputObserved
from services.agent.state import Worker, WorkerState
from services.agent.tasks import (
    Completed,
    Failed,
    Interrupted,
    LastReport,
    NotStarted,
    Observed,
    Profiled,
    Report,
    Saved,
    Started,
    Stopped,
)
from shared.domain import gangs
from shared.domain.core import Effects, Publish, Send
from shared.domain.sums import plain_sum

OUTCOMES: dict[type[LastReport], Outcome] = {
    Stopped: Outcome.CHECKPOINTED,
    Completed: Outcome.COMPLETED,
    Failed: Outcome.FAILED,
    Interrupted: Outcome.INTERRUPTED,
    NotStarted: Outcome.REFUSED,
}
"""outcomes of workers that train; a worker that measures ends as `COMPLETED` once it was started"""
PATHS_ALIKE = 0.9
"""least ratio of the bandwidth of a gang's slowest network to a node's own at which the node is observed"""


def effects_of(worker: Worker, report: Report, now: float) -> Effects:
    match report:
        case Started():
            return [Publish(_started(worker, report, now))] if worker.state is WorkerState.STARTING else []
        case Observed():
            return [Send(sample) for sample in _samples(worker.order, report, now)]
        case Saved(samples_done=samples_done):
            return [Publish(_checkpointed(worker.order, samples_done, now))]
        case Profiled(measured=measured):
            return [Publish(_measured(worker.order, measured, now)), Publish(_stopped(worker, report, now))]
        case Failed() | Interrupted() if worker.profiles:
            return [Publish(_not_measured(worker.order, report, now)), Publish(_stopped(worker, report, now))]
        case Stopped() | Completed() | Failed() | Interrupted() | NotStarted():
            return [Publish(_stopped(worker, report, now))]


def _not_measured(order: StartOrdered, report: Failed | Interrupted, now: float) -> ProfileFailed:
    return ProfileFailed(
        at=now,
        job_id=order.job_id,
        placement_id=order.placement_id,
        gpu_type=order.nodes[0].gpu_type,
        node_id=order.node_id,
        reason=report.reason,
        final=isinstance(report, Failed) and report.lasting,
        absent=isinstance(report, Failed) and report.absent,
        repeatable=isinstance(report, Failed) and not (report.lasting or report.absent),
        whole_workload=isinstance(report, Failed) and report.whole_workload,
    )


def _started(worker: Worker, report: Started, now: float) -> WorkerStarted:
    return WorkerStarted(
        at=now,
        node_id=worker.order.node_id,
        placement_id=worker.order.placement_id,
        job_id=worker.order.job_id,
        gpu_indices=worker.gpu_indices,
        meeting=report.meeting,
        samples_restored=report.samples_restored if worker.leads else None,
    )


def _checkpointed(order: StartOrdered, samples_done: float, now: float) -> WorkerCheckpointed:
    return WorkerCheckpointed(
        at=now,
        node_id=order.node_id,
        placement_id=order.placement_id,
        job_id=order.job_id,
        samples_done=samples_done,
    )


def _stopped(worker: Worker, report: LastReport, now: float) -> WorkerStopped:
    """The end of a worker. One that measured has a reason only if it was not started."""
    order = worker.order
    end = WorkerStopped(
        at=now,
        node_id=order.node_id,
        placement_id=order.placement_id,
        job_id=order.job_id,
        outcome=_outcome(worker, report),
        samples_done=0.0 if worker.profiles else _samples_done(worker, report),
        leads=worker.leads,
    )
    if isinstance(report, NotStarted):
        return structs.replace(end, reason=f"cannot be started: {report.reason}")
    if isinstance(report, Completed) and report.samples_trained is not None:
        early = f"{report.samples_trained:.0f} of {order.spec.samples:.0f} samples"
        reason = f"its script ended by itself after {early}"
        return structs.replace(end, reason=reason, samples_trained=report.samples_trained)
    if worker.profiles or not isinstance(report, Failed | Interrupted):
        return end
    final = isinstance(report, Failed) and report.lasting
    return structs.replace(
        end, reason=report.reason, exit_code=report.exit_code, signal=report.signal, final=final
    )


def _outcome(worker: Worker, report: LastReport) -> Outcome:
    if worker.profiles and not isinstance(report, NotStarted):
        return Outcome.COMPLETED
    outcome = OUTCOMES[type(report)]
    share_done = outcome is Outcome.COMPLETED and worker.order.until is not None
    return Outcome.QUOTA if share_done else outcome


def _samples_done(worker: Worker, report: LastReport) -> float:
    """Samples in the worker's last checkpoint; if not known, those with which the worker began."""
    match report:
        case Stopped(samples_done=samples) | Completed(samples_done=samples):
            return samples
        case Interrupted(samples_done=float(samples)):
            return samples
        case _:
            return worker.samples_from


def _measured(order: StartOrdered, measured: Measured, now: float) -> ProfileMeasured:
    return ProfileMeasured(
        at=now,
        job_id=order.job_id,
        placement_id=order.placement_id,
        gpu_type=order.nodes[0].gpu_type,
        node_id=order.node_id,
        data_s=measured.data_s,
        forward_s=measured.forward_s,
        backward_s=measured.backward_s,
        update_s=measured.update_s,
        iteration_s=measured.iteration_s,
        parameters=measured.parameters,
        memory_share=measured.memory_share,
        modes=measured.modes,
    )


def _samples(order: StartOrdered, report: Observed, now: float) -> list[ThroughputObserved]:
    """The observation as samples, which the leader sends for all nodes: one for each node with a known pace.

    A gang without a pace in common gives one sample, a gang that the estimator gives no estimates for none.
    Nodes are unlike also by their servers: one in which GPUs wait for their data holds up the others.
    """
    if not gangs.observed(order.gang):
        return []
    kinds = {(node.gpu_type, node.server) for node in order.nodes}
    unlike = gangs.paced(order.gang) and len(kinds) > 1
    paces = _own_paces(order, report) if unlike else _pace_in_common(order, report)
    return [
        ThroughputObserved(
            at=now,
            fingerprint=order.spec.workload.fingerprint,
            job_id=order.job_id,
            placement_id=order.placement_id,
            node_id=node.node_id,
            gpu_type=node.gpu_type,
            gpus_on_node=order.gang.on(node.node_id),
            gang=order.gang,
            seconds=report.seconds,
            throughput=pace,
            data_s=report.stretch.data_s.get(node.node_id, ()),
            wait_s=() if unlike else report.stretch.wait_s.get(node.node_id, ()),
        )
        for node in order.nodes
        if (pace := paces.get(node.node_id)) is not None
    ]


def _pace_in_common(order: StartOrdered, report: Observed) -> dict[NodeId, float | None]:
    """samples/s of one GPU, by node, with the time that it waits for the others included.

    If the GPUs of a gang have no pace in common, the mean over them, for the first node only.
    """
    if not gangs.paced(order.gang):
        return {order.nodes[0].node_id: report.stretch.throughput / order.gang.gpus}
    pace = gangs.pace(order.gang, report.stretch.throughput, order.spec.workload.batch_size)
    return dict.fromkeys(order.gang.nodes, pace)


def _own_paces(order: StartOrdered, report: Observed) -> dict[NodeId, float | None]:
    """samples/s of one GPU, by node, without the time that it waits longer than the node that waits least.

    Nodes on a faster network than another's are left out: all exchange over the slowest path, which says
    nothing of an exchange among their like. Empty if the waiting of some node is not known: it could be the
    slowest node, for which all others wait.
    """
    waits = {
        node_id: plain_sum(waits) / len(waits) for node_id, waits in report.stretch.wait_s.items() if waits
    }
    if len(waits) < len(order.nodes):
        return {}
    least_s, batch_size = min(waits.values()), order.spec.workload.batch_size
    slowest = min(node.network_bandwidth for node in order.nodes)
    return {
        node.node_id: gangs.pace(
            order.gang, report.stretch.throughput, batch_size, waits[node.node_id] - least_s
        )
        for node in order.nodes
        if slowest >= PATHS_ALIKE * node.network_bandwidth
    }
