"""Claims a node for an agent whose settings name none: the first that no other agent has claimed.

A claim is a lease on the bus whose value names the holder. While the bus is away no agent can take a claim,
so an agent ends only when another agent has its claim.
"""

from collections.abc import Sequence

import structlog

from schemas.cluster import Node
from shared.runtime.bus.contract import Bus, Unavailable
from shared.runtime.clock import Clock
from shared.runtime.lease import Lease
from shared.runtime.service import Inbox

RENEWALS = 3
"""renewals of a claim within the time of its lease"""

log = structlog.get_logger()


class ClaimLost(RuntimeError):
    """Another agent has claimed the node, because this one did not renew its claim in time."""


class Claim:
    """`holder`: the agent's life; or a lasting name, so that its next life can claim the node at once.

    `lease_s`: real seconds for which a claim lasts without renewal.
    """

    def __init__(self, bus: Bus, clock: Clock, node: Node, *, holder: str, lease_s: float) -> None:
        self.node = node
        self._clock = clock
        self._lease_s = lease_s
        self._lease = Lease(bus, f"claim/{node.node_id}", holder.encode(), ttl_s=lease_s)

    async def take(self) -> bool:
        """Renew the claim, or win it if no agent has it; false: another agent has it.

        Raises Unavailable.
        """
        return await self._lease.renew() or await self._lease.win() is not None

    async def keep(self, _: Inbox) -> None:
        """A task of the service: renew the claim at once and then for ever. Raises ClaimLost."""
        failed = False
        while True:
            try:
                if not await self.take():
                    raise ClaimLost(f"another agent stands for {self.node.node_id}")
            except Unavailable as error:
                if not failed:
                    log.warning("claim not renewed", node=self.node.node_id, reason=str(error))
                failed = True
            else:
                if failed:
                    log.info("claim renewed again", node=self.node.node_id)
                failed = False
            await pause(self._clock, self._lease_s)


async def claim(bus: Bus, clock: Clock, nodes: Sequence[Node], *, holder: str, lease_s: float) -> Claim:
    """Claim the first node that no agent has claimed; wait while there is none."""
    waits = failed = False
    while True:
        for node in nodes:
            attempt = Claim(bus, clock, node, holder=holder, lease_s=lease_s)
            try:
                if await attempt.take():
                    log.info("node claimed", node=node.node_id)
                    return attempt
            except Unavailable as error:
                if not failed:
                    log.warning("no claim", reason=str(error))
                failed = True
                break
        if not waits:
            log.info("every node has an agent, waiting for one to leave", nodes=len(nodes))
        waits = True
        await pause(clock, lease_s)


async def pause(clock: Clock, lease_s: float) -> None:
    """Sleep for the time between two renewals of a claim."""
    await clock.sleep(clock.cluster_s(lease_s / RENEWALS))
