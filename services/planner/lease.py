"""Exactly one planner leads: a lease in the key-value store, and the fencing token that comes with it.

The token is the revision at which the lease was won, so a later leader has a larger one. Whoever cannot
renew in time stops leading before the lease runs out. Times here are real seconds.

Beside the lease stands the policy that the leader was configured with: who comes to lead with another
one in its settings announces it.
"""

import asyncio
import secrets

import structlog

from schemas.settings import Settings
from services.planner.tasks import Leadership
from shared.runtime.bus import Bus, Conflict
from shared.runtime.clock import Clock
from shared.runtime.service import Inbox

LEASE = "lease/planner"
CONFIGURED = "planner/policy"
ATTEMPTS = 3
"""renewals that may fail within one lease"""

log = structlog.get_logger()


class Lease:
    def __init__(self, settings: Settings, bus: Bus, clock: Clock) -> None:
        self._settings = settings
        self._bus = bus
        self._clock = clock
        self._name = secrets.token_hex(8).encode()
        self._step_s = settings.lease_real_s / (ATTEMPTS + 1)
        self._revision: int | None = None

    async def keep(self, inbox: Inbox) -> None:
        """Win the lease, hold it for as long as it lasts, and begin again."""
        while True:
            token = await self._win()
            if token is not None:
                inbox.tell(Leadership(token=token, announce=await self._differs()))
                log.info("leads", token=token)
                await self._hold()
                inbox.tell(Leadership(token=None))
                log.warning("leads no more", token=token)
            await self._pause()

    async def release(self) -> None:
        """Let the next planner in at once."""
        if self._revision is not None:
            try:
                async with asyncio.timeout(self._step_s):
                    await self._bus.delete(LEASE)
            except (OSError, Conflict):
                log.info("the lease runs out by itself")

    async def _win(self) -> int | None:
        """The token, or None while another planner leads or the bus is away."""
        try:
            async with asyncio.timeout(self._step_s):
                found = await self._bus.get(LEASE)
                if found is not None and found[0] != self._name:
                    return None
                self._revision = await self._write(0 if found is None else found[1])
        except (OSError, Conflict):
            return None
        return self._revision

    async def _hold(self) -> None:
        """Returns when the lease is lost, or may be by the next attempt."""
        failed = 0
        while failed < ATTEMPTS - 1:
            await self._pause()
            try:
                async with asyncio.timeout(self._step_s / 2):
                    await self._renew()
                failed = 0
            except Conflict:
                break
            except OSError:
                failed += 1
        self._revision = None

    async def _renew(self) -> None:
        """Raises Conflict when somebody else has the lease, or nobody; OSError."""
        try:
            self._revision = await self._write(self._revision)
        except Conflict:
            found = await self._bus.get(LEASE)
            if found is None or found[0] != self._name:
                raise
            # A write of ours that seemed to fail was stored: the lease never was another's.
            self._revision = await self._write(found[1])

    async def _write(self, expected: int | None) -> int:
        ttl_s = self._settings.lease_real_s
        return await self._bus.put(LEASE, self._name, expected=expected, ttl_s=ttl_s)

    async def _differs(self) -> bool:
        """Whether the leader before was configured with another policy; ours is written down."""
        policy = self._settings.policy.encode()
        try:
            async with asyncio.timeout(self._step_s):
                before = await self._bus.get(CONFIGURED)
                await self._bus.put(CONFIGURED, policy)
        except OSError:
            return False
        return before is not None and before[0] != policy

    async def _pause(self) -> None:
        await self._clock.sleep(self._clock.cluster_s(self._step_s))
