"""Messages that are nearly valid: real ones with one or three mutations, twice or out of order.

Everything follows from a seed. A message is mutated as it travels, as plain maps and lists, so that a reader
meets what no struct could hold.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from copy import deepcopy
from random import Random
from typing import Any

import msgspec

from schemas.base import Message

NUMBERS: tuple[Any, ...] = (
    *(0, 1, -1, 2, 3, 7, 100_000, 2**31, 2**53, 2**63, 2**64 - 1, -(2**63)),
    *(0.0, 0.5, -0.0, 1e-300, 1e12, 1e18, 1e30, 1e300, math.inf, -math.inf, math.nan),
)
WORDS: tuple[Any, ...] = (
    *("", ".", "..", "a.b", "*", ">", "a b", "a\nb", "../../etc", "/", "é", "a" * 5_000, "\x00"),
    *("hops", "fifo", "no-such", "hops+", "hops+x=1+x=2", "a:b", "a.py:b", "%", "lockstep", "forked"),
)
OTHERS: tuple[Any, ...] = (None, True, [], {}, [None], {"": 0}, b"", b"\xff")
MOST = 2**62
Raw = dict[str, Any]


def encoded(raw: object) -> bytes:
    return msgspec.msgpack.encode(raw)


def as_it_travels(message: Message) -> Raw:
    plain: Raw = msgspec.msgpack.decode(msgspec.msgpack.encode(message))
    return plain


class Mutator:
    """Mutates messages. `pool`: messages whose values may replace each other."""

    def __init__(self, seed: str, pool: Sequence[Raw]) -> None:
        self.random = Random(seed)
        self._values: dict[str, list[Any]] = {}
        for raw in pool:
            self.learn(raw)

    def learn(self, raw: Raw) -> None:
        """Add a message to the pool."""
        for place, key in _places(raw):
            self._values.setdefault(str(key), []).append(place[key])

    def mutated(self, raw: Raw) -> bytes:
        """The message, mutated and encoded."""
        copy: Raw = msgspec.msgpack.decode(msgspec.msgpack.encode(raw))
        for _ in range(1 if self.random.random() < 0.8 else 3):
            place, key = self.random.choice(list(_places(copy)))
            if isinstance(place, list) and self.random.random() < 0.3:
                place.insert(key, place[key])
            elif self.random.random() < 0.1:
                del place[key]
            else:
                place[key] = self._instead(place[key], str(key))
            if not copy:
                break
        return self._damaged(encoded(copy)) if self.random.random() < 0.01 else encoded(copy)

    def _instead(self, value: object, key: str) -> object:
        """A value in place of another: in half of the cases one that the pool has for the field."""
        if self.random.random() < 0.5 and key in self._values:
            return deepcopy(self.random.choice(self._values[key]))
        choices = OTHERS if self.random.random() < 0.05 else _like(value)
        return deepcopy(self.random.choice(choices))

    def _damaged(self, data: bytes) -> bytes:
        at = self.random.randrange(len(data))
        return self.random.choice((data[:at], data[:at] + self.random.randbytes(4) + data[at:]))


def _like(value: object) -> Sequence[Any]:
    """Values of the same type."""
    match value:
        case bool():
            return OTHERS
        case int() | float() if abs(value) < MOST:
            return (*NUMBERS, -value, value + 1, value - 1, value * 2.0, value * 1e6)
        case str():
            return WORDS
        case list():
            return ([], value[::-1], value * 2, value[1:], value[:1])
        case dict():
            return ({}, dict(list(value.items())[1:]))
        case _:
            return OTHERS


def _places(raw: Any) -> Iterator[tuple[Any, Any]]:  # noqa: ANN401 - any part of a message
    """Every part of a message, as its container and its key or index there."""
    keys: Callable[[Any], Any] = list if isinstance(raw, dict) else lambda it: range(len(it))
    for key in keys(raw):
        yield raw, key
        if isinstance(raw[key], dict | list):
            yield from _places(raw[key])


def out_of_order(random: Random, messages: Sequence[Raw], share: float = 0.1) -> list[Raw]:
    """The messages with some left out, some twice, some late."""
    moved: list[tuple[float, Raw]] = []
    for place, raw in enumerate(messages):
        fate = random.random() / share
        if fate < 0.3:
            continue
        late = random.expovariate(1 / 30) if fate < 0.7 else 0.0
        moved.append((place + late, raw))
        if 0.7 <= fate < 1.0:
            moved.append((place + random.expovariate(1 / 50), raw))
    return [raw for _, raw in sorted(moved, key=lambda one: one[0])]


NAMED = frozenset({"job_id", "placement_id", "plan_id", "life"})


def names_in(raw: Any) -> set[str]:  # noqa: ANN401 - as above
    """Ids of jobs, placements, plans and lives in messages."""
    found = {place[key] for place, key in _places(raw) if key in NAMED and isinstance(place[key], str)}
    return found - {""}


def in_another_story(raw: Any, names: AbstractSet[str], number: int, later_s: float) -> Any:  # noqa: ANN401 - as above
    """The message with other ids, at another time."""
    if isinstance(raw, list):
        return [in_another_story(one, names, number, later_s) for one in raw]
    if isinstance(raw, dict):
        items = raw.items()
        moved = {
            _renamed(key, names, number): in_another_story(value, names, number, later_s)
            for key, value in items
        }
        return moved | {"at": raw["at"] + later_s} if isinstance(raw.get("at"), float) else moved
    return _renamed(raw, names, number)


def _renamed(value: Any, names: AbstractSet[str], number: int) -> Any:  # noqa: ANN401 - as above
    return f"{value}-{number}" if isinstance(value, str) and value in names else value


def with_node(raw: Raw, node_id: str) -> Raw:
    """The message, about another node."""
    renamed: Raw = _in_place_of(raw, raw.get("node_id"), node_id)
    return renamed


def _in_place_of(raw: Any, old: object, new: str) -> Any:  # noqa: ANN401 - as above
    if isinstance(raw, list):
        return [_in_place_of(one, old, new) for one in raw]
    if isinstance(raw, dict):
        return {_in_place_of(key, old, new): _in_place_of(value, old, new) for key, value in raw.items()}
    return new if isinstance(raw, str) and raw == old else raw
