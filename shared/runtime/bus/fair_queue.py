"""A queue of requests that serves senders in turn: one that sends many delays none but its own. Pure."""

from collections import Counter, OrderedDict, deque
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Requests that wait and requests in work, by sender."""

    def __init__(self, *, at_once: int, at_once_of_one: int, waiting_of_one: int) -> None:
        self._at_once = at_once
        self._at_once_of_one = at_once_of_one
        self._waiting_of_one = waiting_of_one
        self._waiting: OrderedDict[str, deque[T]] = OrderedDict()
        """by sender; the first sender is served next"""
        self._in_work: Counter[str] = Counter()

    def put(self, who: str, what: T) -> bool:
        """Add a request; false if the sender has too many waiting, and this one is dropped."""
        waiting = self._waiting.setdefault(who, deque())
        if len(waiting) >= self._waiting_of_one:
            return False
        waiting.append(what)
        return True

    def next(self) -> tuple[str, T] | None:
        """The next request to work on, with its sender; None if none can be begun."""
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
        """A request of this sender is finished."""
        self._in_work[who] -= 1
        if not self._in_work[who]:
            del self._in_work[who]
