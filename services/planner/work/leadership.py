"""At most one planner leads: the one that holds a lease, whose fencing token its plans carry.

A planner that cannot renew in time stops leading before the lease runs out. Times here are real seconds.

Beside the lease stands the policy that the leader was configured with: a planner that begins to
lead with another one in its settings announces it.
"""

import secrets

import structlog

from schemas.settings import Settings
from services.planner.core.tasks import Leadership
from shared.runtime.bus.contract import State
from shared.runtime.clock import Clock
from shared.runtime.lease import Lease
from shared.runtime.service import Inbox

LEASE = "lease/planner"
CONFIGURED = "planner/policy"
ATTEMPTS = 3
"""renewals that may fail within one lease"""

log = structlog.get_logger()


class Candidate:
    """One planner's attempts to lead, as a task of the service."""

    def __init__(self, settings: Settings, store: State, clock: Clock) -> None:
        self._policy = settings.policy
        self._store = store
        self._clock = clock
        self._lease = Lease(store, LEASE, secrets.token_hex(8).encode(), ttl_s=settings.lease_real_s)
        self._step_s = settings.lease_real_s / (ATTEMPTS + 1)

    async def keep(self, inbox: Inbox) -> None:
        """Win the lease, hold it for as long as it lasts, and begin again."""
        while True:
            token = await self._win()
            if token is not None:
                inbox.put(Leadership(token=token, announce=await self._differs()))
                log.info("leads", token=token)
                await self._hold()
                inbox.put(Leadership(token=None))
                log.warning("leads no more", token=token)
            await self._pause()

    async def release(self) -> None:
        """Let the next planner in at once."""
        try:
            async with self._clock.within(self._step_s):
                await self._lease.release()
        except OSError:
            log.info("the lease runs out by itself")

    async def _win(self) -> int | None:
        """The token, or None while another planner leads or the bus is away."""
        try:
            async with self._clock.within(self._step_s):
                return await self._lease.win()
        except OSError:
            return None

    async def _hold(self) -> None:
        """Returns when the lease is lost, or may be by the next attempt."""
        failed = 0
        while failed < ATTEMPTS - 1:
            await self._pause()
            try:
                async with self._clock.within(self._step_s / 2):
                    if not await self._lease.renew():
                        return
                failed = 0
            except OSError:
                failed += 1
        self._lease.abandon()

    async def _differs(self) -> bool:
        """Whether the leader before was configured with another policy; ours is written down."""
        policy = self._policy.encode()
        try:
            async with self._clock.within(self._step_s):
                before = await self._store.get(CONFIGURED)
                await self._store.put(CONFIGURED, policy)
        except OSError:
            return False
        return before is not None and before[0] != policy

    async def _pause(self) -> None:
        await self._clock.sleep(self._clock.cluster_s(self._step_s))
