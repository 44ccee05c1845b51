"""The end of a rank: its last message, which is also written down in case the agent is away."""

from __future__ import annotations

import atexit
import contextlib
import gc
import io
import json
import os
import runpy
import sys
import threading
import traceback
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from hopjob.agent.connection import Connection

FAILED, LOST = 1, 75
"""exit codes; 75 is EX_TEMPFAIL of sysexits.h: try again"""
REASON_LENGTH = 500
LAUNCHER_FILES = (str(Path(__file__).parents[1]), "<frozen runpy>", str(runpy.__file__))
OF_EXCHANGES = ("gloo", "nccl", "connectfullmesh", "tcpstore")
"""words in errors of torch's exchanges, wherever they are raised: a handle's `wait` has no frame of torch"""
OF_NETWORKS = (
    "connection reset by peer",
    "connection closed by peer",
    "connection refused",
    "broken pipe",
    "timed out waiting",
    "wait timeout",
    "socket timeout",
)
"""words in errors of exchanges and of the script's own connections"""
FILES_OF_EXCHANGES = ("/torch/distributed/", "/torch/autograd/", "/torch/nn/parallel/")
"""parts of the paths of torch's files that exchange, or wait for exchanges"""
BUFFERED = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)
"""files that may hold what a script wrote and the disk has not got"""


class Ending:
    def __init__(self, connection: Connection, path: str, *, ranks: int) -> None:
        self._connection, self._path, self._ranks = connection, path, ranks
        self._pid = os.getpid()
        self.samples = 0.0
        """samples in the newest checkpoint, for a process that is stopped where it cannot save"""

    @property
    def is_own(self) -> bool:
        """Whether this process is the rank, and none that its script has forked."""
        return os.getpid() == self._pid

    def end_script(self) -> None:
        """Do what Python does when its script is over, short of tearing torch down.

        It waits for the script's threads and processes, calls its exit handlers, drops its variables, and
        writes out its open files. Exit handlers that raise print their errors, and change nothing.
        """
        if threading.current_thread() is not threading.main_thread():
            return
        python: Any = threading
        for step in (python._shutdown, atexit._run_exitfuncs):  # noqa: SLF001 - what Python itself calls
            with contextlib.suppress(BaseException):
                step()
        sys.modules.pop("__main__", None)
        gc.collect()
        for file in [one for one in gc.get_objects() if issubclass(type(one), BUFFERED)]:
            with contextlib.suppress(Exception):
                file.flush()

    def report_and_exit(self, kind: str, value: dict[str, object], code: int = 0) -> NoReturn:
        """Send the last message and exit at once, since an orderly exit of torch takes seconds."""
        self.report(kind, value)
        self.exit(code)

    def report(self, kind: str, value: dict[str, object]) -> None:
        self._save({kind: value})
        self._connection.send(**{kind: value})

    def exit(self, code: int) -> NoReturn:
        for stream in (sys.stdout, sys.stderr, sys.__stderr__):
            with contextlib.suppress(Exception):
                stream.flush()  # type: ignore[union-attr] # a closed stream is None
        multiprocessing = sys.modules.get("multiprocessing") if self.is_own else None
        for child in multiprocessing.active_children() if multiprocessing is not None else ():
            child.kill()  # loaders' workers would take seconds to notice
        os._exit(code)

    def stopped(self) -> NoReturn:
        self.report_and_exit("stopped", {"samples": self.samples})

    def watch_exceptions(self) -> None:
        """Report uncaught exceptions as last messages too, after their traceback."""
        before = sys.excepthook

        def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
            trace = script_frames(trace)
            before(kind, error.with_traceback(trace), trace)
            if isinstance(sys.stderr, io.StringIO) and sys.__stderr__ is not None:
                sys.__stderr__.write(sys.stderr.getvalue())  # torch.distributed wanted to add its prefix
            if self.is_own:
                self.raised(error)

        sys.excepthook = hook

    def raised(self, error: BaseException) -> NoReturn:
        reason = "".join(traceback.format_exception_only(type(error), error)).strip()[:REASON_LENGTH]
        if self._ranks == 1 or not is_network_error(error):
            self.report("failed", {"reason": reason})
            self.end_script()
            self.exit(FAILED)
        if self._connection.stop_asked is not None:  # its peers have ended before it, as ordered
            self.stopped()
        self.report_and_exit("lost", {"reason": f"it lost a peer: {reason}"}, LOST)

    def _save(self, message: dict[str, object]) -> None:
        if self._path:
            with contextlib.suppress(OSError):  # on a full disk the message is only sent
                part = Path(self._path + ".part")
                part.write_text(json.dumps(message), "utf-8")
                part.replace(self._path)


def script_frames(trace: TracebackType | None) -> TracebackType | None:
    """The script's own frames of a traceback; all of them if there are none."""
    inner = trace
    while inner is not None and inner.tb_frame.f_code.co_filename.startswith(LAUNCHER_FILES):
        inner = inner.tb_next
    return inner or trace


def is_network_error(error: BaseException) -> bool:
    """Whether the error is a failed exchange between ranks, as far as torch tells."""
    chain = [error, error.__cause__, error.__context__]
    return any(_is_exchange_error(one) for one in chain if one is not None)


def _is_exchange_error(error: BaseException) -> bool:
    if any(kind.__name__ == "DistError" for kind in type(error).__mro__):
        return True
    text = str(error).lower()
    if isinstance(error, RuntimeError) and any(word in text for word in OF_EXCHANGES):
        return True
    of_network = isinstance(error, (RuntimeError, OSError)) and any(word in text for word in OF_NETWORKS)
    return of_network and _passed_through_torch(error.__traceback__)


def _passed_through_torch(trace: TracebackType | None) -> bool:
    """Whether the error was raised in one of torch's exchanges, and not by the script's own connection."""
    while trace is not None:
        path = trace.tb_frame.f_code.co_filename.replace(os.sep, "/")
        if any(part in path for part in FILES_OF_EXCHANGES):
            return True
        trace = trace.tb_next
    return False
