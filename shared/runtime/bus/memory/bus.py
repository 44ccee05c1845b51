"""The ports of the bus over one broker, which all clients of a process share."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import NamedTuple

import msgspec
import structlog

from schemas.base import Event, Message, Question, Sample
from schemas.codec import Malformed, encode, encode_plain
from schemas.subjects import SAMPLE_PREFIX
from shared.domain.invariants import read_fact, read_sample
from shared.runtime.bus.answering import reply_of, reply_to
from shared.runtime.bus.backlog import Backlog
from shared.runtime.bus.contract import Answer, Batch, Record, Unavailable
from shared.runtime.bus.counts import Counts
from shared.runtime.bus.limits import (
    ANSWERS_AT_ONCE,
    DEAD_LETTERS,
    MAX_PAYLOAD_BYTES,
    QUESTION_MAX_BYTES,
    READ_AGAIN,
    check_size,
)
from shared.runtime.bus.memory.log import FactLog, Faults
from shared.runtime.bus.memory.state import Values
from shared.runtime.clock import Clock

log = structlog.get_logger()

_read = lru_cache(READ_AGAIN)(read_fact)
"""facts are frozen, so readers may share a decoded one"""


class DeadLetter(msgspec.Struct, frozen=True):
    """A message that could not be read."""

    service: str
    """the service that could not read it"""
    subject: str
    seq: int
    reason: str
    data: bytes


class _Server(NamedTuple):
    """A client that answers the questions on a subject."""

    client: "MemoryClient"
    answer: Answer
    slots: asyncio.Semaphore


class _Broker:
    """The state that all clients share."""

    def __init__(self, clock: Clock, faults: Faults, listener_queue: int) -> None:
        self.log = FactLog(faults)
        self.values = Values(clock)
        self.blobs: dict[str, bytes] = {}
        self.dead: deque[DeadLetter] = deque(maxlen=DEAD_LETTERS)
        self.listener_queue = listener_queue
        self.listeners: dict[str, list[Callable[[bytes], None]]] = {}
        self.servers: dict[str, deque[_Server]] = {}


class MemoryClient:
    """One service's bus. Closing it ends what the service reads and answers, and nothing else."""

    def __init__(self, broker: _Broker, name: str) -> None:
        self.counts = Counts()
        self._broker = broker
        self._name = name
        self._closed = False
        self._linked = asyncio.Event()
        self._linked.set()
        self._ends: list[Callable[[], None]] = []
        self._answering: set[asyncio.Task[bytes]] = set()

    # ---- facts

    async def publish(self, events: Sequence[Event]) -> None:
        facts = [_encoded(event) for event in events]
        await self._wait_linked()
        for event_id, subject, data in facts:
            self._broker.log.publish(event_id, subject, data)
            if self._broker.log.faults.one_by_one:
                await self._wait_linked()
        self.counts.facts_published += len(facts)

    async def read(self, after: int, subjects: Sequence[str]) -> AsyncIterator[Batch]:
        self._check_open()
        reader = self._broker.log.follow(self._name, after, subjects)
        try:
            with self._ending(reader.end):
                while True:
                    seqs = await reader.take()
                    records = Batch(self._records(seqs), seqs[-1])
                    await self._linked.wait()
                    yield records
                    if records and reader.comes_again():
                        yield Batch(records, records.last)
        finally:
            self._broker.log.forget(reader)

    async def fetch(self, seqs: Sequence[int], *, archived: bool = True) -> list[Record]:  # noqa: ARG002
        await self._check_linked()
        return self._records([seq for seq in seqs if 0 < seq <= self._broker.log.last_seq])

    def why_not_stored(self) -> str:
        return ""

    async def last_seq(self) -> int:
        await self._check_linked()
        return self._broker.log.last_seq

    async def dropped(self) -> int:
        return 0

    async def newest(self, subjects: Sequence[str]) -> int:
        await self._check_linked()
        return self._broker.log.newest(subjects)

    def _records(self, seqs: Sequence[int]) -> list[Record]:
        events = ((seq, self._event(seq)) for seq in seqs)
        records = [Record(seq, event) for seq, event in events if event is not None]
        self.counts.facts_read += len(records)
        return records

    def _event(self, seq: int) -> Event | None:
        subject, data = self._broker.log.at(seq)
        try:
            event = _read(data)
        except Malformed as error:
            self._dead_letter(subject, seq, data, str(error))
            return None
        self.counts.facts_unknown += event is None
        return event

    def _dead_letter(self, subject: str, seq: int, data: bytes, reason: str) -> None:
        self.counts.malformed += 1
        log.warning("malformed message", service=self._name, subject=subject, seq=seq, reason=reason)
        self._broker.dead.append(DeadLetter(self._name, subject, seq, reason, data))

    # ---- samples

    async def send(self, sample: Sample) -> None:
        data = check_size("the sample", encode(sample), MAX_PAYLOAD_BYTES)
        self.counts.samples_sent += 1
        if not self._linked.is_set():
            return
        for hear in self._broker.listeners.get(_kind(type(sample)), ()):
            hear(data)

    async def listen(self, kinds: Sequence[type[Sample]]) -> AsyncIterator[Sample]:
        self._check_open()
        backlog: Backlog[bytes] = Backlog(self._broker.listener_queue)

        def hear(data: bytes) -> None:
            if self._linked.is_set():
                self.counts.samples_lost += backlog.put(data)

        lists = [self._broker.listeners.setdefault(_kind(kind), []) for kind in kinds]
        for listeners in lists:
            listeners.append(hear)
        try:
            with self._ending(backlog.end):
                while True:
                    sample = self._sample(await backlog.take())
                    if sample is not None:
                        self.counts.samples_received += 1
                        yield sample
        finally:
            for listeners in lists:
                listeners.remove(hear)

    def _sample(self, data: bytes) -> Sample | None:
        try:
            return read_sample(data)
        except Malformed as error:
            self._dead_letter(f"{SAMPLE_PREFIX}.*", 0, data, str(error))
            return None

    # ---- questions

    async def ask(self, question: Question, timeout_s: float) -> Message:
        data = check_size("the question", encode_plain(question), QUESTION_MAX_BYTES)
        await self._check_linked()
        self.counts.questions_asked += 1
        servers = self._broker.servers.get(question.subject)
        if not servers:
            self.counts.questions_unanswered += 1
            raise Unavailable(f"nothing answers {question.subject}")
        servers.rotate(-1)
        answering = servers[0].client.start_answer(servers[0], data)
        await asyncio.wait({answering}, timeout=timeout_s)
        if not answering.done() or answering.cancelled():
            self.counts.questions_unanswered += 1
            raise Unavailable(f"no answer from {question.subject} within {timeout_s} s")
        return reply_of(question, answering.result())

    async def serve(self, service: str, subject: str, answer: Answer) -> None:
        self._check_open()
        server = _Server(self, answer, asyncio.Semaphore(ANSWERS_AT_ONCE))
        servers = self._broker.servers.setdefault(subject, deque())
        servers.append(server)
        self._ends.append(lambda: servers.remove(server))
        log.debug("serving", service=service, subject=subject)

    def start_answer(self, server: _Server, data: bytes) -> asyncio.Task[bytes]:
        """Begin to answer a question; closing this client cancels it, closing its asker does not."""
        task = asyncio.get_running_loop().create_task(self._answer(server, data))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)
        return task

    async def _answer(self, server: _Server, data: bytes) -> bytes:
        await self._linked.wait()
        async with server.slots:
            bound = log.bind(service=self._name)
            return await reply_to(data, server.answer, counts=self.counts, log=bound)

    # ---- state

    async def get(self, key: str) -> tuple[bytes, int] | None:
        await self._check_linked()
        return self._broker.values.get(key)

    async def put(
        self, key: str, value: bytes, expected: int | None = None, ttl_s: float | None = None
    ) -> int:
        await self._check_linked()
        return self._broker.values.put(key, value, expected, ttl_s)

    async def delete(self, key: str) -> None:
        await self._check_linked()
        self._broker.values.delete(key)

    async def save(self, name: str, blob: bytes) -> None:
        await self._check_linked()
        self._broker.blobs[name] = bytes(blob)

    async def load(self, name: str) -> bytes | None:
        await self._check_linked()
        return self._broker.blobs.get(name)

    # ---- the connection

    def connected(self) -> bool:
        return self._linked.is_set() and not self._closed

    def cut(self) -> None:
        """Cut the client off, as a broken network does: facts wait on either side, samples are lost."""
        self._linked.clear()

    def mend(self) -> None:
        self._linked.set()

    async def close(self) -> None:
        self._closed = True
        self._linked.set()
        for end in self._ends:
            end()
        self._ends.clear()
        for task in self._answering:
            task.cancel()
        await asyncio.gather(*self._answering, return_exceptions=True)

    async def _wait_linked(self) -> None:
        """Let other tasks run, as a real connection does, and wait while the client is cut off."""
        await asyncio.sleep(0)
        await self._linked.wait()
        self._check_open()

    async def _check_linked(self) -> None:
        """Let other tasks run. Raises Unavailable while the client is cut off."""
        self._check_open()
        await asyncio.sleep(0)
        if not self._linked.is_set():
            raise Unavailable("the bus is out of reach")

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable("the bus is closed")

    @contextmanager
    def _ending(self, end: Callable[[], None]) -> Iterator[None]:
        """A context in which `close` calls `end`."""
        self._ends.append(end)
        try:
            yield
        finally:
            if end in self._ends:
                self._ends.remove(end)


