"""The way from the HTTP API to the core, and who tells the core when it has caught up."""

import asyncio
import contextlib
from typing import Protocol, TypeVar

from schemas.base import Message
from schemas.events import JobSubmitted
from schemas.settings import Settings
from schemas.views import Problem
from services.admission import problems
from services.admission.core import Admission, CaughtUp
from services.admission.facts import records
from services.admission.problems import Refusal
from services.admission.questions import OwnQuestion
from services.admission.state import job_state
from shared.runtime.bus import Facts, Questions, Unavailable
from shared.runtime.service import Inbox

CATCH_UP_POLL_REAL_S = 0.02
BUS_RETRY_REAL_S = 1.0

M = TypeVar("M", bound=Message)


class Outside(Facts, Questions, Protocol):
    """What the API needs of the bus."""


class Door:
    """Questions go through it."""

    def __init__(self, bus: Outside, settings: Settings, core: Admission) -> None:
        self._bus = bus
        self._settings = settings
        self._core = core
        self._inbox: Inbox | None = None

    def is_open(self) -> bool:
        return self._inbox is not None

    async def ask(self, question: OwnQuestion, kind: type[M], late: str = "try again") -> M:
        """The core's reply, the facts behind it stored. Raises Refusal."""
        inbox = self._inbox
        if inbox is None or not inbox.replayed():
            raise Refusal(problems.unavailable("admission is starting"))
        try:
            async with asyncio.timeout(self._settings.ask_timeout_real_s):
                reply = await inbox.ask(question)
        except TimeoutError:
            raise Refusal(problems.unavailable(f"no answer in time; {late}")) from None
        if isinstance(reply, Problem):
            raise Refusal(reply)
        assert isinstance(reply, kind)
        return reply

    async def attach(self, inbox: Inbox) -> None:
        """A task of the service: open until cancelled."""
        self._inbox = inbox
        try:
            await self._catch_up()
            inbox.tell(CaughtUp())
            await asyncio.get_running_loop().create_future()
        finally:
            self._inbox = None

    async def _catch_up(self) -> None:
        """Wait until the core has folded every submission that was stored before this start."""
        stored = records(
            self._bus,
            self._core.state.seq,
            await self._last_seq(),
            idle_real_s=self._settings.ask_timeout_real_s,
            wanted=lambda: False,
        )
        async with contextlib.aclosing(stored):
            told = [each.event.job_id async for each in stored if isinstance(each.event, JobSubmitted)]
        # The core, rightly, has no event to wait for.
        while not all(job_state(self._core.state, job_id) for job_id in told):  # noqa: ASYNC110
            await asyncio.sleep(CATCH_UP_POLL_REAL_S)

    async def _last_seq(self) -> int:
        while True:
            try:
                return await self._bus.last_seq()
            except Unavailable:
                await asyncio.sleep(BUS_RETRY_REAL_S)
