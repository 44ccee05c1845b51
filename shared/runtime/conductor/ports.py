"""The ports of a service under the conductor: bus, clock and tasks. The bus encodes nothing."""

import math
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from types import TracebackType
from typing import Any, Protocol, TypeVar

from schemas.base import Event, Message, Question, Sample
from schemas.subjects import FACT_SUBJECTS
from shared.runtime.bus.contract import Answer, Batch, Record, Unavailable
from shared.runtime.bus.counts import Counts
from shared.runtime.bus.memory.state import Values
from shared.runtime.conductor.coroutine_driver import CoroutineDriver, Until, Wake
from shared.runtime.conductor.log import ConductedLog
from shared.runtime.conductor.timers import TimerAlarm, Timers

T = TypeVar("T")


class PortsHost(Protocol):
    """What the ports need of the conductor."""

    now: float
    log: ConductedLog
    timers: Timers
    values: Values
    blobs: dict[str, bytes]

    def send(self, sample: Sample) -> None: ...

    def hear_once(self, kinds: Sequence[type[Sample]], wake: Wake) -> None:
        """Wake with the next sample of some kinds."""
        ...

    def ask(self, question: Question, timeout_s: float, wake: Wake) -> None: ...

    def serve(self, subject: str, answer: Answer) -> None:
        """Have a coroutine answer a subject that no service answers."""
        ...


class ConductedClock:
    """Implements `Clock`: virtual time, starting at 0."""

    def __init__(self, conductor: PortsHost) -> None:
        self._conductor = conductor
        self._timers: Timers = conductor.timers

    def now(self) -> float:
        return self._conductor.now

    async def sleep(self, cluster_s: float) -> None:
        if cluster_s == math.inf:
            await Until(lambda _: None)
        elif cluster_s > 0:
            then = self._conductor.now + cluster_s
            await Until(lambda wake: self._timers.at(then, wake))

    def at(self, then: float, do: Callable[[], None]) -> TimerAlarm:
        return self._timers.at(max(then, self._conductor.now), do)

    def within(self, real_s: float) -> AbstractAsyncContextManager[object]:
        return _Limit(self, real_s)

    def cluster_s(self, real_s: float) -> float:
        return real_s


class _Limit(AbstractAsyncContextManager[object]):
    """Interrupts the driver that entered it."""

    def __init__(self, clock: ConductedClock, limit_s: float) -> None:
        self._clock = clock
        self._limit_s = limit_s
        self._alarm: TimerAlarm | None = None

    async def __aenter__(self) -> object:
        driver = CoroutineDriver.running
        assert driver is not None, "entered by a driver"
        then = self._clock.now() + self._limit_s
        self._alarm = self._clock.at(then, lambda: driver.interrupt(TimeoutError()))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._alarm is not None:
            self._alarm.cancel()


class ConductedTasks:
    """Implements `Tasks`."""

    async def all(self, coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
        waiting = list(coroutines)
        results: dict[int, T] = {}
        if not waiting:
            return []

        def begin(wake: Wake) -> None:
            def done(place: int, result: T, error: BaseException | None) -> None:
                results[place] = result
                if error is not None:
                    wake(error=error)
                elif len(results) == len(waiting):
                    wake()

            for place, coroutine in enumerate(waiting):
                CoroutineDriver(coroutine, partial(done, place)).go()

        await Until(begin)
        return [results[place] for place in range(len(waiting))]


class ConductedBus:
    """Implements `Bus`, for one shell."""

    def __init__(self, conductor: PortsHost, name: str) -> None:
        self.counts = Counts()
        self._conductor = conductor
        self._name = name
        self._linked = True
        self._links: list[Wake] = []

    # ---- facts

    async def publish(self, events: Sequence[Event]) -> None:
        await self._until_linked()
        for event in events:
            self._conductor.log.publish(event)

    async def read(self, after: int, subjects: Sequence[str]) -> AsyncIterator[Batch]:
        while True:
            await self._until_linked()
            last = self._conductor.log.last_seq
            batch, after = self._conductor.log.since(after, last, subjects), last
            if batch:
                yield Batch(batch, last)
            else:
                await Until(self._conductor.log.next_fact)

    async def fetch(self, seqs: Sequence[int], *, archived: bool = True) -> list[Record]:  # noqa: ARG002
        self._check_linked()
        found = self._conductor.log.since(min(seqs, default=1) - 1, max(seqs, default=0), FACT_SUBJECTS)
        return [record for record in found if record.seq in set(seqs)]

    async def dropped(self) -> int:
        return 0

    async def newest(self, subjects: Sequence[str]) -> int:
        self._check_linked()
        return self._conductor.log.newest(subjects)

    def why_not_stored(self) -> str:
        return ""

    async def last_seq(self) -> int:
        self._check_linked()
        return self._conductor.log.last_seq

    # ---- samples and questions

    async def send(self, sample: Sample) -> None:
        if self._linked:
            self._conductor.send(sample)

    async def listen(self, kinds: Sequence[type[Sample]]) -> AsyncIterator[Sample]:
        while True:
            yield await Until(lambda wake: self._conductor.hear_once(kinds, wake))

    async def ask(self, question: Question, timeout_s: float) -> Message:
        self._check_linked()
        answer: Message = await Until(lambda wake: self._conductor.ask(question, timeout_s, wake))
        return answer

    async def serve(self, service: str, subject: str, answer: Answer) -> None:  # noqa: ARG002 - the contract's
        self._conductor.serve(subject, answer)

    # ---- state

    async def get(self, key: str) -> tuple[bytes, int] | None:
        self._check_linked()
        return self._conductor.values.get(key)

    async def put(
        self, key: str, value: bytes, expected: int | None = None, ttl_s: float | None = None
    ) -> int:
        self._check_linked()
        return self._conductor.values.put(key, value, expected, ttl_s)

    async def delete(self, key: str) -> None:
        self._check_linked()
        self._conductor.values.delete(key)

    async def save(self, name: str, blob: bytes) -> None:
        self._check_linked()
        self._conductor.blobs[name] = bytes(blob)

    async def load(self, name: str) -> bytes | None:
        self._check_linked()
        return self._conductor.blobs.get(name)

    # ---- the connection

    def connected(self) -> bool:
        return self._linked

    def cut(self) -> None:
        """Cut it off, as a broken network does: facts wait on either side, samples are lost."""
        self._linked = False

    def mend(self) -> None:
        self._linked = True
        links, self._links = self._links, []
        for wake in links:
            wake()

    async def close(self) -> None:
        self._linked = False

    async def _until_linked(self) -> None:
        if not self._linked:
            await Until(self._links.append)

    def _check_linked(self) -> None:
        if not self._linked:
            raise Unavailable("the bus is out of reach")
