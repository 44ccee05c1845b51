"""The stream of facts in memory, and the readers that follow it."""

import asyncio
from collections import deque
from collections.abc import Sequence
from random import Random

import msgspec

from shared.domain.recent_ids import RecentIds
from shared.runtime.bus.contract import Unavailable
from shared.runtime.bus.limits import READ_BATCH
from shared.runtime.bus.memory.routes import Routes

REMEMBERED_IDS = 200_000
"""ids of facts that the log remembers, to drop one that is published again"""
DUE_LIMIT = 10_000
"""sequences that are queued for a reader; one that falls further behind goes through the log instead"""


class Faults(msgspec.Struct, frozen=True, kw_only=True):
    """The faults to inject, drawn from a seed: the same in every run."""

    seed: int = 1
    duplicate: float = 0.0
    """probability that a fact is stored twice"""
    delay_s: float = 0.0
    """facts reach a reader up to so many loop seconds late; their order stays"""
    redeliver: float = 0.0
    """probability that a reader gets a batch again"""
    one_by_one: bool = False
    """facts of one `publish` are stored one by one: others' facts come between, and a kill leaves a part
    out"""

    def random(self, name: str) -> Random:
        return Random(f"{self.seed}/{name}")  # noqa: S311 - faults, not secrets


class FactLog:
    def __init__(self, faults: Faults) -> None:
        self.faults = faults
        self._stored: list[tuple[str, bytes]] = []
        self._ids = RecentIds(REMEMBERED_IDS)
        self._readers: Routes[Reader] = Routes()
        self._opened: dict[str, int] = {}
        self._random = faults.random("log")

    @property
    def last_seq(self) -> int:
        return len(self._stored)

    def publish(self, event_id: str, subject: str, data: bytes) -> bool:
        """Store a fact, unless its id is known; true if it was new."""
        if not self._ids.add(event_id):
            return False
        self.store(subject, data)
        if self._random.random() < self.faults.duplicate:
            self.store(subject, data)
        return True

    def store(self, subject: str, data: bytes) -> int:
        """Append a message, whatever it holds; returns its sequence."""
        self._stored.append((subject, data))
        seq = len(self._stored)
        for reader in self._readers.of(subject):
            reader.note(seq)
        return seq

    def newest(self, subjects: Sequence[str]) -> int:
        """Sequence of the newest message of some subjects; 0: there is none."""
        mine: Routes[None] = Routes()
        for subject in subjects:
            mine.add(subject, None)
        seqs = range(len(self._stored), 0, -1)
        return next((seq for seq in seqs if any(True for _ in mine.of(self.at(seq)[0]))), 0)

    def at(self, seq: int) -> tuple[str, bytes]:
        """Subject and data of a message."""
        return self._stored[seq - 1]

    def follow(self, name: str, after: int, subjects: Sequence[str]) -> "Reader":
        self._opened[name] = life = self._opened.get(name, 0) + 1
        reader = Reader(self, after, subjects, self.faults.random(f"{name}/{life}"))
        for subject in reader.subjects:
            self._readers.add(subject, reader)
        return reader

    def forget(self, reader: "Reader") -> None:
        for subject in reader.subjects:
            self._readers.remove(subject, reader)


class Reader:
    """A place in the log, and the sequences of its messages beyond that."""

    def __init__(self, log: FactLog, after: int, subjects: Sequence[str], random: Random) -> None:
        self.subjects = tuple(dict.fromkeys(subjects))
        self._log = log
        self._last = after
        self._random = random
        self._due: deque[int] = deque()
        """sequences of its messages that it has not taken yet; not kept while it is behind"""
        self._behind = True
        """whether it has to go through the log for its next messages"""
        self._ready = asyncio.Event()
        self._ready.set()
        self._ended = False
        self._mine: Routes[None] = Routes()
        for subject in self.subjects:
            self._mine.add(subject, None)

    def note(self, seq: int) -> None:
        """A message for this reader was stored."""
        if not self._behind and (not self._due or self._due[-1] < seq):
            self._due.append(seq)
            if len(self._due) > DUE_LIMIT:
                self._due.clear()
                self._behind = True
        self._ready.set()

    def end(self) -> None:
        self._ended = True
        self._ready.set()

    async def take(self) -> list[int]:
        """The next sequences, at least one, oldest first. Raises Unavailable after `end`."""
        while True:
            await self._ready.wait()
            if self._ended:
                raise Unavailable("the bus is closed")
            if self._log.faults.delay_s:
                await asyncio.sleep(self._random.uniform(0.0, self._log.faults.delay_s))
            batch = self._look_up() if self._behind else self._next()
            if batch:
                return batch
            if not self._behind:
                self._ready.clear()

    def comes_again(self) -> bool:
        """Whether, by the faults to inject, the last batch is delivered again."""
        return self._random.random() < self._log.faults.redeliver

    def _next(self) -> list[int]:
        batch = [self._due.popleft() for _ in range(min(READ_BATCH, len(self._due)))]
        if batch:
            self._last = batch[-1]
        return batch

    def _look_up(self) -> list[int]:
        """Go through the log from the last place on, until a batch is full or the end is reached."""
        batch: list[int] = []
        while len(batch) < READ_BATCH and self._last < self._log.last_seq:
            self._last += 1
            if any(True for _ in self._mine.of(self._log.at(self._last)[0])):
                batch.append(self._last)
        self._behind = self._last < self._log.last_seq
        return batch
