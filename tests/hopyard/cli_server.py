"""A real HTTP server that speaks admission's API with canned answers, in a thread of its own."""

import asyncio
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from aiohttp import web

from schemas.views import ClockView


class CannedApi:
    """Answers by `METHOD /path`; what came in is in `requests`."""

    def __init__(self) -> None:
        self.answers: dict[str, list[tuple[int, bytes]]] = {}
        self.requests: list[tuple[str, dict[str, str], dict[str, str], bytes]] = []
        self.url = ""
        self.cluster = ""
        self.moved: dict[str, str] = {}
        """where answers say that what was asked for is"""
        self.clock: bytes | None = None
        """what it says about the cluster's clock"""
        self.takes_s = 0.0
        self.together: dict[str, asyncio.Barrier] = {}
        """requests that are answered only once so many of them wait"""

    def keeps_time(self, *, now: float, origin: float = 0.0, speed: float = 1.0) -> None:
        self.clock = msgspec.json.encode(ClockView(now=now, origin=origin, speed=speed))

    def says(self, request: str, *messages: object, status: int = 200) -> None:
        """Answers one after the other; the last one again and again."""
        self.answers[request] = [(status, msgspec.json.encode(message)) for message in messages]

    def says_bytes(self, request: str, *bodies: bytes, status: int = 200) -> None:
        self.answers[request] = [(status, body) for body in bodies]

    def refuses(self, request: str, status: int, detail: str, field: str | None = None) -> None:
        problem = {"title": "no", "status": status, "detail": detail, "field": field}
        self.says(request, problem, status=status)

    async def handle(self, request: web.Request) -> web.Response:
        body = await request.read()
        await asyncio.sleep(self.takes_s)
        name = f"{request.method} {request.path}"
        self.requests.append((name, dict(request.query), dict(request.headers), body))
        if name in self.together:
            await self.together[name].wait()
        answers = self.answers.get(name, [(404, b"no such thing")])
        status, answer = answers.pop(0) if len(answers) > 1 else answers[0]
        headers = {} if self.clock is None else {"Hopyard-Clock": self.clock.decode()}
        headers |= {"Hopyard-Cluster": self.cluster} if self.cluster else {}
        headers |= {"Location": self.moved[name]} if name in self.moved else {}
        return web.Response(status=status, body=answer, headers=headers)


@contextmanager
def canned_api(tls: ssl.SSLContext | None = None) -> Iterator[CannedApi]:
    api = CannedApi()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    runner = asyncio.run_coroutine_threadsafe(_serve(api, tls), loop).result(10)
    try:
        yield api
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _serve(api: CannedApi, tls: ssl.SSLContext | None) -> web.AppRunner:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", api.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    addresses: list[Any] = runner.addresses
    api.url = f"{'https' if tls else 'http'}://127.0.0.1:{addresses[0][1]}"
    return runner
