"""Election of a leader among a service's instances: it holds the lease, and the stream takes only its facts.

    stands ──stand──→ leads ──renewed in time──→ leads ──another leads──→ Deposed
                        └──not renewed in time──→ in doubt ──renewed──→ leads

The lease says when another may try, the fence who is heard: a leader begins with a fact (`ServiceLed`), and
the stream refuses what an earlier one publishes behind it. So a leader that slept, was cut off, or has a
wrong clock harms nothing; while it is in doubt it does nothing either. Where the lease cannot be renewed, the
stream says whether it leads still, for as long as until the next attempt. Times here are real seconds, by a
clock that cannot be set.
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
"""within one lease"""
AGAIN = 4
"""how many times sooner a failed renewal is tried again: until it succeeds the leader does nothing"""

log = structlog.get_logger()


class Deposed(Exception):
    """Another instance of the service leads: this life has to end, and what it has begun is void."""


class Stage(State, Protocol):
    """The part of the bus that an election needs."""

    async def led_last(self, service: str) -> int: ...

    async def lead(self, led: ServiceLed, after: int) -> None: ...

    async def lead_on(self, led: ServiceLed, distance: int) -> bool: ...

    async def still_leads(self) -> bool: ...


class Candidate:
    """One life of an instance of a service, as leader or as candidate."""

    def __init__(self, bus: Stage, clock: Clock, settings: Settings, service: str, *, first: bool) -> None:
        """`first`: of its process. It takes the lease over from the process before it, which is gone."""
        self.leads = False
        self.follows = False
        """another was found to lead"""
        self._bus = bus
        self._clock = clock
        self._service = service
        self._instance = settings.instance
        self._lease_s = settings.lease_real_s
        self.step_s = settings.lease_real_s / RENEWALS
        """between two attempts, to win or to renew"""
        own = f"{self._instance}/".encode()
        self._before = own if first else b""
        self._lease = Lease(
            bus, f"lease/{service}", own + secrets.token_hex(8).encode(), ttl_s=settings.lease_real_s
        )
        self._token = 0
        self._led: ServiceLed | None = None
        self._said_on_after = settings.snapshot_every
        self._gave_up = False
        self._sure_until = 0.0
        self._renewed = asyncio.Event()

    def fencing_token(self) -> int:
        """Only a leader has one."""
        assert self.leads, "asked before it leads"
        return self._token

    async def stand(self) -> bool:
        """Try to become the leader; true on success."""
        before, self._before = self._before, b""
        try:
            async with self._clock.within(self._lease_s):
                after, began = await self._bus.led_last(self._service), time.monotonic()
                token = await self._lease.win(before)
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
            self._before = before
            return False
        self._token, self._led, self.leads = token, led, True
        self._note(began, self._lease_s)
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
                    held = await self._lease.renew() or await self._took_up()
            except OSError as error:  # nobody else can win it either where the bus is away
                log.debug("lease not renewed", service=self._service, reason=str(error))
                pause_s = self.step_s / AGAIN
                await self._ask_the_stream()
                continue
            if self._gave_up:
                break
            if not held:
                self.leads = False
                raise Deposed(f"another {self._service} leads")
            self._note(began, self._lease_s)
        await asyncio.Future()

    async def say_on(self) -> None:
        """Publish at intervals that it leads, so that the stream may drop older such facts. Raises Fenced."""
        while self._led is not None:
            await asyncio.sleep(self._lease_s)
            number = self._led.repetition + 1
            again = msgspec.structs.replace(self._led, at=self._clock.now(), repetition=number)
            try:
                if self.leads and await self._bus.lead_on(again, self._said_on_after):
                    self._led = again
            except OSError as error:
                log.debug("not said that it leads", service=self._service, reason=str(error))

    async def sure(self) -> None:
        """Return once it certainly leads: a process that slept or was cut off has to find out first."""
        while time.monotonic() >= self._sure_until:
            self._renewed.clear()
            await self._renewed.wait()

    def give_up(self) -> None:
        """Stop acting, so that another instance can lead."""
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

    async def _took_up(self) -> bool:
        """A lease that ran out while the bus was away is ours still, where nobody has led since.

        While that is not known it is not ours, though we have won it: to renew it says nothing then.
        """
        if await self._lease.win() is None:
            return False
        try:
            return await self._bus.still_leads()
        except BaseException:
            self._lease.abandon()
            raise

    async def _ask_the_stream(self) -> None:
        """Facts and leases have leaders of their own among NATS servers, and one may be gone for longer."""
        began = time.monotonic()
        try:
            async with self._clock.within(self.step_s):
                leads = await self._bus.still_leads()
        except OSError:
            return
        if leads and not self._gave_up:
            self._note(began, self.step_s)

    def _note(self, began: float, for_s: float) -> None:
        self._sure_until = max(self._sure_until, began + for_s)
        self._renewed.set()
