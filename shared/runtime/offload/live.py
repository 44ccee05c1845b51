"""Work done beside the event loop: in a thread of its own, or in a process that can be ended."""

import asyncio
import contextlib
import math
import multiprocessing
import multiprocessing.context
import os
import pickle
import resource
import signal
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from shared.runtime.offload.contract import Crashed, Server

START_REAL_S = 120.0
"""long, since imports are slow on a crowded machine, and a start that is given up begins again"""
READY = "ready"
FILES_AT_MOST = 100
"""files that a process may leave open, beside those of its start: without any left nothing can be imported"""
ENDING_REAL_S = 10.0
"""how long to wait for the end of a process whose pipe is closed: it ends, as no code of ours closes the
pipe"""
UNREADABLE = (pickle.UnpicklingError, AttributeError, ImportError, IndexError)
"""raised on reading an answer that is garbled, or of a type that cannot be imported here"""

A = TypeVar("A")


class ThreadLane:
    def __init__(self, name: str) -> None:
        self._thread = ThreadPoolExecutor(1, name)

    async def do(self, work: Callable[..., A], *arguments: object) -> A:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)

    def close(self) -> None:
        self._thread.shutdown()


class _Answer(msgspec.Struct, frozen=True):
    answer: Any
    spent: bool
    """a thread is still busy behind the answer, or files pile up: the process must not be used again"""


class SpawnedProcess:
    """A helper process that is started before it is needed, and kept.

    It is replaced when it crashes, overruns its time, or leaves a thread running or too many files open.
    Requests and answers cross a pipe, pickled.
    """

    def __init__(
        self, name: str, serve: Callable[..., Server], *arguments: object, memory_bytes: int | None = None
    ) -> None:
        self._name = name
        self._memory_bytes = memory_bytes
        self._serve = serve
        self._arguments = arguments
        self._context = multiprocessing.get_context("spawn")
        self._process: multiprocessing.context.SpawnProcess | None = None
        self._pipe: Connection | None = None
        self._one_at_a_time = asyncio.Lock()

    async def warm(self) -> None:
        """Have a process ready; takes a second when there is none."""
        async with self._one_at_a_time:
            try:
                await self._ensure()
            except (OSError, EOFError):
                self.end()  # the next call begins another

    async def call(self, request: Any, deadline_s: float) -> Any:  # noqa: ANN401 - the contract's
        async with self._one_at_a_time:
            return await self._call(request, deadline_s)

    async def _call(self, request: Any, deadline_s: float) -> Any:  # noqa: ANN401 - as above
        try:
            await self._ensure()
            reply = await self._in_thread(self._exchange, request, deadline_s)
        except (EOFError, OSError, *UNREADABLE) as error:
            gone = isinstance(error, EOFError | ConnectionError)
            how = await asyncio.to_thread(_how_it_ended, self._process) if gone else str(error)
            self.end()
            raise Crashed(how) from None
        if reply.spent:
            self.end()
        return reply.answer

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process.close()
        if self._pipe is not None:
            self._pipe.close()
        self._process = self._pipe = None

    async def _in_thread(self, work: Callable[..., A], *arguments: object) -> A:
        """What `work` returns, which may wait for the process. If that is cancelled, the process is ended.

        Its late answer would otherwise be taken for that to the next request. The thread cannot be cancelled;
        it ends once the process is gone, and only then is its pipe closed.
        """
        working = asyncio.ensure_future(asyncio.to_thread(work, *arguments))
        try:
            return await asyncio.shield(working)
        except asyncio.CancelledError:
            if self._process is not None:
                self._process.kill()
            await asyncio.gather(working, return_exceptions=True)
            self.end()
            raise

    async def _ensure(self) -> None:
        if self._process is None or not self._process.is_alive():
            await self._in_thread(self._start)
            await self._in_thread(self._until_ready)

    def _start(self) -> None:
        self.end()
        self._pipe, theirs = self._context.Pipe()
        process = self._context.Process(
            target=_serve,
            args=(theirs, self._serve, self._arguments, self._memory_bytes),
            name=self._name,
            daemon=True,
        )
        process.start()
        self._process = process
        theirs.close()

    def _until_ready(self) -> None:
        assert self._pipe is not None
        if not self._pipe.poll(START_REAL_S):
            raise TimeoutError(f"not up within {START_REAL_S:g} s")
        self._pipe.recv()

    def _exchange(self, request: Any, deadline_s: float) -> _Answer:  # noqa: ANN401 - as above
        assert self._pipe is not None
        self._pipe.send(request)
        if not self._pipe.poll(deadline_s):
            raise TimeoutError(f"no answer within {deadline_s:g} s")
        reply = self._pipe.recv()
        assert isinstance(reply, _Answer)
        return reply


def _how_it_ended(process: multiprocessing.context.SpawnProcess | None) -> str:
    """Describe how the process behind a closed pipe ended."""
    assert process is not None
    process.join(ENDING_REAL_S)
    code = process.exitcode
    if code is None:
        return "it closed its pipe"
    how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    return f"the process ended with {how}"


def _serve(
    pipe: Connection,
    serve: Callable[..., Server],
    arguments: tuple[object, ...],
    memory_bytes: int | None,
) -> None:
    """Main of the process, which ends with its parent. On a failure it exits at once: its pipe closes."""
    try:
        _answer_all(pipe, serve, arguments, memory_bytes)
    except BaseException:  # noqa: BLE001 - whatever it is, the interpreter would be taken down module by module
        with contextlib.suppress(MemoryError):
            traceback.print_exc()
        os._exit(1)


def _answer_all(
    pipe: Connection,
    serve: Callable[..., Server],
    arguments: tuple[object, ...],
    memory_bytes: int | None,
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    if memory_bytes is not None:
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    asked = os.getpid()
    server = serve(*arguments)
    server.warm()
    files = _open_files()
    with contextlib.suppress(EOFError, BrokenPipeError):
        pipe.send(READY)
        while True:
            answer = server.answer(pipe.recv())
            if os.getpid() != asked:
                os._exit(0)  # a fork: its answer would be taken for that to the next request
            spent = threading.active_count() > 1 or _open_files() > files + FILES_AT_MOST
            if spent:
                server.after_answer()  # the process ends with its answer
            pipe.send(_Answer(answer, spent))
            server.after_answer()


def _open_files() -> float:
    """How many files this process has open; infinite where it can open no more."""
    try:
        return sum(1 for _ in Path("/proc/self/fd").iterdir())
    except OSError:
        return math.inf


class LiveOffload:
    """Implements `Offload`."""

    def lane(self, name: str) -> ThreadLane:
        return ThreadLane(name)

    def process(
        self, name: str, serve: Callable[..., Server], *arguments: object, memory_bytes: int | None = None
    ) -> SpawnedProcess:
        return SpawnedProcess(name, serve, *arguments, memory_bytes=memory_bytes)
