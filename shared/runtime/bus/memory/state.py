"""Small named values with revisions, some of them with a time to live."""

from typing import NamedTuple

from shared.runtime.bus.contract import Conflict
from shared.runtime.bus.limits import MAX_PAYLOAD_BYTES, check_key, check_size
from shared.runtime.clock import Clock


class _Value(NamedTuple):
    data: bytes
    revision: int
    ends_at: float
    """cluster seconds"""


class Values:
    """Revisions grow with every write of any key. A value past its end counts as absent."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._values: dict[str, _Value] = {}
        self._revision = 0

    def get(self, key: str) -> tuple[bytes, int] | None:
        value = self._values.get(check_key(key))
        if value is None or value.ends_at <= self._clock.now():
            return None
        return value.data, value.revision

    def put(self, key: str, data: bytes, expected: int | None, ttl_s: float | None) -> int:
        check_size(key, data, MAX_PAYLOAD_BYTES)
        present = self.get(key)
        revision = present[1] if present else 0
        if expected is not None and expected != revision:
            raise Conflict(f"{key} is at revision {revision}, not {expected}")
        self._revision += 1
        self._values[key] = _Value(bytes(data), self._revision, self._end(ttl_s))
        return self._revision

    def delete(self, key: str) -> None:
        self._values.pop(check_key(key), None)

    def _end(self, ttl_s: float | None) -> float:
        if ttl_s is None:
            return float("inf")
        return self._clock.now() + self._clock.cluster_s(ttl_s)
