"""The output of jobs, on a terminal and in a pipe."""

import io
import sys

import pytest

from hopyard.show.output import on_terminal, show_output
from schemas.ids import NodeId
from schemas.output import OutputLine

PRINTED = "epoch\t1 \x1b[1A\x07\r  5%\r\x1b[32m 10%\x1b[0m\x0c"


class Stream(io.StringIO):
    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


@pytest.fixture(params=["stdout", "stderr"])
def stream(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def printed(monkeypatch: pytest.MonkeyPatch, name: str, line: OutputLine, *, terminal: bool) -> str:
    """What is written to the stream."""
    out = Stream(terminal=terminal)
    monkeypatch.setattr(sys, name, out)
    show_output(line, beside=name == "stderr")
    return out.getvalue()


LINE = OutputLine(node=NodeId("a"), rank=0, at=1.0, text=PRINTED)


def test_in_a_pipe_is_what_the_job_printed(monkeypatch: pytest.MonkeyPatch, stream: str) -> None:
    assert printed(monkeypatch, stream, LINE, terminal=False) == f"a/0  {PRINTED}\n"


def test_on_a_terminal_is_what_it_would_leave_there(monkeypatch: pytest.MonkeyPatch, stream: str) -> None:
    assert printed(monkeypatch, stream, LINE, terminal=True) == "a/0  \x1b[32m 10%\x1b[0m\x1b[0m\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("loss\t0.5\r", "loss\t0.5"),
        ("10%\r20%\r\r", "20%"),
        ("\x1b[1;31mbad", "\x1b[1;31mbad\x1b[0m"),
        ("a\x1b[2K\x1b]0;title\x07b\x1b]8;;http://x\x1b\\c\x1b7d\x1b", "abcd"),
        ("\x9b2Ka\u202eb", "2Kab"),
        ("a\nb", "ab"),
    ],
)
def test_a_job_gives_the_terminal_no_orders(text: str, shown: str) -> None:
    assert on_terminal(text) == shown


@pytest.mark.parametrize("terminal", [True, False])
def test_why_lines_are_missing_is_one_line(monkeypatch: pytest.MonkeyPatch, *, terminal: bool) -> None:
    gone = OutputLine(node=NodeId("a"), problem="gone\na/0  \x1b[2Kdone")
    assert printed(monkeypatch, "stderr", gone, terminal=terminal) == "a: gone a/0  [2Kdone\n"
