"""Passes requests of the HTTP API to the admission that leads: this process or another."""

import math
from collections.abc import AsyncGenerator
from typing import Protocol, TypeVar

import msgspec

from schemas.base import Message
from schemas.events import JobSubmitted
from schemas.ids import JobId
from schemas.questions import HandedBack
from schemas.settings import Settings
from schemas.subjects import FACT_SUBJECTS
from schemas.views import Problem
from services.admission import problems
from services.admission.core import Admission, CaughtUp
from services.admission.problems import Refusal
from services.admission.questions import OwnQuestion, handed_on
from services.admission.state import job_state
from shared.runtime.bus.contract import Facts, Questions, State, Unavailable
from shared.runtime.clock import Clock
from shared.runtime.service import Inbox

CATCH_UP_POLL_REAL_S = 0.02
BUS_RETRY_REAL_S = 1.0
LEADER_RETRY_REAL_S = 0.1
HAND_ON_REAL_S = 2.0
"""seconds that the leading admission has to answer; after that the then leading one is asked"""

M = TypeVar("M", bound=Message)


class ApiBus(Facts, Questions, State, Protocol):
    """The part of the bus that the API needs."""


class Forwarding:
    """Passes questions to the core, once the core has caught up with the stream."""

    def __init__(self, bus: ApiBus, clock: Clock, settings: Settings, core: Admission) -> None:
        self._bus = bus
        self._clock = clock
        self._settings = settings
        self._core = core
        self._inbox: Inbox | None = None

    def is_open(self) -> bool:
        """Whether the core of this process answers: its instance leads."""
        return self._inbox is not None

    async def ask(self, question: OwnQuestion, kind: type[M], advice: str = "try again") -> M:
        """The reply of the core that leads, here or elsewhere, once the facts behind it are stored.

        `advice`: what the client should do if no reply comes. Raises Refusal.
        """
        if why := self._bus.why_not_stored():
            raise Refusal(problems.unavailable(f"nothing can be stored: {why}; try again later"))
        limit_s = self._settings.ask_timeout_real_s
        if not self.is_open():
            limit_s += self._settings.lease_real_s  # the time until another instance leads
        try:
            async with self._clock.within(limit_s):
                reply = await self._reply(question, kind)
        except TimeoutError:
            missing = "admission did not answer in time" if self.is_open() else "no admission leads yet"
            why = self._bus.why_not_stored() or (self._inbox.why_idle() if self._inbox else "")
            because = f": {why}" if why else ""
            raise Refusal(problems.unavailable(f"{missing}{because}; {advice}")) from None
        if isinstance(reply, Problem):
            raise Refusal(reply)
        assert isinstance(reply, kind)
        return reply

    async def _reply(self, question: OwnQuestion, kind: type[M]) -> Message:
        """Ask the leader, again if it changes meanwhile: a submission that was stored is known by its key."""
        while True:
            inbox = self._inbox
            try:
                if inbox is not None and inbox.replayed():
                    reply: Message = await inbox.ask(question)
                    return reply
                return await self._reply_elsewhere(question, kind)
            except Unavailable:
                await self._clock.sleep(self._clock.cluster_s(LEADER_RETRY_REAL_S))

    async def _reply_elsewhere(self, question: OwnQuestion, kind: type[M]) -> Message:
        handed = await self._bus.ask(handed_on(question), HAND_ON_REAL_S)
        if not isinstance(handed, HandedBack):  # the core of the one that leads raised
            raise Refusal(problems.failed())
        if handed.problem:
            return msgspec.msgpack.decode(handed.said, type=Problem)
        return msgspec.msgpack.decode(handed.said, type=kind)

    async def attach(self, inbox: Inbox) -> None:
        """A task of the service: forwards requests until cancelled."""
        self._inbox = inbox
        try:
            await self._catch_up()
            inbox.put(CaughtUp())
            await self._clock.sleep(math.inf)
        finally:
            self._inbox = None

    async def _catch_up(self) -> None:
        """Wait until the core has folded every submission that was stored before this start."""
        submitted = await self._submitted_since(self._core.state.seq, await self._last_seq())
        while not all(job_state(self._core.state, job_id) for job_id in submitted):
            await self._clock.sleep(self._clock.cluster_s(CATCH_UP_POLL_REAL_S))

    async def _submitted_since(self, seq: int, last: int) -> list[JobId]:
        """The submissions among the facts after `seq`, up to `last`."""
        submitted: list[JobId] = []
        stored = self._bus.read(seq, FACT_SUBJECTS)
        try:
            while seq < last:
                batch = await anext(stored)
                submitted += [each.event.job_id for each in batch if isinstance(each.event, JobSubmitted)]
                seq = batch.last
        finally:
            if isinstance(stored, AsyncGenerator):
                await stored.aclose()
        return submitted

    async def _last_seq(self) -> int:
        while True:
            try:
                return await self._bus.last_seq()
            except Unavailable:
                await self._clock.sleep(self._clock.cluster_s(BUS_RETRY_REAL_S))
