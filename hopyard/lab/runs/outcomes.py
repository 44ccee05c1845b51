"""From a simulation's event log to what reports need of it: rows and curves instead of facts. Pure."""

from collections.abc import Iterator, Mapping, Sequence

from hopyard.lab.runs.gpu_time import gpu_time
from hopyard.lab.runs.trials import Hold, LoadingRow, PlanRow, PointRow, Simulated
from loadgen.standstill import end_before_standstill
from schemas.base import Event
from schemas.events import JobEvent, JobProfiled, ProfileMeasured, WorkerStarted, WorkerStopped
from schemas.ids import JobId, NodeId, PlacementId
from schemas.results import RunResult
from shared.domain.accuracy import executions_of
from shared.domain.audit import Violation
from shared.domain.ledger import Ledger, ledger_of
from shared.domain.ledger.records import PlanRecord
from shared.domain.metrics.curves import busy_gpus_curve, throughput_curve

CURVE_STEP_S = 10.0
"""seconds between samples of a curve, as in the paper's figure 11"""


def simulated(result: RunResult, events: Sequence[Event], violations: Sequence[Violation]) -> Simulated:
    """`violations`: what the audit of `events` found."""
    ledger = ledger_of(events)
    last_s = max((one.at for one in events if isinstance(one, JobEvent)), default=0.0)
    end_before_standstill(ledger, last_s, result.round_s)
    return Simulated(
        result=result,
        violations=tuple(f"{one.rule}: {one.detail}" for one in violations),
        gpu_types=tuple(node.node.gpu_type for node in ledger.nodes.values() for _ in range(node.node.gpus)),
        plans=tuple(_plan(record) for record in ledger.plans),
        executions=tuple(executions_of(events)),
        holds=tuple(_holds(ledger, events)),
        curve=tuple(_curve(ledger)),
        loading=tuple(_loading(ledger, events)),
        gpu_time=gpu_time(ledger, events),
    )


def _plan(record: PlanRecord) -> PlanRow:
    view = record.view
    return PlanRow(
        at=view.at,
        round=view.round,
        kind=view.kind.value,
        fragments=record.fragments,
        idle_gpus=view.idle_gpus,
        placements=view.placements,
        left_out=view.left_out,
        configurations=view.configurations,
        stage=view.stage.value,
        gap=view.gap,
        solve_s=view.solve_s,
        decision_s=view.decision_s,
        horizon_s=view.horizon_s,
    )


def _holds(ledger: Ledger, events: Sequence[Event]) -> Iterator[Hold]:
    """Which placement had which GPU, and from when to when; profiling included."""
    first = _first_gpus(ledger)
    place = {job_id: index for index, job_id in enumerate(ledger.jobs)}
    started: dict[tuple[PlacementId, NodeId], WorkerStarted] = {}
    for event in events:
        if isinstance(event, WorkerStarted):
            started[event.placement_id, event.node_id] = event
        elif isinstance(event, WorkerStopped):
            begun = started.pop((event.placement_id, event.node_id), None)
            if begun is not None:
                yield from _held(begun, event.at, first, place)
    for begun in started.values():
        yield from _held(begun, ledger.at, first, place)


def _held(
    begun: WorkerStarted, until: float, first: Mapping[NodeId, int], place: Mapping[JobId, int]
) -> Iterator[Hold]:
    for index in begun.gpu_indices:
        gpu = first[begun.node_id] + index
        yield Hold(gpu=gpu, job=place[begun.job_id], started_at=begun.at, ended_at=until)


def _first_gpus(ledger: Ledger) -> dict[NodeId, int]:
    first, count = {}, 0
    for node_id, record in ledger.nodes.items():
        first[node_id] = count
        count += record.node.gpus
    return first


def _curve(ledger: Ledger) -> Iterator[PointRow]:
    busy = busy_gpus_curve(ledger, CURVE_STEP_S)
    for (at, throughput), (_, gpus) in zip(throughput_curve(ledger, CURVE_STEP_S), busy, strict=True):
        yield PointRow(at=at, throughput=throughput, busy_gpus=gpus)


def _loading(ledger: Ledger, events: Sequence[Event]) -> Iterator[LoadingRow]:
    """Loading rows of workloads with two components of data times."""
    unsteady = {
        (event.job_id, gpu_type)
        for event in events
        if isinstance(event, JobProfiled) and not event.known
        for gpu_type, modules in event.modules.items()
        if len(modules.data) > 1
    }
    for event in events:
        if isinstance(event, ProfileMeasured) and (event.job_id, event.gpu_type) in unsteady:
            workload = ledger.jobs[event.job_id].spec.workload
            yield LoadingRow(
                model=workload.model,
                dataset=workload.dataset,
                gpu_type=event.gpu_type,
                data_s=event.data_s,
            )
