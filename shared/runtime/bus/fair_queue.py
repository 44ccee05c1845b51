"""Requests of many, of which each has its turn: who asks a great deal has only himself wait. Pure."""

from collections import Counter, OrderedDict, deque
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """What waits and what is in work, by who asked."""

    def __init__(self, *, at_once: int, at_once_of_one: int, waiting_of_one: int) -> None:
        self._at_once = at_once
        self._at_once_of_one = at_once_of_one
        self._waiting_of_one = waiting_of_one
        self._waiting: OrderedDict[str, deque[T]] = OrderedDict()
        """who is first has his turn next"""
        self._in_work: Counter[str] = Counter()

    def put(self, who: str, what: T) -> bool:
        """False: too much of his waits, and this is dropped."""
        waiting = self._waiting.setdefault(who, deque())
        if len(waiting) >= self._waiting_of_one:
            return False
        waiting.append(what)
        return True

    def next(self) -> tuple[str, T] | None:
        """What is to be worked on now, and for whom."""
        if self._in_work.total() >= self._at_once:
            return None
        who = next((who for who in self._waiting if self._in_work[who] < self._at_once_of_one), None)
        if who is None:
            return None
        waiting = self._waiting.pop(who)
        what = waiting.popleft()
        if waiting:
            self._waiting[who] = waiting  # behind all others
        self._in_work[who] += 1
        return who, what

    def done(self, who: str) -> None:
        """One that was in work."""
        self._in_work[who] -= 1
        if not self._in_work[who]:
            del self._in_work[who]
