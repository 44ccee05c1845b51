"""The process from which a stack's programs are forked (`prefork`), as the stack sees it."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Iterable, Sequence
from typing import Protocol

from hopyard.local.child import Program
from hopyard.local.prefork import END, POSSIBLE, ROOM, Forks, adopting

LIMIT_S = 120.0
"""an import takes its time on a crowded machine"""


class Process(Protocol):
    """What is asked of a child, however it began; `asyncio`'s are some."""

    @property
    def pid(self) -> int: ...

    @property
    def returncode(self) -> int | None: ...

    def terminate(self) -> None: ...

    async def wait(self) -> int: ...


class AdoptedProcess:
    """A child of this process that another one forked."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._ended = asyncio.Event()
        descriptor = os.pidfd_open(pid)
        asyncio.get_running_loop().add_reader(descriptor, self._bury, descriptor)

    def _bury(self, descriptor: int) -> None:
        asyncio.get_running_loop().remove_reader(descriptor)
        os.close(descriptor)
        _, status = os.waitpid(self.pid, 0)
        self.returncode = os.waitstatus_to_exitcode(status)
        self._ended.set()

    def terminate(self) -> None:
        if self.returncode is None:
            os.kill(self.pid, signal.SIGTERM)

    async def wait(self) -> int:
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode


class Template:
    """Begun when the first program is to be forked, and anew where it has ended."""

    def __init__(self, imports: Iterable[str] = ()) -> None:
        self._imports = tuple(imports)
        self._process: asyncio.subprocess.Process | None = None
        self._possible = POSSIBLE
        self._one_at_a_time = asyncio.Lock()

    async def fork(self, programs: Sequence[Program]) -> dict[int, Process]:
        """The processes that run them by their places; of any that could not be forked there is none."""
        async with self._one_at_a_time:
            begun = await self._forked(programs)
            if not begun and self._possible:
                await self._begin(programs)
                begun = await self._forked(programs)
                self._possible = bool(begun)
            return begun

    @property
    def pid(self) -> int | None:
        """None: there is none at the moment."""
        return None if self._process is None else self._process.pid

    async def end(self) -> None:
        """Its forks go on."""
        async with self._one_at_a_time:
            await self._end()

    async def _begin(self, programs: Sequence[Program]) -> None:
        """With what their environments have in common."""
        await self._end()
        shared = set.intersection(*(set(program.environ.items()) for program in programs))
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "hopyard.local.prefork", str(os.getpid()), ROOM),
            env=dict(shared),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )

    async def _end(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.communicate()
        self._process = None

    async def _forked(self, programs: Sequence[Program]) -> dict[int, Process]:
        if self._process is None:
            return {}
        given_up = asyncio.get_running_loop().call_later(LIMIT_S, self._process.kill)
        with adopting():
            pairs = [
                line.split() for line in await _answer(self._process, Forks(self._imports, tuple(programs)))
            ]
        given_up.cancel()
        return {int(place): AdoptedProcess(int(pid)) for place, pid in pairs}


async def _answer(process: asyncio.subprocess.Process, request: Forks) -> list[str]:
    """The lines before END, or before its own end."""
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(ConnectionError):
        process.stdin.write(request.encode())
        await process.stdin.drain()
    lines = []
    while (line := (await process.stdout.readline()).decode().strip()) not in {"", END}:
        lines.append(line)
    return lines
