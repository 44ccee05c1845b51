"""From the runner's reports about a worker to the facts and samples for the bus."""

from schemas.cluster import Node
from schemas.events import (
    Outcome,
    ProfileFailed,
    ProfileMeasured,
    StartOrdered,
    WorkerCheckpointed,
    WorkerStarted,
    WorkerStopped,
)
from schemas.measurements import Measured
from schemas.samples import ThroughputObserved
from services.agent.state import Worker, WorkerState
from services.agent.tasks import (
    Completed,
    Failed,
    Observed,
    Profiled,
    Report,
    Saved,
    Started,
    Stopped,
)
from shared.domain import gangs
from shared.domain.core import Effects, Publish, Send

OUTCOMES: dict[type, Outcome] = {Stopped: Outcome.CHECKPOINTED, Completed: Outcome.COMPLETED}


def effects_of(worker: Worker, report: Report, now: float) -> Effects:
    match report:
        case Started():
            return [Publish(_started(worker, now))] if worker.state is WorkerState.STARTING else []
        case Observed():
            return [Send(sample) for sample in _samples(worker.order, report, now)]
        case Saved(samples_done=samples_done):
            return [Publish(_checkpointed(worker.order, samples_done, now))]
        case Profiled(measured=measured):
            done = _stopped(worker, now, Outcome.COMPLETED, 0.0)
            return [Publish(_measured(worker.order, measured, now)), Publish(done)]
        case Stopped() | Completed():
            return [Publish(_stopped(worker, now, OUTCOMES[type(report)], report.samples_done))]
        case Failed():
            return _failed(worker, report, now)


def _failed(worker: Worker, report: Failed, now: float) -> Effects:
    """A measurement that fails says so; its worker's end is an ordinary one, the job does not fail."""
    order = worker.order
    if not worker.profiles:
        return [Publish(_stopped(worker, now, Outcome.FAILED, order.samples_done, report.reason))]
    failure = ProfileFailed(
        at=now,
        job_id=order.job_id,
        placement_id=order.placement_id,
        gpu_type=order.nodes[0].gpu_type,
        node_id=order.node_id,
        reason=report.reason,
        final=report.lasting,
    )
    return [Publish(failure), Publish(_stopped(worker, now, Outcome.COMPLETED, 0.0))]


def _started(worker: Worker, now: float) -> WorkerStarted:
    return WorkerStarted(
        at=now,
        node_id=worker.order.node_id,
        placement_id=worker.order.placement_id,
        job_id=worker.order.job_id,
        gpu_indices=worker.gpu_indices,
    )


def _checkpointed(order: StartOrdered, samples_done: float, now: float) -> WorkerCheckpointed:
    return WorkerCheckpointed(
        at=now,
        node_id=order.node_id,
        placement_id=order.placement_id,
        job_id=order.job_id,
        samples_done=samples_done,
    )


def _stopped(
    worker: Worker, now: float, outcome: Outcome, samples_done: float, reason: str = ""
) -> WorkerStopped:
    return WorkerStopped(
        at=now,
        node_id=worker.order.node_id,
        placement_id=worker.order.placement_id,
        job_id=worker.order.job_id,
        outcome=outcome,
        samples_done=samples_done,
        leads=worker.leads,
        reason=reason,
    )


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
    )


def _samples(order: StartOrdered, report: Observed, now: float) -> list[ThroughputObserved]:
    """One per node of the gang, the leader sends them all; none of gangs that show no GPU's own pace."""
    if not gangs.observed(order.gang):
        return []
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
            throughput=_pace(order, report, node),
            data_s=report.stretch.data_s.get(node.node_id, ()),
            wait_s=report.stretch.wait_s.get(node.node_id, ()),
        )
        for node in order.nodes
    ]


def _pace(order: StartOrdered, report: Observed, node: Node) -> float:
    """samples/s of one GPU of the node; without its waiting where the gang's GPU types are unlike."""
    waits_s = report.stretch.wait_s.get(node.node_id, ())
    unlike = len({each.gpu_type for each in order.nodes}) > 1
    wait_s = sum(waits_s) / len(waits_s) if unlike and waits_s else 0.0
    return gangs.pace(order.gang, report.stretch.throughput, order.spec.workload.batch_size, wait_s)
