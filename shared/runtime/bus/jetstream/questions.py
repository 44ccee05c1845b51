"""Questions over NATS request and reply, as a NATS micro service, which NATS' own tools list.

What does not fit one message travels in parts (`large_messages`). It is not compressed: the columns of a
million estimates are copied in milliseconds, and compressing them would hold up the event loop for a second.
"""

import asyncio
from contextlib import suppress
from functools import partial
from importlib.metadata import version

from nats.errors import Error, NoRespondersError
from nats.micro.request import Request
from nats.micro.service import Service, ServiceConfig

from schemas.base import Message, Question
from schemas.codec import Malformed, encode_plain
from schemas.questions import node_asked
from schemas.subjects import PARTS_PREFIX
from shared.runtime.bus.accounts import INBOXES, MAPPED
from shared.runtime.bus.answering import reply_of, reply_to
from shared.runtime.bus.contract import Answer, Unavailable
from shared.runtime.bus.jetstream.connection import AWAY, Connection, in_words, unavailable
from shared.runtime.bus.jetstream.large_messages import fetched, offered
from shared.runtime.bus.limits import ANSWERS_AT_ONCE, QUESTION_MAX_BYTES, check_size

STOP_TIMEOUT_S = 1.0
PART_TIMEOUT_S = 5.0
ASK_PREFIX = "hopyard.ask."
LARGE_HELD_S = 30.0
"""how long a large reply is held for the asker"""


class JetStreamQuestions:
    _connection: Connection

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._answering: set[asyncio.Task[None]] = set()
        self._served: list[Service] = []

    async def ask(self, question: Question, timeout_s: float) -> Message:
        data = check_size("the question", encode_plain(question), QUESTION_MAX_BYTES)
        self._connection.counts.questions_asked += 1
        try:
            async with asyncio.timeout(timeout_s):
                await self._connection.up()
                reply = await self._request(question.subject, data, timeout_s)
        except (Error, OSError) as error:
            self._connection.counts.questions_unanswered += 1
            connection = self._connection
            why = connection.why_away or ("" if connection.connected() else AWAY)
            lost = Error(why) if why else error
            raise Unavailable(_unanswered(question, timeout_s, lost, connection.why_not_stored)) from error
        return reply_of(question, reply)

    async def _request(self, subject: str, data: bytes, timeout_s: float) -> bytes:
        nats, node_id = self._connection.nats, node_asked(subject)
        send = partial(nats.request, timeout=timeout_s)
        if len(data) <= nats.max_payload:
            reply = await send(subject, data)
        else:
            async with offered(nats, data, self._parts_subject("")) as large:
                reply = await send(subject, b"", headers=large.headers)
        return await fetched(send, reply.data, reply.headers, within=self._parts_subject(node_id))

    def _parts_subject(self, node_id: str) -> str:
        """The subject below which parts are offered.

        Those of an agent's reply have one of their own, which services may publish on, where accounts guard
        subjects.
        """
        guarded = self._connection.credentials is not None
        return f"{PARTS_PREFIX}.{node_id}" if guarded and node_id else INBOXES

    async def serve(self, service: str, subject: str, answer: Answer) -> None:
        slots = asyncio.Semaphore(ANSWERS_AT_ONCE)

        async def take(request: Request) -> None:
            """Hand the request to a task; while all are busy the next request waits."""
            if not request._msg.reply.startswith((f"{INBOXES}.", f"{MAPPED}.")):  # noqa: SLF001 - the class shows it nowhere
                connection = self._connection
                await connection.dead_letter(subject, request.data, "a question whose reply is for no inbox")
                return
            await slots.acquire()
            task = asyncio.get_running_loop().create_task(self._answer(request, answer))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)
            task.add_done_callback(lambda _: slots.release())

        with unavailable(f"serve {subject}"):
            served = Service(self._connection.nats, ServiceConfig(name=service, version=version("hopyard")))
            self._served.append(served)
            with suppress(Error):  # its flush may fail; ours follows
                await served.start()
            await served.add_endpoint(
                name="ask", subject=subject, handler=take, queue_group=self._group(service)
            )
            await self._connection.flush()

    def _group(self, service: str) -> str:
        """The queue group: NATS hands each question to one of its members.

        Each leader has a group of its own, so that none is handed to a stopped leader in place of the next.
        """
        fence = self._connection.fence
        return f"{service}-{fence.seq}" if fence else service

    async def _answer(self, request: Request, answer: Answer) -> None:
        connection, nats = self._connection, self._connection.nats
        with suppress(Error, TimeoutError):  # the asker is gone, or the connection: it has a time limit
            parts = partial(nats.request, timeout=PART_TIMEOUT_S)
            try:
                data = await fetched(parts, request.data, request.headers, within=INBOXES)
            except Malformed as error:
                await connection.dead_letter(request.subject, request.data, str(error))
                return
            reply = await reply_to(data, answer, counts=connection.counts, log=connection.log)
            if len(reply) <= nats.max_payload:
                await request.respond(reply)
                return
            async with (
                offered(nats, reply, self._parts_subject(node_asked(request.subject))) as large,
                asyncio.timeout(LARGE_HELD_S),
            ):
                await request.respond(headers=large.headers)
                await large.taken.wait()

    async def stop_answering(self) -> None:
        """Take no more questions, and cancel the answers in work."""
        if self._connection.connected():
            with suppress(Error, OSError):
                async with asyncio.timeout(STOP_TIMEOUT_S):
                    for served in self._served:
                        await served.stop()
        for task in self._answering:
            task.cancel()
        await asyncio.gather(*self._answering, return_exceptions=True)


def _unanswered(question: Question, timeout_s: float, error: Exception, why_not_stored: str) -> str:
    """`why_not_stored`: as the connection has it; a service that cannot renew its lease does not answer."""
    whom = question.subject.removeprefix(ASK_PREFIX)
    beside = f": {why_not_stored}" if why_not_stored else ""
    match error:
        case TimeoutError():
            return f"{whom} does not answer within {timeout_s:g} s{beside}"
        case NoRespondersError():
            return f"{whom} is not there to answer{beside}"
        case _:
            return f"{whom} cannot be asked: {in_words(error)}"
