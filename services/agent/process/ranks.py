"""A rank as a process: started by us, forked from a template, or found; and how it ended."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable

from services.agent.process.kernel.identities import Identity, identity_of, opened, send

EndOf = Callable[[], Awaitable[int | None]]
"""the exit code of a process that has ended, negative: the signal; None: nobody knows"""


class RankProcess:
    """`identity` None: it ended before anybody looked."""

    def __init__(self, identity: Identity | None, code: EndOf) -> None:
        self.identity = identity
        self._code = code

    async def ended(self) -> tuple[int | None, int | None]:
        """Wait for its end: exit code, signal."""
        if self.identity is not None:
            await _gone(self.identity)
        code = await self._code()
        if code is None or code >= 0:
            return code, None
        return None, -code

    def terminate(self) -> None:
        if self.identity is not None:
            send(self.identity, signal.SIGTERM)


def of_child(process: "subprocess.Popen[bytes]") -> RankProcess:
    async def code() -> int | None:
        return await asyncio.to_thread(process.wait)  # it has ended: there is nothing to wait for

    return RankProcess(identity_of(process.pid), code)


def found(identity: Identity | None) -> RankProcess:
    """A rank of an earlier life: that it ends can be seen, but not how."""

    async def code() -> int | None:
        return None

    return RankProcess(identity, code)


async def _gone(identity: Identity) -> None:
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
