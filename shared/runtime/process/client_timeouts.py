"""Limits how long a web server waits for a client: for a request's head, for its body, to read the answer.

aiohttp waits for a head without limit. A connection that sends nothing, or a byte now and then, would keep a
file descriptor for ever, of which the service has few.
"""

import asyncio
import resource
import time
from collections.abc import Collection

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from aiohttp.web_protocol import RequestHandler

from shared.runtime.transports import abort

HEAD_LIMIT_S = 15.0
"""seconds from the start of a connection, or its last answer, until the next request's head is here"""
BODY_LIMIT_S = 30.0
WRITE_LIMIT_S = 60.0
"""seconds for each write, until the client has read all but what its connection buffers"""
CROWDED = 256
CROWDED_SHARE = 0.25
"""share of the process's file descriptors"""
CROWDED_HEAD_LIMIT_S = 1.0
"""in place of `HEAD_LIMIT_S` while there are more connections than CROWDED or CROWDED_SHARE"""
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
            most = CROWDED if soft == resource.RLIM_INFINITY else min(CROWDED, int(soft * CROWDED_SHARE))
            for connection in self.overdue(server.connections, time.monotonic(), most):
                if connection.transport is not None:
                    abort(connection.transport)

    def overdue(
        self, connections: Collection[RequestHandler], now: float, most: int = CROWDED
    ) -> list[RequestHandler]:
        """Connections to close, at a monotonic time. Above `most` connections the limit is shorter."""
        silent = [one for one in connections if one not in self._answering]
        before = self._silent_since
        self._silent_since = {one: before.get(one, now) for one in silent}
        limit_s = HEAD_LIMIT_S if len(connections) <= most else CROWDED_HEAD_LIMIT_S
        return [one for one, since in self._silent_since.items() if now - since > limit_s]


class TimedResponse(web.StreamResponse):
    """A response whose writes raise ConnectionResetError if the client does not read."""

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        try:
            async with asyncio.timeout(WRITE_LIMIT_S):
                await super().write(data)
        except TimeoutError:
            raise ConnectionResetError(f"nothing was read for {WRITE_LIMIT_S:g} s") from None
