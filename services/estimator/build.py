"""Wires the estimator."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Protocol, TypeVar

from schemas.questions import ESTIMATOR, FitLoading, FittedLoading
from schemas.samples import ThroughputObserved
from schemas.settings import Settings
from schemas.subjects import facts_of
from services.estimator.core import Estimator
from services.estimator.desk import Desk
from services.estimator.lookup import Enough
from services.estimator.measuring import measured
from services.estimator.memory_store import MemoryStore
from services.estimator.refinement import data_of
from services.estimator.store import Store
from services.estimator.tasks import Answer, Answered, Learn, Log, Look, Measure, Record, Refine
from shared.runtime.bus import Bus
from shared.runtime.service import Ports, Service, Worker

FLUSH_REAL_S = 2.0
FLUSH_SIMULATED_S = 60.0
"""in simulation nothing is lost by waiting, and every write costs"""
FIT_TIMEOUT_REAL_S = 30.0
KEPT_NOWHERE = ":memory:"
"""DuckDB's name for a store without a file"""

A = TypeVar("A")


class Aside(Protocol):
    """Does something where the store is."""

    async def __call__(self, do: Callable[..., A], *arguments: object) -> A: ...


def build(settings: Settings, ports: Ports) -> Service:
    """Raises StoreUnavailable when the store cannot be opened."""
    store = _store(settings, simulated=ports.simulated)
    desk = Desk(store, Enough(settings.evidence_observations, settings.evidence_s))
    # One thread: DuckDB wants one, and tasks are done in the order in which they were given.
    thread = None if ports.simulated else ThreadPoolExecutor(1, "store")

    async def close() -> None:
        if thread is not None:
            thread.shutdown()
        store.close()

    return Service(
        name="estimator",
        core=Estimator(
            flush_s=FLUSH_SIMULATED_S if ports.simulated else ports.clock.cluster_s(FLUSH_REAL_S),
            calibrates=settings.calibrate,
        ),
        facts=facts_of("job", "node", "plan", "worker"),
        samples=(ThroughputObserved,),
        answers=ESTIMATOR,
        workers=_workers(desk, ports.bus, partial(_aside, thread)),
        close=close,
    )


def _store(settings: Settings, *, simulated: bool) -> Store:
    """In simulation, where nothing shall be kept, without the writing: a tenth of a run's time."""
    if simulated and settings.store == KEPT_NOWHERE:
        return MemoryStore(settings.evidence_half_life_s)
    from services.estimator.duckdb_store import DuckDbStore  # noqa: PLC0415 - not before it is needed

    return DuckDbStore(settings.store, settings.evidence_half_life_s)


def _workers(desk: Desk, bus: Bus, aside: Aside) -> dict[type, Worker]:
    async def refine(task: Refine) -> None:
        observations = await aside(desk.running, task)
        if observations:
            reply = await bus.ask(FitLoading(data_s=data_of(observations)), FIT_TIMEOUT_REAL_S)
            if isinstance(reply, FittedLoading):
                await aside(desk.refine, task, reply.data, observations)

    async def measure(task: Measure) -> Answered:
        timings, left_out = await measured(bus, task.nodes)
        return await aside(desk.calibrate, task, timings, left_out)

    on_store: dict[type, Callable[[Any], Any]] = {
        Record: desk.record,
        Answer: desk.answer,
        Learn: desk.learn,
        Log: desk.log,
        Look: desk.look,
    }
    workers: dict[type, Worker] = {kind: partial(aside, do) for kind, do in on_store.items()}
    return workers | {Refine: refine, Measure: measure}


async def _aside(thread: ThreadPoolExecutor | None, do: Callable[..., A], *arguments: object) -> A:
    """In the store's thread; inline where there is none."""
    if thread is None:
        return do(*arguments)
    return await asyncio.get_running_loop().run_in_executor(thread, do, *arguments)
