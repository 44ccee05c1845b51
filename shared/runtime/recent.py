"""Ids seen lately."""

from collections.abc import Iterator


class Recent:
    """A set that forgets its oldest members above a limit. Iterates oldest first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._ids: dict[str, None] = {}

    def add(self, value: str) -> None:
        self._ids[value] = None
        if len(self._ids) > self._limit:
            del self._ids[next(iter(self._ids))]

    def __contains__(self, value: object) -> bool:
        return value in self._ids

    def __iter__(self) -> Iterator[str]:
        return iter(self._ids)
