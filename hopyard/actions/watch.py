"""Shows a list once or, with `--watch`, repeatedly."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import TypeVar

from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from hopyard.api.client import Client
from hopyard.api.connect import reach
from hopyard.failures import Invalid, Unreachable
from hopyard.local.signals import run_until_stopped
from hopyard.show.terminal import console, put
from hopyard.show.times import Times

T = TypeVar("T")

EVERY_S = 2.0


def watch(
    given: str | None,
    look: Callable[[Client], Awaitable[T]],
    picture: Callable[[T, Times], RenderableType],
    *,
    as_json: bool,
) -> None:
    """Show the list repeatedly until Ctrl-C: in place on a terminal, one below the other elsewhere.

    Once the API has answered, it may be away for a while. Raises what the first request raises.
    """
    if as_json:
        raise Invalid("--watch shows a table; for JSON ask again")
    run_until_stopped(_watch(reach(given), look, picture))


async def _watch(
    found: Client, look: Callable[[Client], Awaitable[T]], picture: Callable[[T, Times], RenderableType]
) -> None:
    async with found as client:

        async def looked() -> RenderableType:
            answer = await look(client)
            times = Times(client.clock)
            return Group(picture(answer, times), *([Text(times.note(), "dim")] if times.note() else []))

        newest = await looked()
        if not sys.stdout.isatty():
            while True:
                put(newest)
                put("")
                await pause()
                newest = await _or_why_not(looked, newest)
        with Live(newest, console=console(), auto_refresh=False) as live:
            while True:
                await pause()
                newest = await _or_why_not(looked, newest)
                live.update(newest, refresh=True)


async def pause() -> None:
    await asyncio.sleep(EVERY_S)


async def _or_why_not(
    looked: Callable[[], Awaitable[RenderableType]], before: RenderableType
) -> RenderableType:
    try:
        return await looked()
    except Unreachable as error:
        shown = before.renderables[0] if isinstance(before, Group) else before
        return Group(shown, Text(str(error), "red"))
