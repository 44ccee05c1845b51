"""How long a web server waits for its clients: for a request's head, its body, and to take the answer.

aiohttp waits for a head without limit, so a connection that says nothing, or a byte now and then, would hold
its file descriptor for ever, and the service has few of them.
"""

import asyncio
import resource
import time
from collections.abc import Collection

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from aiohttp.web_protocol import RequestHandler

HEAD_LIMIT_S = 15.0
"""from a connection's begin, or its last answer, to a whole request head"""
BODY_LIMIT_S = 30.0
WRITE_LIMIT_S = 60.0
"""until a client has taken what was written to it, but for what its connection holds"""
MANY = 256
CROWDED = 0.25
"""share of the process's file descriptors beyond which connections are closed sooner"""
HURRIED_S = 1.0
"""instead of `HEAD_LIMIT_S`, while there are more connections than either"""
LOOK_EVERY_S = 0.5


class ClientTimeouts:
    """Closes the connections that are silent for too long between two requests."""

    def __init__(self) -> None:
        self._answering: dict[object, int] = {}
        """requests by connection"""
        self._silent_since: dict[RequestHandler, float] = {}

    def middleware(self) -> Middleware:
        @web.middleware
        async def noted(request: web.Request, handler: Handler) -> web.StreamResponse:
            connection = request.protocol
            self._answering[connection] = self._answering.get(connection, 0) + 1
            try:
                return await handler(request)
            finally:
                self._answering[connection] -= 1
                if not self._answering[connection]:
                    del self._answering[connection]
                    self._silent_since.pop(connection, None)

        return noted

    async def watch(self, server: web.Server) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)  # an operator may lower it at any time
            most = MANY if soft == resource.RLIM_INFINITY else min(MANY, int(soft * CROWDED))
            for connection in self.overdue(server.connections, time.monotonic(), most):
                if connection.transport is not None:
                    connection.transport.abort()

    def overdue(
        self, connections: Collection[RequestHandler], now: float, most: int = MANY
    ) -> list[RequestHandler]:
        """Connections to close, at a monotonic time. Above `most` connections the limit is shorter."""
        silent = [one for one in connections if one not in self._answering]
        before = self._silent_since
        self._silent_since = {one: before.get(one, now) for one in silent}
        limit_s = HEAD_LIMIT_S if len(connections) <= most else HURRIED_S
        return [one for one, since in self._silent_since.items() if now - since > limit_s]


class TimedResponse(web.StreamResponse):
    """A response whose writes raise ConnectionResetError if the client does not read."""

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        try:
            async with asyncio.timeout(WRITE_LIMIT_S):
                await super().write(data)
        except TimeoutError:
            raise ConnectionResetError(f"nothing was read for {WRITE_LIMIT_S:g} s") from None
