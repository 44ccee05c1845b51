"""Wires the monitor: its core, its subscriptions, the archiver, and a check whether the bus answers."""

from typing import TYPE_CHECKING

from schemas.events import JobCompleted, JobFailed, NodeLost, NodeReturned
from schemas.questions import ARCHIVE, MONITOR
from schemas.samples import Heartbeat
from schemas.settings import Settings
from schemas.subjects import subjects_of
from services.monitor.core import BusAway, Monitor
from services.monitor.folds import FOLDS, QUIET
from services.monitor.metrics import metrics
from shared.runtime.service import Inbox, Ports, Service

if TYPE_CHECKING:
    from services.monitor.archive.archiver import Archiver

CHECKS_PER_LEASE = 4


def build(settings: Settings, ports: Ports) -> Service:
    lease_s = ports.clock.cluster_s(settings.node_lease_real_s)
    core = Monitor(
        lease_s=lease_s,
        interruptions_max=settings.interruptions_max,
        raqlr_window_s=settings.raqlr_window_s,
        speed=ports.clock.cluster_s(1.0),
    )

    async def watch_bus(inbox: Inbox) -> None:
        """Tell the core while the bus does not answer: no heartbeat arrives then, so no node is lost."""
        while True:
            await ports.clock.sleep(lease_s / CHECKS_PER_LEASE)
            if not await _bus_answers(ports, settings.node_lease_real_s / CHECKS_PER_LEASE):
                inbox.put(BusAway())

    archiver = _archiver(settings, ports)
    return Service(
        name="monitor",
        core=core,
        facts=subjects_of(FOLDS),
        quiet_facts=QUIET,
        own_facts=(NodeLost, NodeReturned, JobCompleted, JobFailed),
        samples=(Heartbeat,),
        answers=MONITOR,
        progress_messages=(Heartbeat,),
        tasks=(watch_bus, archiver.keep) if archiver else (watch_bus,),
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


async def _bus_answers(ports: Ports, limit_real_s: float) -> bool:
    """Whether the bus answers within the limit.

    A connection to a server that hangs counts as connected for a while.
    """
    if not ports.bus.connected():
        return False
    try:
        async with ports.clock.within(limit_real_s):
            await ports.bus.last_seq()
    except OSError:  # TimeoutError and Unavailable among them
        return False
    return True
