"""Wires the placer."""

from schemas.events import (
    GangFormed,
    JobPreempted,
    JobStarted,
    PlacementRefused,
    StartOrdered,
    StopOrdered,
    TurnsOrdered,
)
from schemas.settings import Settings
from schemas.subjects import subjects_of
from services.placer.core import ORDERS_NOTHING, Placer
from services.placer.folds import FOLDS
from shared.runtime.listening import listening
from shared.runtime.service import Ports, Service


def build(settings: Settings, ports: Ports) -> Service:
    facts = subjects_of(FOLDS)
    return Service(
        name="placer",
        core=Placer(
            start_timeout_s=ports.clock.cluster_s(settings.start_timeout_real_s),
            profile_iterations=settings.profile_iterations,
            speed=settings.speed,
        ),
        facts=facts,
        quiet_facts=ORDERS_NOTHING,
        own_facts=(
            StartOrdered,
            GangFormed,
            StopOrdered,
            TurnsOrdered,
            JobStarted,
            JobPreempted,
            PlacementRefused,
        ),
        tasks=(listening(settings, ports, facts),),
    )
