"""Tells streams, which are responses without an end of their own, that their web server ends."""

import asyncio

from aiohttp import web

_ENDS = web.AppKey("ends", asyncio.Event)


def announce_end(app: web.Application) -> None:
    """Have `ends` hold for the requests of an application once its server begins to end."""
    app[_ENDS] = asyncio.Event()

    async def announce(app: web.Application) -> None:
        app[_ENDS].set()

    app.on_shutdown.append(announce)


def ends(request: web.Request) -> bool:
    """Whether the server that answers the request ends; for a moment it waits for its streams."""
    return request.app[_ENDS].is_set()