class MemoryBus(MemoryClient):
    """A client with a broker of its own, and the way to further clients of that broker."""

    def __init__(self, clock: Clock, faults: Faults | None = None, *, listener_queue: int = 10_000) -> None:
        super().__init__(_Broker(clock, faults or Faults(), listener_queue), "memory")

    def client(self, name: str) -> MemoryClient:
        return MemoryClient(self._broker, name)

    def store(self, subject: str, data: bytes) -> int:
        """Put any bytes into the stream of facts, as a broken program could; returns their sequence."""
        return self._broker.log.store(subject, data)

    def stored(self, after: int) -> list[Event]:
        """The facts that can be read with a sequence above `after`."""
        seqs = range(after + 1, self._broker.log.last_seq + 1)
        return [record.event for record in self._records(seqs)]

    def dead_letters(self) -> list[DeadLetter]:
        return list(self._broker.dead)


def _encoded(event: Event) -> tuple[str, str, bytes]:
    """Id, subject and data of a fact. Raises ValueError for one that is too large."""
    event_id = event.event_id
    return (
        event_id,
        event.subject,
        check_size(event_id, encode(event), MAX_PAYLOAD_BYTES, message_id=event_id),
    )


def _kind(sample: type[Sample]) -> str:
    return str(sample.__struct_config__.tag)
