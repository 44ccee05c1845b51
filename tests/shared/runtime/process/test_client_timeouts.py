"""Idle connections are closed, sooner where there are many."""

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from aiohttp.web_protocol import RequestHandler

from shared.runtime.process import client_timeouts as patience_module
from shared.runtime.process.client_timeouts import (
    CROWDED_HEAD_LIMIT_S,
    HEAD_LIMIT_S,
    ClientTimeouts,
    TimedResponse,
)
from shared.runtime.process.web import listen


def connections(count: int) -> Sequence[RequestHandler]:
    return [cast("RequestHandler", object()) for _ in range(count)]


def test_a_silent_connection_is_overdue_after_the_limit_and_not_before() -> None:
    timeouts, those = ClientTimeouts(), connections(2)
    assert timeouts.overdue(those, 0.0) == []
    assert timeouts.overdue(those, HEAD_LIMIT_S) == []
    assert timeouts.overdue(those, HEAD_LIMIT_S + 0.1) == those


def test_among_many_the_silent_are_overdue_sooner() -> None:
    timeouts, those = ClientTimeouts(), connections(3)
    timeouts.overdue(those, 0.0)
    assert timeouts.overdue(those, CROWDED_HEAD_LIMIT_S + 0.1, most=3) == []
    assert timeouts.overdue(those, CROWDED_HEAD_LIMIT_S + 0.2, most=2) == those


@pytest.mark.asyncio
async def test_a_connection_being_answered_is_not_overdue_and_has_a_full_limit_afterwards() -> None:
    timeouts, going_on = ClientTimeouts(), asyncio.Event()
    request = make_mocked_request("GET", "/")

    async def handler(_: web.Request) -> web.StreamResponse:
        await going_on.wait()
        return web.Response()

    answering = asyncio.ensure_future(timeouts.middleware()(request, handler))
    await asyncio.sleep(0)
    for at in (0.0, 100.0):
        assert timeouts.overdue([request.protocol], at) == []
    going_on.set()
    await answering
    assert timeouts.overdue([request.protocol], 200.0) == []
    assert timeouts.overdue([request.protocol], 200.1 + HEAD_LIMIT_S) == [request.protocol]


@pytest.mark.asyncio
async def test_a_connection_answered_between_two_checks_has_a_full_limit_again() -> None:
    timeouts, request = ClientTimeouts(), make_mocked_request("GET", "/")

    async def handler(_: web.Request) -> web.StreamResponse:
        return web.Response()

    for at in (0.0, HEAD_LIMIT_S - 1.0, 2 * (HEAD_LIMIT_S - 1.0)):
        assert timeouts.overdue([request.protocol], at) == []
        await timeouts.middleware()(request, handler)
    assert timeouts.overdue([request.protocol], 3 * (HEAD_LIMIT_S - 1.0)) == []


@pytest.mark.asyncio
async def test_a_client_that_does_not_read_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience_module, "WRITE_LIMIT_S", 0.2)
    ended: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

    async def endless(request: web.Request) -> web.StreamResponse:
        response = TimedResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(bytes(65_536))
        except ConnectionResetError as error:
            ended.set_result(error)
            raise

    app = web.Application()
    app.router.add_get("/", endless)
    site = await listen(app, "127.0.0.1", 0)
    _, writer = await asyncio.open_connection("127.0.0.1", site.port, limit=1_024)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    async with asyncio.timeout(60):
        assert str(await ended) == "nothing was read for 0.2 s"
    writer.transport.abort()
    await site.close()
