"""The contract of both transports of requests, and their errors in words.

`blocking` is the standard library's, for a command that does one thing after the other; `session` is
aiohttp's, for programs that do something else meanwhile.
"""

import os
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

TIMEOUT_S = 10.0
"""seconds between two signs of life of the server, and for a whole answer that is not `endless`"""

KEEP_ALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""after so many seconds of silence the system asks whether the server is there, so often, so many times"""


class Request(NamedTuple):
    """A request; `url` includes the query."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes | None = None
    limit_s: float | None = None
    """in place of TIMEOUT_S, where the server may need longer"""


class Headers(Protocol):
    def get(self, name: str, otherwise: str, /) -> str:
        """A header by its name, in upper or lower case."""
        ...


class Response(NamedTuple):
    """A response; its `chunks` are of any length."""

    status: int
    headers: Headers
    chunks: AsyncIterator[bytes]


class Transport(Protocol):
    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def sent(self, request: Request, *, endless: bool = False) -> AbstractAsyncContextManager[Response]:
        """The response, whose chunks are still to be read; follows redirects.

        Raises Lost, also while the chunks are read. Only an `endless` response may be silent for long, and
        only once it has begun.
        """
        ...


class Lost(Exception):
    """There was no answer, or not all of it; the text says why."""


class Late(Lost):
    """The server accepted the connection and did not answer in time."""


def keep_alive(link: socket.socket) -> None:
    """Have the connection end within a minute if nobody is there any more.

    From a machine that lost its power, or behind a cable that was pulled, nothing comes, not even an error.
    """
    link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEP_ALIVE.items():
        if hasattr(socket, name):  # not everywhere, as the first one on macOS
            link.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def broken_off() -> Lost:
    return Lost("its answer breaks off")


def lost(error: BaseException) -> Lost:
    """The error with the words of its cause: of the resolver, of TLS, or of the system."""
    if isinstance(error, TimeoutError) and not error.errno:
        return Late(str(error))
    if isinstance(error, ssl.SSLCertVerificationError):
        return Lost(f"its certificate is not valid here: {error.verify_message}")
    if isinstance(error, ssl.SSLError):
        return Lost(f"no TLS with it: {(error.reason or str(error)).replace('_', ' ').lower()}")
    if isinstance(error, socket.gaierror):
        return Lost((error.strerror or str(error)).lower())
    number = error.errno if isinstance(error, OSError) else None
    return Lost(os.strerror(number).lower() if number else str(error) or type(error).__name__)
