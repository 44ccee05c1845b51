"""Finds the subscribers of a subject, by NATS' patterns (`*` is any one token, a last `>` one or more).

A look-up costs a dictionary access for each distinct shape of pattern, not for each pattern: the patterns of
hundreds of agents have a few shapes.
"""

from collections.abc import Iterator
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class _Shape(NamedTuple):
    """A pattern without its fixed tokens."""

    fixed: tuple[int, ...]
    """positions of the tokens that are not wild"""
    length: int
    """tokens that a subject must have"""
    open_end: bool
    """whether it must have more than that"""

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
