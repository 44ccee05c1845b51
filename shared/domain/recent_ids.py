"""A bounded set of the ids seen last. Pure."""

from collections import OrderedDict
from collections.abc import Iterator


class RecentIds:
    """A set that forgets its oldest members above a limit. Iterates oldest first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        # In a plain dict it takes longer to find the oldest entry, the more entries were deleted before it.
        self._ids: OrderedDict[str, None] = OrderedDict()

    def add(self, value: str) -> bool:
        """Add an id; false if it was there already."""
        if value in self._ids:
            return False
        self._ids[value] = None
        if len(self._ids) > self._limit:
            self._ids.popitem(last=False)
        return True

    def __contains__(self, value: object) -> bool:
        return value in self._ids

    def __iter__(self) -> Iterator[str]:
        return iter(self._ids)
