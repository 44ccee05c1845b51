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
"""hears every fact that is stored, in the order of the stream"""

NOTHING_KEPT = "this run keeps no facts to be read again"


class LogReader(Protocol):
    def deliver(self, record: Record) -> None: ...


NOBODY: Sequence[LogReader] = ()


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
        """of patterns that name neither a kind of entity nor one entity"""
        self._of_all: dict[tuple[str, str], list[LogReader]] = {}
        """by the kind of entity and the fact, `*` for all: who reads it about every entity"""
        self._of_type: dict[type[Event], list[LogReader]] = {}
        """what `_of_all` comes to, each reader once"""
        self._of_one: dict[tuple[str, str, str], list[LogReader]] = {}
        """by kind, id and fact, `*` for all: who reads it about that entity"""
        self._kinds_of_one: set[str] = set()
        """the kinds that were ever among those"""
        self._others = 0
        self._waiting: list[Callable[[], None]] = []

    def publish(self, event: Event) -> bool:
        """Store a fact, unless its id is known; true if it was fresh."""
        event_id = event.event_id
        if event_id in self._ids:
            return False
        self._ids.add(event_id)
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
        for reader in self._readers(event):
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
        mine: Routes[None] = Routes()
        for subject in subjects:
            mine.add(subject, None)
        return [one for one in self._kept[after:last] if any(True for _ in mine.of(one.event.subject))]

    def stored(self, after: int) -> list[Event]:
        """All facts with a sequence above `after`. Raises ValueError where nothing is kept."""
        if self._kept is None:
            raise ValueError(NOTHING_KEPT)
        return [record.event for record in self._kept[after:]]

    def keep_none(self) -> None:
        """From now on facts are only handed on: memory does not grow with the stream."""
        self._kept = None

    def next_fact(self, wake: Callable[[], None]) -> None:
        """Wake when the next one is stored."""
        self._waiting.append(wake)

    def follow(self, reader: LogReader, subjects: Sequence[str]) -> None:
        self._of_type.clear()
        for subject in dict.fromkeys(subjects):
            match subject.split("."):
                case ["hopyard", kind, "*", fact] if fact != ">":
                    self._of_all.setdefault((kind, fact), []).append(reader)
                case ["hopyard", kind, entity, fact] if entity != "*" and fact != ">":
                    self._kinds_of_one.add(kind)
                    self._of_one.setdefault((kind, entity, fact), []).append(reader)
                case _:
                    self._routes.add(subject, reader)
                    self._others += 1

    def forget(self, reader: LogReader, subjects: Sequence[str]) -> None:
        self._of_type.clear()
        for subject in dict.fromkeys(subjects):
            match subject.split("."):
                case ["hopyard", kind, "*", fact] if fact != ">":
                    self._of_all[kind, fact].remove(reader)
                case ["hopyard", kind, entity, fact] if entity != "*" and fact != ">":
                    self._of_one[kind, entity, fact].remove(reader)
                case _:
                    self._routes.remove(subject, reader)
                    self._others -= 1

    def _readers(self, event: Event) -> Sequence[LogReader]:
        """Each once."""
        kind, fact = _about(type(event))
        readers = self._of_type.get(type(event))
        if readers is None:
            all_of_it = self._of_all.get((kind, "*"), []) + self._of_all.get((kind, fact), [])
            readers = self._of_type[type(event)] = list(dict.fromkeys(all_of_it))
        if kind not in self._kinds_of_one and not self._others:
            return readers
        entity = getattr(event, event.entity_field)
        mine = self._of_one.get((kind, entity, fact), NOBODY)
        of_any_fact = self._of_one.get((kind, entity, "*"), NOBODY)
        if not mine and not of_any_fact and not self._others:
            return readers
        others = self._routes.of(event.subject) if self._others else NOBODY
        return list(dict.fromkeys([*readers, *of_any_fact, *mine, *others]))


@cache
def _about(kind: type[Event]) -> tuple[str, str]:
    """Kind of the entity that a fact is about, and the fact's name."""
    entity, _, fact = kind.tag().partition(".")
    return entity, fact
