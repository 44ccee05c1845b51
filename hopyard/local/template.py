"""The process from which a stack's programs are forked (`prefork`), as the stack sees it."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from pathlib import Path
from typing import Protocol

from hopyard.local.child import Program
from hopyard.local.prefork import END, POSSIBLE, ROOM, Forks, adopting
from hopyard.local.signals import to_its_end

LIMIT_S = 120.0
"""seconds for a template to import and to fork; on a busy machine imports are slow"""
END_LIMIT_S = 5.0
"""seconds for a killed process to be gone; a process that waits for a disk stays until the disk answers"""
LOOK_EVERY_S = 0.005
PARENT, SESSION, BEGAN = 4 - 3, 6 - 3, 22 - 3
"""indices of fields of `/proc/PID/stat` after the name: index 0 is field 3"""

Begun = MutableMapping[int, "Process"]
"""processes by the places of their programs in a request"""


class Process(Protocol):
    """A child process, however it was started; `asyncio`'s processes fit."""

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
        asyncio.get_running_loop().add_reader(descriptor, self._reap, descriptor)

    def _reap(self, descriptor: int) -> None:
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
    """A template process: started when the first program is to be forked, and again if it has ended."""

    def __init__(self, imports: Iterable[str] = ()) -> None:
        self._imports = tuple(imports)
        self._process: asyncio.subprocess.Process | None = None
        self._possible = POSSIBLE
        self._one_at_a_time = asyncio.Lock()

    async def fork(self, programs: Sequence[Program], begun: Begun, limit_s: float = LIMIT_S) -> None:
        """Add to `begun` the processes of the programs, except of those that could not be forked in time.

        A template that has not answered when time is up, or when this call is cancelled, is killed. What it
        had forked is in `begun` all the same.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s), self._one_at_a_time:
                await self._forked(programs, begun)
                if not begun and self._possible:
                    await self._begin(programs)
                    await self._forked(programs, begun)
                    self._possible = bool(begun)

    @property
    def pid(self) -> int | None:
        """The template's process id; None: there is no template at the moment."""
        return None if self._process is None else self._process.pid

    async def end(self) -> None:
        """End the template; its forks go on."""
        async with self._one_at_a_time:
            await self._end()

    async def _begin(self, programs: Sequence[Program]) -> None:
        """Start a template with the variables that all programs have in common."""
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
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None
            process.stdin.close()
            _kill(process)
            await _gone(process)

    async def _forked(self, programs: Sequence[Program], begun: Begun) -> None:
        if self._process is None:
            return
        lines: list[str] = []
        await _next_tick()
        with _reaping_orphans(self._process.pid, begun), adopting():
            try:
                await _ask(self._process, Forks(self._imports, tuple(programs)), lines)
            except asyncio.CancelledError:
                _kill(self._process)
                raise
            finally:
                if await to_its_end(_adopt(self._process, lines, begun)):
                    raise asyncio.CancelledError


def _kill(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()


async def _gone(process: asyncio.subprocess.Process) -> None:
    """Wait until a killed process is gone and no process holds its pipe, at most `END_LIMIT_S`."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(END_LIMIT_S):
            await process.wait()


async def _ask(process: asyncio.subprocess.Process, request: Forks, lines: list[str]) -> None:
    assert process.stdin is not None
    with contextlib.suppress(ConnectionError):
        process.stdin.write(request.encode())
        await process.stdin.drain()
    await _read(process, lines)


async def _read(process: asyncio.subprocess.Process, lines: list[str]) -> None:
    """Read lines up to END, or to the template's own end: the last line is END or empty."""
    assert process.stdout is not None
    while not lines or lines[-1] not in {"", END}:
        lines.append((await process.stdout.readline()).decode().strip())


async def _adopt(process: asyncio.subprocess.Process, lines: list[str], begun: Begun) -> None:
    """Add the forks to `begun` once they are children of this process.

    A fork that does not become one in time has run nothing yet (`prefork._outlive`), and is killed.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(END_LIMIT_S):
            await _read(process, lines)
            if lines[-1] != END:  # this process adopts the template's forks as the template ends
                await process.wait()
            while not all(_is_child(pid) for _, pid in _forks(lines)):  # noqa: ASYNC110 - nothing reports it
                await asyncio.sleep(LOOK_EVERY_S)
    for place, pid in _forks(lines):
        if _is_child(pid):
            begun[place] = AdoptedProcess(pid)
        else:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _forks(lines: Sequence[str]) -> list[tuple[int, int]]:
    """The place and the process id of each fork."""
    pairs = [line.split() for line in lines if line not in {"", END}]
    return [(int(place), int(pid)) for place, pid in pairs]


async def _next_tick() -> None:
    """Wait until a process that starts now has a later start than any before: the kernel counts in ticks."""
    now = _tick()
    while _tick() == now:  # noqa: ASYNC110 - nothing reports it
        await asyncio.sleep(LOOK_EVERY_S)


def _tick() -> int:
    """The present tick of the kernel's clock for starts of processes, usually of 10 ms."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))


@contextlib.contextmanager
def _reaping_orphans(template: int, begun: Begun) -> Iterator[None]:
    """Reap the orphans that became this process's children within the context and are not in `begun`.

    Those are workers of a killed agent, and processes of a killed template.
    """
    before, opened = _children(), _tick()
    try:
        yield
    finally:
        for pid in _children() - before - {process.pid for process in begun.values()}:
            stat = _stat(pid)
            if stat and (int(stat[BEGAN]) < opened or int(stat[SESSION]) == template):
                AdoptedProcess(pid)


def _children() -> set[int]:
    """Children of this process's first thread, which orphans become too."""
    pid = os.getpid()
    with contextlib.suppress(OSError):  # a kernel that does not list them
        return {int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}
    return set()


def _is_child(pid: int) -> bool:
    stat = _stat(pid)
    return bool(stat) and int(stat[PARENT]) == os.getpid()


def _stat(pid: int) -> list[str]:
    """The fields of a process's `stat`, from its state on; empty: there is no such process."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return []
