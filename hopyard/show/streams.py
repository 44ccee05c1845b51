"""Standard streams of a command that are closed, are not in UTF-8, or cannot be written to any more."""

import errno
import io
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class NotWritten(OSError):
    """stdout cannot be written to: its disk is full, or no process reads the pipe."""

    @property
    def closed_early(self) -> bool:
        """Whether the reader has closed the pipe, as `head` does."""
        return self.errno == errno.EPIPE


class _Output(io.FileIO):
    """Raises NotWritten, which is distinct from what any other file or socket raises."""

    def write(self, data: "ReadableBuffer", /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise NotWritten(error.errno, error.strerror) from None


def make_ready(*, as_json: bool, own_process: bool) -> None:
    """Prepare the streams, so that no text that is printed ends a command by an error.

    A terminal of another encoding is shown escapes for characters that it lacks. JSON is UTF-8 everywhere.
    A closed stream becomes /dev/null, and a closed stdout one that takes nothing. `own_process`: the streams
    are the process's, and stdout raises NotWritten.
    """
    for name, mode in (("stdin", "r"), ("stdout", "r"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = open(os.devnull, mode, encoding="utf-8")  # noqa: SIM115, PTH123 - as long as the process
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)  # which keeps it open when another takes its place
    if own_process and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout = _telling(sys.stdout)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8" if as_json else None, errors="backslashreplace")


def _telling(out: io.TextIOWrapper) -> io.TextIOWrapper:
    raw = _Output(out.fileno(), "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=out.encoding,
        errors=out.errors,
        line_buffering=out.line_buffering,
        write_through=out.write_through,
    )


def give_up() -> None:
    """Discard what is left for stdout: the interpreter would try again to write it at exit, and complain."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def is_text(word: str) -> bool:
    """Whether a word could be decoded. Bytes that could not are surrogates, which no message can hold."""
    return not any("\ud800" <= each <= "\udfff" for each in word)
