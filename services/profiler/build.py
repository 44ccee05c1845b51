"""Wires the profiler."""

import asyncio
import importlib

from schemas.questions import PROFILER
from schemas.settings import Settings
from schemas.subjects import facts_of
from services.profiler.core import Fit, Fitted, FittedTimes, FitTimes, Profiler
from services.profiler.modules import fitted
from shared.runtime.service import Inbox, Ports, Service


def build(settings: Settings, ports: Ports) -> Service:
    return Service(
        name="profiler",
        core=Profiler(
            round_s=settings.round_s,
            timeout_s=settings.profile_timeout_s,
            attempts=settings.profile_attempts,
            bucket_bytes=settings.gradient_bucket_bytes,
        ),
        facts=facts_of("job", "round", "profile", "placement", "node", "worker"),
        answers=PROFILER,
        workers=dict.fromkeys((Fit, FitTimes), _fit_inline if ports.simulated else _fit_aside),
        tasks=() if ports.simulated else (_warm_up,),
    )


async def _warm_up(_: Inbox) -> None:
    """Have scikit-learn there before the first measurement: it takes seconds to import."""
    await asyncio.to_thread(importlib.import_module, "services.profiler.mixture")


def fit(task: Fit) -> Fitted:
    from services.profiler.mixture import data_modes  # noqa: PLC0415 - not before the service is ready

    modules = fitted(task.measurement, data_modes(task.measurement.data_s))
    return Fitted(task.fingerprint, task.gpu_type, modules)


def fit_times(task: FitTimes) -> FittedTimes:
    from services.profiler.mixture import data_modes  # noqa: PLC0415 - as above

    return FittedTimes(task.ticket, data_modes(task.data_s))


def _fit(task: Fit | FitTimes) -> Fitted | FittedTimes:
    return fit(task) if isinstance(task, Fit) else fit_times(task)


async def _fit_inline(task: Fit | FitTimes) -> Fitted | FittedTimes:
    return _fit(task)


async def _fit_aside(task: Fit | FitTimes) -> Fitted | FittedTimes:
    return await asyncio.to_thread(_fit, task)
