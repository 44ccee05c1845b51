"""The process of a rank, whether started here, forked from a template or adopted, and how it ended."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable

from services.agent.process.kernel.identities import Identity, identity_of, opened, run_by_shells, send

EndOf = Callable[[], Awaitable[int | None]]
"""returns a process's exit code after its end; below 0: minus the signal that ended it; None: not known"""


class RankProcess:
    """`identity` None: the process had ended before it was looked up."""

    def __init__(self, identity: Identity | None, code: EndOf) -> None:
        self.identity = identity
        self._code = code

    async def ended(self) -> tuple[int | None, int | None]:
        """Wait for its end; returns (exit code, signal), one of them None, or both if not known."""
        if self.identity is not None:
            await gone(self.identity)
        code = await self._code()
        if code is None or code >= 0:
            return code, None
        return None, -code

    def terminate(self) -> None:
        """Send SIGTERM; if the process is a shell, also to what it runs, since it hands no signal on."""
        if self.identity is not None:
            for one in (self.identity, *run_by_shells(self.identity)):
                send(one, signal.SIGTERM)


def child_rank(process: "subprocess.Popen[bytes]") -> RankProcess:
    async def code() -> int | None:
        return await asyncio.to_thread(process.wait)  # it has ended: there is nothing to wait for

    return RankProcess(identity_of(process.pid), code)


def found_rank(identity: Identity | None) -> RankProcess:
    """A rank of an earlier life: it is no child of this process, so its exit code cannot be read."""

    async def code() -> int | None:
        return None

    return RankProcess(identity, code)


async def gone(identity: Identity) -> None:
    """Wait for the end of a process."""
    descriptor = opened(identity)
    if descriptor is None:
        return
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
