"""Blocking requests by the standard library, for commands that do nothing else meanwhile.

Its import takes a fifth of aiohttp's, which is what a short command would wait for longest.
"""

from base64 import b64encode
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from urllib.parse import SplitResult, unquote, urljoin, urlsplit

from hopyard.api.transport import TIMEOUT_S, Request, Response, broken_off, keep_alive, lost

REDIRECTS_MAX = 10
AS_BEFORE = frozenset({307, 308})
"""redirects that repeat the request as it is; others turn it into a GET"""
REDIRECTS = frozenset({301, 302, 303}) | AS_BEFORE
CHUNK = 2**16


class Blocking:
    """A Transport whose coroutines never suspend. One connection is kept: the last."""

    def __init__(self, limit_s: float | None = None) -> None:
        self._limit_s = TIMEOUT_S if limit_s is None else limit_s
        self._origin = ("", "")
        self._connection: HTTPConnection | None = None

    async def open(self) -> None:
        """Nothing: the connection is made by the first request."""

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    @asynccontextmanager
    async def sent(self, request: Request, *, endless: bool = False) -> AsyncIterator[Response]:
        try:
            answer = self._answer(request, endless=endless)
            yield Response(answer.status, answer.headers, _chunks(answer))
            if not answer.isclosed():  # the rest was not read, and the next answer would follow it
                await self.close()
        except IncompleteRead:
            raise broken_off() from None
        except (HTTPException, OSError, ValueError) as error:  # ValueError: the URL is invalid
            await self.close()  # an answer that comes late would be taken for the next one
            raise lost(error) from None

    def _answer(self, request: Request, *, endless: bool) -> HTTPResponse:
        for _ in range(REDIRECTS_MAX):
            answer = self._sent(request, endless=endless)
            there = answer.headers.get("Location")
            if answer.status not in REDIRECTS or there is None:
                return answer
            answer.read()
            request = _redirected(request, answer.status, there)
        raise HTTPException(f"it redirects more than {REDIRECTS_MAX} times")

    def _sent(self, request: Request, *, endless: bool) -> HTTPResponse:
        """Repeat the request if a kept connection was closed meanwhile: every request may arrive twice."""
        parts = urlsplit(request.url)
        connection, kept = self._connected(parts)
        link = connection.sock
        assert link is not None
        if not kept:
            keep_alive(link)
        link.settimeout(request.limit_s or self._limit_s)
        try:
            connection.request(
                request.method, _target(parts), request.body, {**_login(parts), **request.headers}
            )
            answer = connection.getresponse()
        except ConnectionError:
            connection.close()
            if not kept:
                raise
            return self._sent(request, endless=endless)
        if endless:
            link.settimeout(None)
        return answer

    def _connected(self, parts: SplitResult) -> tuple[HTTPConnection, bool]:
        """The connection, and whether it was open before."""
        origin = (parts.scheme, parts.netloc)
        if self._connection is None or self._origin != origin:
            if self._connection is not None:
                self._connection.close()
            kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
            self._connection = kind(parts.hostname or "", parts.port, timeout=self._limit_s)
            self._origin = origin
        if self._connection.sock is not None:
            return self._connection, True
        self._connection.connect()
        return self._connection, False


async def _chunks(answer: HTTPResponse) -> AsyncIterator[bytes]:
    while chunk := answer.read1(CHUNK):
        yield chunk
    if answer.length:
        raise IncompleteRead(b"", answer.length)
    answer.close()


def _target(parts: SplitResult) -> str:
    return f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"


def _login(parts: SplitResult) -> Mapping[str, str]:
    """The login in an address such as http://name:password@host."""
    if parts.username is None:
        return {}
    login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {"Authorization": f"Basic {b64encode(login.encode()).decode()}"}


def _redirected(request: Request, status: int, there: str) -> Request:
    """The next request: no token for another server, and a body only if it is asked for again."""
    url = urljoin(request.url, there)
    same = urlsplit(url)[:2] == urlsplit(request.url)[:2]
    headers = {
        name: value for name, value in request.headers.items() if same or name.lower() != "authorization"
    }
    if status in AS_BEFORE:
        return request._replace(url=url, headers=headers)
    return Request("GET", url, headers)
