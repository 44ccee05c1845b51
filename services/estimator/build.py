"""Wires the estimator."""

from collections.abc import Callable
from functools import partial
from typing import Any

from schemas.events import JobQueued, JobTypeEstimated
from schemas.questions import ESTIMATOR, FitLoading, FittedLoading
from schemas.samples import ThroughputObserved
from schemas.settings import Settings
from schemas.subjects import subjects_of
from services.estimator.core import BUFFER, Estimator
from services.estimator.folds import FOLDS, QUIET
from services.estimator.lookup.layers import EvidenceThreshold
from services.estimator.store.contract import Store
from services.estimator.store.memory_store import MemoryStore
from services.estimator.tasks import (
    Answered,
    Correct,
    Estimate,
    Learn,
    MeasurePaths,
    ReadStore,
    Refine,
    WriteExecutions,
    WriteObservations,
)
from services.estimator.theory.refinement import data_of
from services.estimator.work.measuring import measured
from services.estimator.work.workers import LOOK_EVERY_S, StoreLane, StoreWorkers
from shared.domain.iteration import law_of
from shared.runtime.service import Inbox, Ports, Service, Worker

FIT_TIMEOUT_REAL_S = 30.0
NO_FILE = ":memory:"
"""the setting `store` for a store in memory, without a file"""


def build(settings: Settings, ports: Ports) -> Service:
    """Raises StoreUnavailable when the store cannot be opened."""
    law = law_of(settings.equations_as_printed)
    store = _store(settings, counts=law.counts)
    threshold = EvidenceThreshold(settings.evidence_observations, settings.evidence_s)
    workers = StoreWorkers(store, threshold, law)
    # One lane: DuckDB wants one thread, and tasks are done in the order in which they were given.
    retried = (workers.record, workers.correct, workers.log, workers.learn)
    lane = StoreLane(ports.offload.lane("store"), settings.store, retried, settings.store_flush_real_s)

    async def look(_: Inbox) -> None:
        """Look where the file is, also while no job runs: it may have been moved, or be back."""
        while True:
            await ports.clock.sleep(ports.clock.cluster_s(LOOK_EVERY_S))
            await lane.look()

    async def close() -> None:
        lane.close()
        store.close()

    return Service(
        name="estimator",
        core=Estimator(
            flush_s=ports.clock.cluster_s(settings.store_flush_real_s),
            calibrates=settings.calibrate,
        ),
        facts=subjects_of(FOLDS),
        quiet_facts=QUIET,
        own_facts=(JobQueued, JobTypeEstimated),
        samples=(ThroughputObserved,),
        samples_kept=BUFFER,
        answers=ESTIMATOR,
        workers=_workers(workers, ports, lane),
        long_tasks=(MeasurePaths, ReadStore, Refine),
        tasks=() if settings.store == NO_FILE else (look,),
        troubles=lane.troubles,
        close=close,
    )


def _store(settings: Settings, *, counts: bool) -> Store:
    if settings.store == NO_FILE:
        return MemoryStore(settings.evidence_half_life_s, counts=counts)
    from services.estimator.store.duckdb_store import DuckDbStore  # noqa: PLC0415 - not before it is needed

    return DuckDbStore(settings.store, settings.evidence_half_life_s, counts=counts)


def _workers(store: StoreWorkers, ports: Ports, lane: StoreLane) -> dict[type, Worker]:
    async def refine(task: Refine) -> None:
        seen = await lane.do(store.running, task)
        if seen.latest:
            reply = await ports.bus.ask(FitLoading(data_s=data_of(seen.latest)), FIT_TIMEOUT_REAL_S)
            if isinstance(reply, FittedLoading):
                await lane.do(store.refine, task, reply.data, seen)

    async def measure(task: MeasurePaths) -> Answered:
        timings, left_out = await measured(ports.bus, ports.tasks, task.nodes)
        return await lane.do(store.calibrate, task, timings, left_out)

    on_store: dict[type, Callable[[Any], Any]] = {
        WriteObservations: store.record,
        Correct: store.correct,
        Estimate: store.answer,
        Learn: store.learn,
        WriteExecutions: store.log,
        ReadStore: store.look,
    }
    workers: dict[type, Worker] = {kind: partial(lane.do, do) for kind, do in on_store.items()}
    return workers | {Refine: refine, MeasurePaths: measure}
