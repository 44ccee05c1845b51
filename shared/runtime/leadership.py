"""Election of a leader among a service's instances: it holds the lease, and the stream takes only its facts.

    stands ──stand──→ leads ──lease renewed in time──→ leads ──another leads──→ Deposed
                        └──not renewed in time──→ in doubt ──renewed──→ leads

The lease decides when another instance may try to lead. The fence decides whose facts the stream takes: a
leader begins with a fact (`ServiceLed`), and NATS refuses what an earlier leader publishes behind it. So a
leader that slept, was cut off, or has a wrong clock harms nothing. A leader whose lease has run out is in
doubt, and does nothing until it has renewed the lease. Where it cannot, it asks the stream whether another
has led since; if none has, it may act until its next attempt. Times are real seconds, by a clock that cannot
be set.
"""

import asyncio
import secrets
import time
from typing import Protocol

import msgspec
import structlog

from schemas.events import ServiceLed
from schemas.settings import Settings
from shared.runtime.bus.contract import Conflict, Fenced, State
from shared.runtime.clock import Clock
from shared.runtime.lease import Lease

RENEWALS = 4
"""attempts to renew a lease within its time"""
RETRY_DIVISOR = 4
"""a failed renewal is tried again after a step divided by this, since a leader in doubt does nothing"""

log = structlog.get_logger()


class Deposed(Exception):
    """Another instance of the service leads: this life has to end, and what it has begun is void."""


class ElectionBus(State, Protocol):
    """The part of the bus that an election needs (`JetStreamFacts`)."""

    async def led_last(self, service: str) -> int: ...

    async def lead(self, led: ServiceLed, after: int) -> None: ...

    async def renew_lead(self, led: ServiceLed, distance: int) -> bool: ...

    async def still_leads(self) -> bool: ...


class Candidate:
    """One life of an instance of a service, as leader or as candidate."""

    def __init__(
        self, bus: ElectionBus, clock: Clock, settings: Settings, service: str, *, first: bool
    ) -> None:
        """`first`: this is the first life in its process.

        It takes over the lease that the instance's process before it held: that process is gone.
        """
        self.leads = False
        self.follows = False
        """whether it has found that another instance leads"""
        self._bus = bus
        self._clock = clock
        self._service = service
        self._instance = settings.instance
        self._lease_s = settings.lease_real_s
        self.step_s = settings.lease_real_s / RENEWALS
        """between two attempts to win the lease, or to renew it"""
        own = f"{self._instance}/".encode()
        self._gone = own if first else b""
        """prefix of the lease's holders that are known to be gone; empty: none is"""
        self._lease = Lease(
            bus, f"lease/{service}", own + secrets.token_hex(8).encode(), ttl_s=settings.lease_real_s
        )
        self._token = 0
        self._led: ServiceLed | None = None
        """the newest fact by which it leads"""
        self._renew_lead_after = settings.snapshot_every
        """how many facts old `ServiceLed` may become before it is published again"""
        self._gave_up = False
        self._sure_until = 0.0
        self._became_sure = asyncio.Event()

    def fencing_token(self) -> int:
        """The token of the lease; only for a leader."""
        assert self.leads, "asked before it leads"
        return self._token

    async def stand(self) -> bool:
        """Try once to become the leader: win the lease, then publish `ServiceLed`. True on success."""
        gone, self._gone = self._gone, b""
        try:
            async with self._clock.within(self._lease_s):
                after, began = await self._bus.led_last(self._service), time.monotonic()
                token = await self._lease.win(gone)
                if token is None:
                    self.follows = True
                    return False
                led = ServiceLed(
                    at=self._clock.now(),
                    service=self._service,
                    instance=self._instance,
                    token=token,
                    repetition=0,
                )
                await self._bus.lead(led, after)
        except (OSError, Fenced) as error:
            log.info("does not lead", service=self._service, reason=str(error))
            self._gone = gone
            return False
        self._token, self._led, self.leads = token, led, True
        self._count_as_sure(began, self._lease_s)
        log.info("leads", service=self._service, instance=self._instance, token=token)
        return True

    async def hold(self) -> None:
        """Renew the lease until another instance leads. Raises Deposed then."""
        pause_s = self.step_s
        while not self._gave_up:
            await asyncio.sleep(pause_s)
            began, pause_s = time.monotonic(), self.step_s
            try:
                async with self._clock.within(self.step_s):
                    held = await self._lease.renew() or await self._win_again()
            except OSError as error:  # where the bus is away no other instance can win the lease either
                log.debug("lease not renewed", service=self._service, reason=str(error))
                pause_s = self.step_s / RETRY_DIVISOR
                await self._ask_the_stream()
                continue
            if self._gave_up:
                break
            if not held:
                self.leads = False
                raise Deposed(f"another {self._service} leads")
            self._count_as_sure(began, self._lease_s)
        await asyncio.Future()

    async def renew_lead(self) -> None:
        """Publish `ServiceLed` again whenever the last one is many facts old, so that the stream may drop it.

        Runs until cancelled. Raises Fenced.
        """
        while self._led is not None:
            await asyncio.sleep(self._lease_s)
            number = self._led.repetition + 1
            again = msgspec.structs.replace(self._led, at=self._clock.now(), repetition=number)
            try:
                if self.leads and await self._bus.renew_lead(again, self._renew_lead_after):
                    self._led = again
            except OSError as error:
                log.debug("lead not renewed", service=self._service, reason=str(error))

    def in_doubt(self) -> bool:
        """Whether another instance may lead, as far as is known here."""
        return time.monotonic() >= self._sure_until

    async def until_sure(self) -> None:
        """Return once it certainly leads: a process that slept or was cut off has to find out first."""
        while self.in_doubt():
            self._became_sure.clear()
            await self._became_sure.wait()

    def give_up(self) -> None:
        """Stop acting, and let the lease run out, so that another instance can lead."""
        self.leads, self._gave_up = False, True
        self._sure_until = 0.0

    async def release(self) -> None:
        """Release the lease, so that the next leader need not wait for its end."""
        self.leads = False
        try:
            async with self._clock.within(self.step_s):
                await self._lease.release()
        except (OSError, Conflict):
            log.info("the lease runs out by itself", service=self._service)

    async def _win_again(self) -> bool:
        """Win the lease again, which ran out, perhaps while the bus was away; true if no other led since.

        If the stream cannot be asked now, the lease counts as lost, so that the next attempt asks again:
        otherwise it would be renewed even if another instance led in between. Raises Unavailable.
        """
        if await self._lease.win() is None:
            return False
        try:
            return await self._bus.still_leads()
        except BaseException:
            self._lease.abandon()
            raise

    async def _ask_the_stream(self) -> None:
        """Go on for another step, with the lease not renewed, if by the stream no other instance has led.

        Among the NATS servers, facts and leases have a leader each; the one of the facts may be back first.
        """
        began = time.monotonic()
        try:
            async with self._clock.within(self.step_s):
                leads = await self._bus.still_leads()
        except OSError:
            return
        if leads and not self._gave_up:
            self._count_as_sure(began, self.step_s)

    def _count_as_sure(self, began: float, for_s: float) -> None:
        self._sure_until = max(self._sure_until, began + for_s)
        self._became_sure.set()
