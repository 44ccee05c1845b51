"""The stream of facts: stores them and hands each to the services that read its subject."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Protocol

from schemas.base import Event
from shared.domain.recent_ids import RecentIds
from shared.runtime.bus.contract import Record
from shared.runtime.bus.memory.log import REMEMBERED_IDS, Faults
from shared.runtime.bus.memory.routes import Routes

Sink = Callable[[Record], None]
"""is called with every fact as it is stored"""

NOTHING_KEPT = "this run keeps no facts to be read again"


class LogReader(Protocol):
    def deliver(self, record: Record) -> None: ...


class ConductedLog:
    """Keeps all facts for services that read from the past, until `keep_none`."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._random = faults.random("log")
        self.last_seq = 0
        self.sinks: list[Sink] = []
        self._kept: list[Record] | None = []
        self._ids = RecentIds(REMEMBERED_IDS)
        self._routes: Routes[LogReader] = Routes()
        self._kinds_of_one: set[str] = set()
        """kinds of entities of which some reader reads about a single one"""
        self._readers: dict[tuple[type[Event], str], Sequence[LogReader]] = {}
        """by the type of a fact and, for those kinds, the entity; each reader once"""
        self._waiting: list[Callable[[], None]] = []

    def publish(self, event: Event) -> bool:
        """Store a fact, unless its id is known; true if it was fresh."""
        if not self._ids.add(event.event_id):
            return False
        self.store(event)
        if self._faults.duplicate and self._random.random() < self._faults.duplicate:
            self.store(event)
        return True

    def store(self, event: Event) -> None:
        """Append a fact, and hand it to all who read its subject."""
        self.last_seq += 1
        record = Record(self.last_seq, event)
        if self._kept is not None:
            self._kept.append(record)
        for sink in self.sinks:
            sink(record)
        for reader in self._readers_of(event):
            reader.deliver(record)
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for wake in waiting:
                wake()

    def since(self, after: int, last: int, subjects: Sequence[str]) -> list[Record]:
        """The facts of some subjects with a sequence above `after`, up to `last`.

        Raises ValueError where nothing is kept.
        """
        if after >= last:
            return []
        if self._kept is None:
            raise ValueError(NOTHING_KEPT)
        mine = _routes(subjects)
        return [one for one in self._kept[after:last] if any(True for _ in mine.of(one.event.subject))]

    def newest(self, subjects: Sequence[str]) -> int:
        """Sequence of the newest fact on some subjects; where nothing is kept, of the newest on any."""
        if self._kept is None:
            return self.last_seq
        mine, newest_first = _routes(subjects), reversed(self._kept)
        return next((one.seq for one in newest_first if any(True for _ in mine.of(one.event.subject))), 0)

    def stored(self, after: int) -> list[Event]:
        """All facts with a sequence above `after`. Raises ValueError where nothing is kept."""
        if self._kept is None:
            raise ValueError(NOTHING_KEPT)
        return [record.event for record in self._kept[after:]]

    def keep_none(self) -> None:
        """From now on facts are only handed on: memory does not grow with the stream."""
        self._kept = None

    def next_fact(self, wake: Callable[[], None]) -> None:
        """Call `wake` once, when the next fact is stored."""
        self._waiting.append(wake)

    def follow(self, reader: LogReader, subjects: Sequence[str]) -> None:
        self._readers.clear()
        for subject in dict.fromkeys(subjects):
            self._routes.add(subject, reader)
            match subject.split("."):
                case [_, kind, entity, *_] if entity not in {"*", ">"}:
                    self._kinds_of_one.add(kind)
                case _:
                    pass

    def forget(self, reader: LogReader, subjects: Sequence[str]) -> None:
        self._readers.clear()
        for subject in dict.fromkeys(subjects):
            self._routes.remove(subject, reader)

    def _readers_of(self, event: Event) -> Sequence[LogReader]:
        kind = type(event)
        of_one = _entity(kind) in self._kinds_of_one or "*" in self._kinds_of_one
        about = kind, getattr(event, kind.entity_field) if of_one else ""
        readers = self._readers.get(about)
        if readers is None:
            readers = self._readers[about] = list(dict.fromkeys(self._routes.of(event.subject)))
        return readers


def _routes(subjects: Sequence[str]) -> Routes[None]:
    routes: Routes[None] = Routes()
    for subject in subjects:
        routes.add(subject, None)
    return routes


@cache
def _entity(kind: type[Event]) -> str:
    """The kind of entity that a fact is about."""
    return kind.tag().partition(".")[0]
