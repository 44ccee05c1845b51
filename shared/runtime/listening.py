"""Tells a core while facts do not reach it as they come, so that it takes nothing missing for a fault."""

from collections.abc import Sequence

from schemas.settings import Settings
from shared.domain.core import Behind
from shared.runtime.bus.contract import Unavailable
from shared.runtime.service import Inbox, Ports, Task

CHECKS_PER_LEASE = 4


def listening(settings: Settings, ports: Ports, facts: Sequence[str]) -> Task:
    """A task that puts `Behind` before the core of a service that reads these facts.

    That is while the bus does not answer, and afterwards, as after the service's start, until the core has
    been handed the facts that were stored by then.
    """
    every_real_s = settings.node_lease_real_s / CHECKS_PER_LEASE
    every_s = ports.clock.cluster_s(every_real_s)

    async def tell(inbox: Inbox) -> None:
        backlog: int | None = None  # newest fact that was stored as the bus began to answer
        while True:
            await ports.clock.sleep(every_s)
            try:
                async with ports.clock.within(every_real_s):
                    await _answer(ports)
                    backlog = await ports.bus.newest(facts) if backlog is None else backlog
            except OSError:  # TimeoutError and Unavailable among them
                backlog = None
            if backlog is None or inbox.seq() < backlog:
                inbox.put(Behind())

    return tell


async def _answer(ports: Ports) -> None:
    """Return once the bus answers: one whose server hangs counts as connected for a while."""
    if not ports.bus.connected():
        raise Unavailable("the bus is away")
    await ports.bus.last_seq()
