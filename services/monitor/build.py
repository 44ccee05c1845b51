"""Wires the monitor: its core, what it reads, and an eye on the bus itself."""

import asyncio

from schemas.questions import MONITOR
from schemas.samples import Heartbeat
from schemas.settings import Settings
from schemas.subjects import FACT_SUBJECTS
from services.monitor.core import Deaf, Monitor
from services.monitor.gauges import gauges
from shared.runtime.bus import Bus
from shared.runtime.service import Inbox, Ports, Service

LOOKS_PER_LEASE = 4


def build(settings: Settings, ports: Ports) -> Service:
    lease_s = ports.clock.cluster_s(settings.node_lease_real_s)
    core = Monitor(lease_s=lease_s, raqlr_window_s=settings.raqlr_window_s, speed=ports.clock.cluster_s(1.0))

    async def watch_bus(inbox: Inbox) -> None:
        """While the bus is away no heartbeat can come, and no node shall be lost for that."""
        while True:
            await ports.clock.sleep(lease_s / LOOKS_PER_LEASE)
            if not await _answers(ports.bus, settings.node_lease_real_s / LOOKS_PER_LEASE):
                inbox.tell(Deaf())

    return Service(
        name="monitor",
        core=core,
        facts=FACT_SUBJECTS,
        samples=(Heartbeat,),
        answers=MONITOR,
        tasks=(watch_bus,),
        gauges=lambda: gauges(core.sight(ports.clock.now())),
    )


async def _answers(bus: Bus, limit_real_s: float) -> bool:
    """Whether the bus is there. It is asked, since a server that hangs looks connected for a while."""
    if not bus.connected():
        return False
    try:
        async with asyncio.timeout(limit_real_s):
            await bus.last_seq()
    except OSError:  # TimeoutError and Unavailable among them
        return False
    return True
