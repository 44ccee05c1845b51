"""Questions over NATS request and reply, as a micro service that the ordinary NATS tools list."""

import asyncio
from contextlib import suppress
from importlib.metadata import version
from typing import TYPE_CHECKING

from nats import micro
from nats.errors import Error
from nats.micro.request import Request

from schemas.base import Message, Question
from schemas.codec import decode_reply, encode
from shared.runtime.answering import reply_to
from shared.runtime.bus import Answer, Unavailable
from shared.runtime.jetstream.link import Link, unavailable
from shared.runtime.limits import ANSWERS_AT_ONCE, check_size

if TYPE_CHECKING:
    from nats.micro.service import Service

STOP_TIMEOUT_S = 1.0


class JetStreamQuestions:
    _link: Link

    def __init__(self, link: Link) -> None:
        self._link = link
        self._answering: set[asyncio.Task[None]] = set()
        self._served: list[Service] = []

    async def ask(self, question: Question, timeout_s: float) -> Message:
        data = check_size("the question", encode(question), self._link.nats.max_payload)
        self._link.counts.questions_asked += 1
        try:
            with unavailable(question.subject):
                async with asyncio.timeout(timeout_s):
                    await self._link.up()
                    reply = await self._link.nats.request(question.subject, data, timeout=timeout_s)
        except Unavailable:
            self._link.counts.questions_unanswered += 1
            raise
        return decode_reply(question, reply.data)

    async def serve(self, service: str, subject: str, answer: Answer) -> None:
        slots = asyncio.Semaphore(ANSWERS_AT_ONCE)

        async def take(request: Request) -> None:
            """Requests come one after the other: hand each over to a task, and wait while all are busy."""
            await slots.acquire()
            task = asyncio.get_running_loop().create_task(self._answer(request, answer))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)
            task.add_done_callback(lambda _: slots.release())

        with unavailable(f"serve {subject}"):
            served = await micro.add_service(self._link.nats, name=service, version=version("hopyard"))
            self._served.append(served)
            await served.add_endpoint(name="ask", subject=subject, handler=take, queue_group=service)
            await self._link.nats.flush()

    async def _answer(self, request: Request, answer: Answer) -> None:
        link = self._link
        limit = link.nats.max_payload
        reply = await reply_to(request.data, answer, limit=limit, counts=link.counts, log=link.log)
        with suppress(Error):  # gone meanwhile: whoever asked has a time limit
            await request.respond(reply)

    async def stop_answering(self) -> None:
        """Take no more questions, and drop those in work."""
        if self._link.connected():
            with suppress(Error, OSError):
                async with asyncio.timeout(STOP_TIMEOUT_S):
                    for served in self._served:
                        await served.stop()
        for task in self._answering:
            task.cancel()
        await asyncio.gather(*self._answering, return_exceptions=True)
