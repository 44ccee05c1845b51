"""Which node an agent stands for, where nobody told it: the first one that no other agent has claimed.

A claim is a lease on the bus, with the agent's life as its value. While the bus is away nobody can take
it, so only somebody else's claim in its place ends the agent.
"""

from collections.abc import Sequence

import structlog

from schemas.cluster import Node
from shared.runtime.bus import Bus, Conflict, Unavailable
from shared.runtime.clock import Clock
from shared.runtime.service import Inbox

RENEWALS = 3
"""tries to renew a claim in its time"""

log = structlog.get_logger()


class ClaimLost(RuntimeError):
    """Another agent stands for the node: this one was away for longer than its claim lasts."""


class Claim:
    """`lease_s`: real seconds for which a claim lasts without renewal."""

    def __init__(self, bus: Bus, clock: Clock, node: Node, *, life: str, lease_s: float) -> None:
        self.node = node
        self.life = life
        self._bus = bus
        self._clock = clock
        self._lease_s = lease_s
        self._key = f"claim/{node.node_id}"
        self._revision = 0

    async def take(self) -> bool:
        """Write the claim at the revision it is known to have; false: another agent has it.

        Raises Unavailable.
        """
        for _ in range(2):
            try:
                self._revision = await self._bus.put(
                    self._key, self.life.encode(), expected=self._revision, ttl_s=self._lease_s
                )
            except Conflict:
                found = await self._bus.get(self._key)
                if found is not None and found[0] != self.life.encode():
                    return False
                # It ran out, or a write of ours that seemed to fail was stored: once more, from there.
                self._revision = 0 if found is None else found[1]
            else:
                return True
        return False

    async def keep(self, _: Inbox) -> None:
        """A task of the service: renew for ever, at once to begin with. Raises ClaimLost."""
        while True:
            try:
                if not await self.take():
                    raise ClaimLost(f"another agent stands for {self.node.node_id}")
            except Unavailable as error:
                log.warning("claim not renewed", node=self.node.node_id, reason=str(error))
            await pause(self._clock, self._lease_s)


async def claim(bus: Bus, clock: Clock, nodes: Sequence[Node], *, life: str, lease_s: float) -> Claim:
    """Claim the first node that is to be had; waits for one as a spare when all are taken."""
    waits = False
    while True:
        for node in nodes:
            attempt = Claim(bus, clock, node, life=life, lease_s=lease_s)
            try:
                if await attempt.take():
                    log.info("node claimed", node=node.node_id)
                    return attempt
            except Unavailable as error:
                log.warning("no claim", reason=str(error))
                break
        if not waits:
            log.info("every node has an agent, waiting for one to leave", nodes=len(nodes))
        waits = True
        await pause(clock, lease_s)


async def pause(clock: Clock, lease_s: float) -> None:
    """Sleep until a claim's next renewal, or until it is worth looking again."""
    await clock.sleep(clock.cluster_s(lease_s / RENEWALS))
