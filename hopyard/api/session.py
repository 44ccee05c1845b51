"""Requests by aiohttp, for commands that do other things in the same event loop."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from hopyard.api.certificates import needed_for
from hopyard.api.transport import TIMEOUT_S, Request, Response, broken_off, keep_alive, lost

if TYPE_CHECKING:
    import aiohttp


class Session:
    """A Transport that keeps its connections to `url`, where the certificates of the system may be needed."""

    _session: "aiohttp.ClientSession"

    def __init__(self, url: str) -> None:
        self._url = url

    async def open(self) -> None:
        with needed_for(self._url):
            import aiohttp  # noqa: PLC0415 - costs a tenth of a second, which short commands need not pay

        connector = aiohttp.TCPConnector(socket_factory=_kept_alive)
        self._session = aiohttp.ClientSession(
            connector=connector, timeout=aiohttp.ClientTimeout(total=TIMEOUT_S)
        )

    async def close(self) -> None:
        await self._session.close()

    @asynccontextmanager
    async def sent(self, request: Request, *, endless: bool = False) -> AsyncIterator[Response]:
        import asyncio  # noqa: PLC0415 - as above

        import aiohttp  # noqa: PLC0415 - as above

        method, url, headers, body, limit_s = request
        limit_s = limit_s or TIMEOUT_S
        limit = aiohttp.ClientTimeout(total=None if endless else limit_s, sock_connect=TIMEOUT_S)
        try:
            async with asyncio.timeout(limit_s):  # an endless answer begins in time, too
                response = await self._session.request(method, url, headers=headers, data=body, timeout=limit)
            async with response:
                yield Response(response.status, response.headers, response.content.iter_any())
        except aiohttp.ClientPayloadError:
            raise broken_off() from None
        except (aiohttp.ClientError, OSError) as error:
            raise lost(_cause(error)) from None


def _kept_alive(address: "aiohttp.AddrInfoType") -> socket.socket:
    """A socket for the address, as aiohttp makes one."""
    family, kind, protocol, *_ = address
    link = socket.socket(family, kind, protocol)
    keep_alive(link)
    return link


def _cause(error: BaseException) -> BaseException:
    """The error that aiohttp wraps."""
    return getattr(error, "certificate_error", None) or getattr(error, "os_error", None) or error
