"""Subscribers by subject, with the patterns of NATS (`*` one token, a last `>` all that follow).

A look-up costs one dictionary access for each distinct shape of pattern, not one for each pattern: there
are hundreds of agents, and all their patterns look alike.
"""

from collections.abc import Iterator
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class _Shape(NamedTuple):
    fixed: tuple[int, ...]
    """positions of the tokens that are not wild"""
    length: int
    """tokens a subject must have"""
    open_end: bool
    """or more"""

    def fits(self, tokens: list[str]) -> bool:
        return len(tokens) > self.length if self.open_end else len(tokens) == self.length

    def key(self, tokens: list[str]) -> tuple[str, ...]:
        return tuple(tokens[place] for place in self.fixed)


class Routes(Generic[T]):
    def __init__(self) -> None:
        self._shapes: dict[_Shape, dict[tuple[str, ...], list[T]]] = {}

    def add(self, pattern: str, target: T) -> None:
        shape, key = _parse(pattern)
        self._shapes.setdefault(shape, {}).setdefault(key, []).append(target)

    def remove(self, pattern: str, target: T) -> None:
        shape, key = _parse(pattern)
        self._shapes[shape][key].remove(target)
        if not self._shapes[shape][key]:
            del self._shapes[shape][key]

    def of(self, subject: str) -> Iterator[T]:
        """The targets of all patterns that match; one twice if two of its patterns do."""
        tokens = subject.split(".")
        for shape, targets in self._shapes.items():
            if shape.fits(tokens):
                yield from targets.get(shape.key(tokens), ())


def _parse(pattern: str) -> tuple[_Shape, tuple[str, ...]]:
    tokens = pattern.split(".")
    open_end = tokens[-1] == ">"
    if open_end:
        tokens.pop()
    fixed = tuple(place for place, part in enumerate(tokens) if part != "*")
    shape = _Shape(fixed, len(tokens), open_end)
    return shape, shape.key(tokens)
