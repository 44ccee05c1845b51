"""Wires the profiler."""

from functools import partial

from schemas.events import (
    JobProfiled,
    JobRejected,
    JobTypeProfiled,
    ProfileFailed,
    ProfilingAdded,
    ProfilingPlanned,
    StartOrdered,
)
from schemas.questions import PROFILER
from schemas.settings import Settings
from schemas.subjects import subjects_of
from services.profiler.core import Profiler
from services.profiler.folds import FOLDS
from services.profiler.tasks import Fit, FitTimes
from services.profiler.work.workers import fit, fit_times
from shared.domain.iteration import law_of
from shared.runtime.listening import listening
from shared.runtime.service import Ports, Service


def build(settings: Settings, ports: Ports) -> Service:
    law = law_of(settings.equations_as_printed)
    lane = ports.offload.lane("fits")
    facts = subjects_of(FOLDS)

    async def close() -> None:
        lane.close()

    return Service(
        name="profiler",
        core=Profiler(
            round_s=settings.round_s,
            timeout_s=settings.profile_timeout_s,
            attempts=settings.profile_attempts,
            bucket_bytes=settings.gradient_bucket_bytes if law.buckets else 0.0,
            law=law,
            at_once=settings.profile_at_once,
            every_job=settings.profile_known,
            settle_s=settings.fragment_settle_s / 2,
        ),
        facts=facts,
        quiet_facts=frozenset({StartOrdered}),
        own_facts=(
            ProfilingPlanned,
            ProfilingAdded,
            ProfileFailed,
            JobProfiled,
            JobTypeProfiled,
            JobRejected,
        ),
        answers=PROFILER,
        workers={Fit: partial(lane.do, fit), FitTimes: partial(lane.do, fit_times)},
        tasks=(listening(settings, ports, facts),),
        close=close,
    )
