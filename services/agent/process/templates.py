"""Templates: processes that have imported torch, and are forked to start ranks fast; one per interpreter.

A template ends with its agent, its forks do not. Without a template, or if it is not ready in time, a rank is
started as a new process.
"""

import asyncio
import contextlib
import itertools
import signal
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import structlog

from services.agent.process.kernel.identities import identity_of, send
from services.agent.process.kernel.spawning import ProcessSpec
from services.agent.process.launch import PLUGIN, Script
from services.agent.process.ranks import RankProcess

READY_LIMIT_S = 40.0
FORK_LIMIT_S = 10.0
END_LIMIT_S = 5.0
TEMPLATES_MAX = 8
"""templates of an agent, which take 200 MB each and more"""
ROOM = " " * 4_096
"""makes a template's environment large enough for what a fork writes over it: see `hopjob.process_title`"""
CODE_LIMIT_S = 5.0
"""how long after its end a fork's exit code may take to come"""

ENDED = "the template has ended"

log = structlog.get_logger()


class NoTemplate(OSError):
    """There is no template for this interpreter."""


class Fork(NamedTuple):
    pid: int
    code: "asyncio.Future[int]"
    """its exit code, once it has ended"""


class Template:
    """The template of one interpreter. Messages both ways are JSON lines, each an object with one key."""

    def __init__(self, process: Process) -> None:
        self.ended = False
        self.retired = False
        """whether it forks no more and ends with its last fork: it has to make room, or other libraries are
        installed than it has imported"""
        self._process = process
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._forked: dict[int, asyncio.Future[Fork]] = {}
        self._codes: dict[int, asyncio.Future[int]] = {}
        self._numbers = itertools.count(1)
        self._reading = asyncio.create_task(self._read())

    async def ready(self) -> None:
        """Wait until it has imported its libraries. Raises NoTemplate, TimeoutError."""
        async with asyncio.timeout(READY_LIMIT_S):
            await asyncio.shield(self._ready)

    async def fork(self, script: Script, start: ProcessSpec) -> RankProcess:
        """Start a rank as a fork. Raises NoTemplate, TimeoutError."""
        number = next(self._numbers)
        self._forked[number] = forked = asyncio.get_running_loop().create_future()
        about = {
            "id": number,
            "argv": list(script.argv),
            "env": dict(start.environment),
            "cwd": start.folder or str(Path.cwd()),
            "log": str(start.log),
            "enter": [str(path) for path in start.groups],
        }
        self._send(fork=about)
        try:
            async with asyncio.timeout(FORK_LIMIT_S):
                pid, code = await forked
        except (TimeoutError, asyncio.CancelledError):
            if forked.done() and not forked.cancelled() and not forked.exception():
                _end_fork(forked.result().pid)
            raise
        return RankProcess(identity_of(pid), lambda: _within_limit(code))

    def retire(self) -> None:
        with contextlib.suppress(NoTemplate):
            self._send(retire={})
        self.retired = True

    async def close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            async with asyncio.timeout(END_LIMIT_S):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        self._reading.cancel()
        await asyncio.wait({self._reading})
        self._end()

    def _send(self, **message: object) -> None:
        if self.ended or self.retired or self._process.stdin is None or self._process.stdin.is_closing():
            raise NoTemplate(ENDED)
        self._process.stdin.write(msgspec.json.encode(message) + b"\n")

    async def _read(self) -> None:
        assert self._process.stdout is not None, "it is a pipe"
        with contextlib.suppress(OSError, ValueError, msgspec.MsgspecError):
            while line := await self._process.stdout.readline():
                self._take(msgspec.json.decode(line))
        self._end()

    def _take(self, message: dict[str, Any]) -> None:
        match message:
            case {"ready": _} if not self._ready.done():
                self._ready.set_result(None)
            case {"forked": {"id": int(number), "pid": int(pid)}} if number in self._forked:
                code = self._codes[pid] = asyncio.get_running_loop().create_future()
                waiting = self._forked.pop(number)
                if waiting.done():
                    _end_fork(pid)
                else:
                    waiting.set_result(Fork(pid, code))
            case {"outdated": _}:
                self.retired = True
            case {"unforked": {"id": int(number), "reason": str(reason)}} if number in self._forked:
                _fail(self._forked.pop(number), reason)
            case {"gone": {"pid": int(pid), "code": int(code)}} if pid in self._codes:
                self._codes.pop(pid).set_result(code)  # a later fork may get the same pid

    def _end(self) -> None:
        self.ended = True
        for waiting in self._forked.values():
            _fail(waiting, ENDED)
        _fail(self._ready, ENDED)


async def _within_limit(code: "asyncio.Future[int]") -> int | None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(CODE_LIMIT_S):
            return await asyncio.shield(code)
    return None


def _end_fork(pid: int) -> None:
    """Kill a fork that came too late: its rank was started as a new process, or is no longer wanted."""
    identity = identity_of(pid)
    if identity is not None:
        send(identity, signal.SIGKILL)


def _fail(waiting: "asyncio.Future[Any]", reason: str) -> None:
    if not waiting.done():
        waiting.set_exception(NoTemplate(reason))
        waiting.exception()  # mark it as retrieved: perhaps no task waits for it


class Templates:
    """The templates of an agent, by interpreter."""

    def __init__(self, plugin: str, environ: dict[str, str]) -> None:
        self._environ = environ | {"PYTHONPATH": plugin, "HOPJOB_ROOM": ROOM}
        self._made: dict[str, asyncio.Task[Template | None]] = {}
        """the one that was used last is the last"""
        self._retired: list[Template] = []
        """those that perhaps still have forks"""

    async def of(self, interpreter: str) -> Template | None:
        """The template of an interpreter (an absolute path), once it is ready; None if there is none."""
        made = self._made.pop(interpreter, None)
        was = made.result() if made is not None and made.done() else None
        if made is None or (was is not None and (was.ended or was.retired)):
            self._retire(was)
            made = asyncio.create_task(self._open(interpreter))
        self._retire_oldest()
        self._made[interpreter] = made
        return await asyncio.shield(made)

    def _retire_oldest(self) -> None:
        """Make room for one more."""
        ready = [name for name, one in self._made.items() if one.done()]
        for name in ready[: max(len(self._made) + 1 - TEMPLATES_MAX, 0)]:
            self._retire(self._made.pop(name).result())

    def _retire(self, template: Template | None) -> None:
        if template is not None:
            template.retire()
            self._retired = [one for one in (*self._retired, template) if not one.ended]

    async def close(self) -> None:
        for making in self._made.values():
            making.cancel()
            await asyncio.wait({making})
            if not making.cancelled() and (template := making.result()):
                await template.close()
        for template in self._retired:
            await template.close()

    async def _open(self, interpreter: str) -> Template | None:
        template = None
        try:
            process = await asyncio.create_subprocess_exec(
                *(interpreter, "-m", f"{PLUGIN}.template"),
                env=self._environ,
                cwd="/",  # the agent's folder may have files that are named like modules
                stdin=PIPE,
                stdout=PIPE,
                start_new_session=True,
            )
            template = Template(process)
            await template.ready()
        except (OSError, TimeoutError) as error:
            log.warning("no template", interpreter=interpreter, reason=str(error))
            if template is not None:
                await template.close()
            return None
        except asyncio.CancelledError:  # the agent ends, and so does the template
            if template is not None:
                await template.close()
            raise
        return template
