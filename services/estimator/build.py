"""Wires the estimator."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from schemas.questions import ESTIMATOR
from schemas.samples import ThroughputObserved
from schemas.settings import Settings
from schemas.subjects import facts_of
from services.estimator.core import Estimator
from services.estimator.desk import Desk
from services.estimator.duckdb_store import DuckDbStore
from services.estimator.lookup import Enough
from services.estimator.tasks import Answer, Learn, Record
from shared.runtime.service import Ports, Service, Worker

FLUSH_REAL_S = 2.0
FLUSH_SIMULATED_S = 60.0
"""in simulation nothing is lost by waiting, and every write costs"""

T = TypeVar("T")
A = TypeVar("A")


def build(settings: Settings, ports: Ports) -> Service:
    """Raises StoreUnavailable when the store cannot be opened."""
    store = DuckDbStore(settings.store, settings.evidence_half_life_s)
    desk = Desk(store, Enough(settings.evidence_observations, settings.evidence_s))
    # One thread: DuckDB wants one, and tasks are done in the order in which they were given.
    thread = None if ports.simulated else ThreadPoolExecutor(1, "store")

    async def close() -> None:
        if thread is not None:
            thread.shutdown()
        store.close()

    return Service(
        name="estimator",
        core=Estimator(flush_s=FLUSH_SIMULATED_S if ports.simulated else ports.clock.cluster_s(FLUSH_REAL_S)),
        facts=facts_of("job", "node"),
        samples=(ThroughputObserved,),
        answers=ESTIMATOR,
        workers={
            Record: _worker(desk.record, thread),
            Answer: _worker(desk.answer, thread),
            Learn: _worker(desk.learn, thread),
        },
        close=close,
    )


def _worker(do: Callable[[T], A], thread: ThreadPoolExecutor | None) -> Worker:
    async def inline(task: T) -> A:
        return do(task)

    async def aside(task: T) -> A:
        return await asyncio.get_running_loop().run_in_executor(thread, do, task)

    return inline if thread is None else aside
