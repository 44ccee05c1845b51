"""Wires the profiler."""

import asyncio
import importlib

from schemas.settings import Settings
from schemas.subjects import facts_of
from services.profiler.core import Fit, Fitted, Profiler
from services.profiler.modules import fitted
from shared.runtime.service import Inbox, Ports, Service


def build(settings: Settings, ports: Ports) -> Service:
    return Service(
        name="profiler",
        core=Profiler(
            round_s=settings.round_s,
            timeout_s=settings.profile_timeout_s,
            attempts=settings.profile_attempts,
        ),
        facts=facts_of("job", "round", "profile", "placement", "node", "worker"),
        workers={Fit: _fit_inline if ports.simulated else _fit_aside},
        tasks=() if ports.simulated else (_warm_up,),
    )


async def _warm_up(_: Inbox) -> None:
    """Have scikit-learn there before the first measurement: it takes seconds to import."""
    await asyncio.to_thread(importlib.import_module, "services.profiler.mixture")


def fit(task: Fit) -> Fitted:
    from services.profiler.mixture import data_modes  # noqa: PLC0415 - not before the service is ready

    modules = fitted(task.measurement, data_modes(task.measurement.data_s))
    return Fitted(task.fingerprint, task.gpu_type, modules)


async def _fit_inline(task: Fit) -> Fitted:
    return fit(task)


async def _fit_aside(task: Fit) -> Fitted:
    return await asyncio.to_thread(fit, task)
