"""What came of a command line."""

import sys
from collections.abc import Callable

import msgspec
import pytest

from hopyard.cli import main


class Ran(msgspec.Struct, frozen=True):
    code: int
    out: str
    err: str


Hopyard = Callable[..., Ran]
"""runs a command line, given as its words"""


def command_line(capture: pytest.CaptureFixture[str]) -> Hopyard:
    """As the console script runs it."""

    def run(*words: str) -> Ran:
        with pytest.raises(SystemExit) as ended:
            main(words)
        sys.stdout.flush()
        captured = capture.readouterr()
        return Ran(int(ended.value.code or 0), captured.out, captured.err)

    return run
