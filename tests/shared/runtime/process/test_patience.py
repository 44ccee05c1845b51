"""Who is hung up on: connections that ask for nothing, sooner where there are many."""

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from aiohttp.web_protocol import RequestHandler

from shared.runtime.process.patience import HEAD_LIMIT_S, HURRIED_S, Patience


def connections(count: int) -> Sequence[RequestHandler]:
    return [cast("RequestHandler", object()) for _ in range(count)]


def test_a_silent_connection_is_overdue_after_the_limit_and_not_before() -> None:
    patience, those = Patience(), connections(2)
    assert patience.overdue(those, 0.0) == []
    assert patience.overdue(those, HEAD_LIMIT_S) == []
    assert patience.overdue(those, HEAD_LIMIT_S + 0.1) == those


def test_among_many_the_silent_are_overdue_sooner() -> None:
    patience, those = Patience(), connections(3)
    patience.overdue(those, 0.0)
    assert patience.overdue(those, HURRIED_S + 0.1, most=3) == []
    assert patience.overdue(those, HURRIED_S + 0.2, most=2) == those


@pytest.mark.asyncio
async def test_who_is_being_answered_is_not_silent_and_begins_anew_afterwards() -> None:
    patience, going_on = Patience(), asyncio.Event()
    request = make_mocked_request("GET", "/")

    async def handler(_: web.Request) -> web.StreamResponse:
        await going_on.wait()
        return web.Response()

    answering = asyncio.ensure_future(patience.middleware()(request, handler))
    await asyncio.sleep(0)
    for at in (0.0, 100.0):
        assert patience.overdue([request.protocol], at) == []
    going_on.set()
    await answering
    assert patience.overdue([request.protocol], 200.0) == []
    assert patience.overdue([request.protocol], 200.1 + HEAD_LIMIT_S) == [request.protocol]
