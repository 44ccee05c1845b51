"""Child processes: each in a group of its own, restarted a limited number of times, killed at the latest."""

import asyncio
import contextlib
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from hopyard.failures import MISCONFIGURED, NOT_INSTALLED, Died, NotInstalled, StoreDamaged
from hopyard.local.child import Program, command_line
from hopyard.local.template import LIMIT_S, Process, Template
from shared.runtime import owner_only
from shared.runtime.damage import EXIT_CODE

Say = Callable[[str], None]
"""prints a line about what happens"""

LOG_ROTATE_BYTES = 16 * 1024 * 1024
LOG_TAIL_LINES = 12
LINE_CHARS = 300
FORK_AGAIN_LIMIT_S = 10.0
"""seconds after which a program is restarted without the template, which may be stuck"""
KILL_LIMIT_S = 5.0
"""seconds for a killed process to be gone; one that waits for a disk stays until the disk answers"""


class Restarts(msgspec.Struct, frozen=True, kw_only=True):
    """How often a program that ends by itself is restarted."""

    most: int
    within_s: float = 60.0
    backoff_s: float = 0.5
    """seconds before the first restart; doubled with every further one"""
    shortest_s: float = 0.3
    """seconds that a program runs at least, if its end was ordered: nothing is ready sooner"""


class Allowance:
    """Counts the restarts that are left."""

    def __init__(self, restarts: Restarts) -> None:
        self._restarts = restarts
        self._recent: deque[float] = deque()

    def take(self) -> float | None:
        """Seconds to wait before one more restart, or None when there is none left."""
        now = time.monotonic()
        while self._recent and self._recent[0] < now - self._restarts.within_s:
            self._recent.popleft()
        if len(self._recent) >= self._restarts.most:
            return None
        self._recent.append(now)
        return self._restarts.backoff_s * 2.0 ** (len(self._recent) - 1)


class RunningProgram:
    """A program and the process that runs it at the moment."""

    def __init__(self, program: Program, process: Process) -> None:
        self.program = program
        self.process = process
        self.restarts = 0
        self.last_error = ""
        """how it last ended, and the last line of its log"""


async def start(program: Program) -> RunningProgram:
    """Start the program in a session of its own, its output appended to its log."""
    return RunningProgram(program, await _spawn(program))


async def start_all(
    programs: Sequence[Program],
    template: Template,
    running: list[RunningProgram],
    fork_limit_s: float = LIMIT_S,
) -> None:
    """Start the programs, as forks of `template` if it answers in time, and add them to `running`.

    If this is cancelled, `running` has those that were started, and no more are started.
    """
    for program in programs:
        _make_log(program)
    begun: dict[int, Process] = {}
    try:
        await template.fork(programs, begun, fork_limit_s)
    finally:
        running += [RunningProgram(programs[place], process) for place, process in sorted(begun.items())]
    for place, program in enumerate(programs):
        if place not in begun:
            running.append(await start(program))


async def _start_again(running: RunningProgram, template: Template) -> str:
    """Why the program cannot start, for instance for want of memory; empty: it has."""
    again: list[RunningProgram] = []
    try:
        await start_all([running.program], template, again, FORK_AGAIN_LIMIT_S)
    except OSError as error:
        running.last_error = f"did not start: {error.strerror or error}"
        return running.last_error
    else:
        return ""
    finally:
        for one in again:
            running.process = one.process


async def keep(running: RunningProgram, template: Template, restarts: Restarts, say: Say) -> None:
    """Start the program again whenever it ends. Raises Died when that happens too often.

    An end with exit code 0 was ordered, as by `hopyard restart`, and does not count, unless it came at once.

    Where another start would end the same way it raises at once: NotInstalled, StoreDamaged, and Died for
    settings with which the first start failed. A later start with bad settings is tried again, since a file
    that they name may be half written.
    """
    allowed = Allowance(restarts)
    while True:
        began = time.monotonic()
        code = await running.process.wait()
        kill_group(running.process.pid)
        if code == NOT_INSTALLED:
            raise NotInstalled(f"{running.program.name}: {_tail(running.program)[-1]}")
        if code == EXIT_CODE:
            raise StoreDamaged(_tail(running.program)[-1].removeprefix("hopyard "))
        if code == MISCONFIGURED and not running.restarts:
            raise Died(_tail(running.program)[-1].removeprefix("hopyard "))
        running.last_error = _last_error(running.program, code)
        lasted = time.monotonic() - began >= restarts.shortest_s
        how, ordered = f"ended with {_how(code)}", code == 0 and lasted and restarts.most > 0
        while how:
            delay_s = restarts.backoff_s if ordered else allowed.take()
            if delay_s is None:
                raise Died(_last_words(running.program, code))
            say(f"{running.program.name} {how}; starting it again in {delay_s:g} s")
            await asyncio.sleep(delay_s)
            how, ordered = await _start_again(running, template), False
        running.restarts += 1


async def stop(all_running: Iterable[RunningProgram], limit_s: float) -> None:
    """Send SIGTERM to each; after `limit_s`, or once it has ended, SIGKILL to what is left of its group."""
    processes = [running.process for running in all_running]
    for process in processes:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(limit_s):
            await asyncio.gather(*(process.wait() for process in processes))
    for process in processes:
        kill_group(process.pid)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(KILL_LIMIT_S):
            await asyncio.gather(*(process.wait() for process in processes))


def kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


async def _spawn(program: Program) -> Process:
    _make_log(program)
    with owner_only.appended(program.log) as log:
        return await asyncio.create_subprocess_exec(
            *command_line(program, os.getpid()),
            env=program.environ,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            umask=program.umask,
        )


def _make_log(program: Program) -> None:
    owner_only.make_folder(program.log.parent)
    _rotate(program.log)


def _rotate(log: Path) -> None:
    """Rename the log; one older log is kept, so that restarts over months do not fill the disk."""
    if log.exists() and log.stat().st_size > LOG_ROTATE_BYTES:
        log.replace(log.with_suffix(".log.1"))


def _last_words(program: Program, code: int) -> str:
    return "\n".join([f"{program.name} ended with {_how(code)}; the end of {program.log}:", *_tail(program)])


def _last_error(program: Program, code: int) -> str:
    """How the program ended; with an exit code also its log's last line that is no frame of a traceback."""
    lines = [
        line for line in _tail(program) if line.strip() and not line.startswith((" ", "\t")) and code > 0
    ]
    return ": ".join([f"ended with {_how(code)}", *(line[:LINE_CHARS] for line in lines[-1:])])


def _tail(program: Program) -> list[str]:
    try:
        return program.log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
    except OSError as error:  # the log's disk is gone, or the process was killed before it had a log
        return [f"its log cannot be read: {error.strerror}"]


def _how(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
