"""Wires the profiler."""

import asyncio

from schemas.settings import Settings
from schemas.subjects import facts_of
from services.profiler.core import Fit, Fitted, Profiler
from services.profiler.mixture import data_modes
from services.profiler.modules import fitted
from shared.runtime.service import Ports, Service


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
    )


def fit(task: Fit) -> Fitted:
    modules = fitted(task.measurement, data_modes(task.measurement.data_s))
    return Fitted(task.fingerprint, task.gpu_type, modules)


async def _fit_inline(task: Fit) -> Fitted:
    return fit(task)


async def _fit_aside(task: Fit) -> Fitted:
    return await asyncio.to_thread(fit, task)
