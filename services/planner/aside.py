"""A process beside the planner's: policies and the solver run there, so that they can be ended.

It is started before it is needed and stays. One that crashes, overruns its time or leaves a solve
running behind its answer is replaced. Requests cross a pipe, pickled.
"""

import asyncio
import contextlib
import multiprocessing
import multiprocessing.context
import signal
import threading
from multiprocessing.connection import Connection

import msgspec

from schemas.settings import Settings
from services.planner.configurations import Configurations
from services.planner.dump import Dump
from services.planner.planning import Decide, Failed, Want, decided_by, wanted_by
from services.planner.policies.contract import Decision
from services.planner.registry import Registry
from services.planner.solver import load, solving_from_now

START_REAL_S = 30.0
READY = "ready"

Answer = Configurations | Decision | Failed


class Crashed(OSError):
    """The process ended, or did not answer in time, and was replaced."""


class _Said(msgspec.Struct, frozen=True):
    answer: Answer
    spent: bool
    """a thread is still busy: use this process no more"""


class Aside:
    """Requests one at a time; `deadline_s` in real seconds."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._context = multiprocessing.get_context("spawn")
        self._process: multiprocessing.context.SpawnProcess | None = None
        self._pipe: Connection | None = None
        self._one_at_a_time = asyncio.Lock()

    async def warm(self) -> None:
        """Have a process ready; takes a second when there is none."""
        async with self._one_at_a_time:
            with contextlib.suppress(OSError, EOFError):  # the call that needs it will say so
                await self._ensure()

    async def call(self, request: Want | Decide, deadline_s: float) -> Answer:
        """Raises Crashed."""
        async with self._one_at_a_time:
            return await self._call(request, deadline_s)

    async def _call(self, request: Want | Decide, deadline_s: float) -> Answer:
        try:
            await self._ensure()
            said = await asyncio.to_thread(self._exchange, request, deadline_s)
        except (EOFError, OSError) as error:
            self.end()
            raise Crashed(str(error) or "the process ended") from None
        if said.spent:
            self.end()
        return said.answer

    def end(self) -> None:
        """End the process at once; the next call begins another."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process.close()
        if self._pipe is not None:
            self._pipe.close()
        self._process = self._pipe = None

    async def _ensure(self) -> None:
        if self._process is None or not self._process.is_alive():
            await asyncio.to_thread(self._start)

    def _start(self) -> None:
        self.end()
        self._pipe, theirs = self._context.Pipe()
        self._process = self._context.Process(
            target=_serve, args=(theirs, self._settings), name="planner-aside", daemon=True
        )
        self._process.start()
        theirs.close()
        if not self._pipe.poll(START_REAL_S):
            raise TimeoutError(f"not up within {START_REAL_S:g} s")
        self._pipe.recv()

    def _exchange(self, request: Want | Decide, deadline_s: float) -> _Said:
        assert self._pipe is not None
        self._pipe.send(request)
        if not self._pipe.poll(deadline_s):
            raise TimeoutError(f"no answer within {deadline_s:g} s")
        said = self._pipe.recv()
        assert isinstance(said, _Said)
        return said


def _serve(pipe: Connection, settings: Settings) -> None:
    """The life of the process: it ends with its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    registry, dump = Registry(settings), Dump(settings.dump_problems)
    load(settings.solver)
    with contextlib.suppress(EOFError, BrokenPipeError):
        pipe.send(READY)
        while True:
            request = pipe.recv()
            match request:
                case Want():
                    answer: Answer = wanted_by(registry, request)
                case _:
                    answer = decided_by(
                        registry, request, dump.watching(request, solving_from_now(request.view.effort))
                    )
            spent = threading.active_count() > 1
            if spent:
                dump.write()  # the process ends with its answer
            pipe.send(_Said(answer, spent))
            dump.write()
