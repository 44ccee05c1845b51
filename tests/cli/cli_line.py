"""What came of a command line."""

from collections.abc import Callable

import msgspec


class Ran(msgspec.Struct, frozen=True):
    code: int
    out: str
    err: str


Hopyard = Callable[..., Ran]
"""runs a command line, given as its words"""
