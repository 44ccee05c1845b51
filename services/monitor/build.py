"""Wires the monitor: its core, its subscriptions, and the archiver."""

from typing import TYPE_CHECKING

from schemas.events import JobCompleted, JobFailed, NodeLost, NodeReturned
from schemas.questions import ARCHIVE, MONITOR
from schemas.samples import Heartbeat
from schemas.settings import Settings
from schemas.subjects import subjects_of
from services.monitor.core import Monitor
from services.monitor.folds import FOLDS, QUIET
from services.monitor.metrics import metrics
from shared.runtime.listening import listening
from shared.runtime.service import Ports, Service

if TYPE_CHECKING:
    from services.monitor.archive.archiver import Archiver


def build(settings: Settings, ports: Ports) -> Service:
    facts = subjects_of(FOLDS)
    core = Monitor(
        lease_s=ports.clock.cluster_s(settings.node_lease_real_s),
        interruptions_max=settings.interruptions_max,
        raqlr_window_s=settings.raqlr_window_s,
        speed=ports.clock.cluster_s(1.0),
    )

    watch = listening(settings, ports, facts)
    archiver = _archiver(settings, ports)
    return Service(
        name="monitor",
        core=core,
        facts=facts,
        quiet_facts=QUIET,
        own_facts=(NodeLost, NodeReturned, JobCompleted, JobFailed),
        samples=(Heartbeat,),
        answers=MONITOR,
        progress_messages=(Heartbeat,),
        tasks=(watch, archiver.keep) if archiver else (watch,),
        metrics=lambda: [
            *metrics(core.cluster(ports.clock.now())),
            *(archiver.metrics() if archiver else ()),
        ],
        standby_answers={ARCHIVE: archiver.answer} if archiver else {},
        troubles=lambda: [*core.troubles(), *(archiver.troubles() if archiver else ())],
        close=archiver.close if archiver else None,
    )


def _archiver(settings: Settings, ports: Ports) -> "Archiver | None":
    """None: this bus keeps no streams, as in a simulation."""
    if ports.streams is None:
        return None
    from services.monitor.archive.archiver import Archiver  # noqa: PLC0415 - brings DuckDB

    return Archiver(settings, ports, ports.streams)
