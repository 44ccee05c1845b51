"""Connects a command to the API: finds the address, and runs the command's coroutine."""

import os
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from hopyard.api.blocking import Blocking
from hopyard.api.client import ApiRefusal, Client, Place
from hopyard.api.session import Session
from hopyard.api.transport import Transport
from hopyard.failures import Failure, Invalid, Unreachable
from hopyard.local.credentials import own_token, token_in
from hopyard.local.data_folder import StackFile
from hopyard.local.stacks import folder_of_api, living, mine, my_stack
from schemas.views import ClockView

T = TypeVar("T")

SILENT_LIMIT_S = 30.0
"""seconds for which `patiently` repeats a request while the API is away or busy"""
LONG_LIMIT_S = 600.0
"""the same for commands that run as long as jobs do, which go on meanwhile"""
READY_LIMIT_S = 1.0
"""seconds after which another instance is asked"""
BACKOFF_S = 0.2
BACKOFF_LIMIT_S = 3.0
TOO_MANY_REQUESTS = 429
TOKEN = "HOPYARD_API_TOKEN"  # noqa: S105 - names of variables
TOKEN_FILE = "HOPYARD_API_TOKEN_FILE"  # noqa: S105 - as above


def api_url(given: str | None) -> str:
    """--api or HOPYARD_API_URL, else this user's own stack. Raises Unreachable when there is none.

    Of a stack with several instances of admission it is the address of the first that is ready.
    """
    return given or _first_ready(my_stack(Path.cwd()))


def _first_ready(stack: StackFile) -> str:
    first, *others = stack.api_urls()
    return next((url for url in (first, *others) if others and _is_ready(url)), first)


def _is_ready(url: str) -> bool:
    try:
        _driven(_call(_client(url, Blocking(READY_LIMIT_S)), lambda client: client.ready()))
    except (ApiRefusal, Unreachable):
        return False
    return True


def call(
    given: str | None,
    action: Callable[[Client], Awaitable[T]],
    afterwards: Callable[[Client], None] = lambda _: None,
    limit_s: float | None = None,
) -> T:
    """Run `action` with a client of the API, and `afterwards` if it went well.

    One request after the other, without an event loop: `action` awaits the client and nothing else.
    """
    return _driven(_call(_reached(given, lambda _: Blocking(limit_s)), action, afterwards))


def timed(given: str | None, action: Callable[[Client], Awaitable[T]]) -> tuple[T, ClockView | None]:
    """The result of `call`, and the cluster's clock at the answer."""

    async def both(client: Client) -> tuple[T, ClockView | None]:
        return await action(client), client.clock

    return call(given, both)


def clock_here() -> ClockView | None:
    """The clock of the cluster that `ask` reaches; None if its API is away, or may be another cluster's."""
    address = os.environ.get("HOPYARD_API_URL")
    if "HOPYARD_NATS_URL" in os.environ and not address:
        return None
    try:
        return timed(address, lambda client: client.policy())[1]
    except Failure:
        return None


async def _call(
    connection: Client,
    action: Callable[[Client], Awaitable[T]],
    afterwards: Callable[[Client], None] = lambda _: None,
) -> T:
    async with connection as client:
        done = await action(client)
        afterwards(client)
        return done


def _driven(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    coroutine.close()
    raise RuntimeError("who awaits more than the API uses `connect`, in an event loop")


def connect(url: str, token: str | None = None) -> Client:
    """A client for an event loop with other work. `token` None: found as commands find it. Raises Invalid."""
    return Client(url, Session(url), token=token_for(url) if token is None else token)


def reach(given: str | None) -> Client:
    """`connect` to --api or HOPYARD_API_URL, else to this user's own stack, wherever it is by now.

    Raises Unreachable when there is none, Invalid.
    """
    return _reached(given, Session)


def _reached(given: str | None, transport: Callable[[str], Transport]) -> Client:
    if given:
        return _client(given, transport(given))
    data, stack = mine(Path.cwd())
    url = _first_ready(stack)
    return Client(url, transport(url), token_for(url), lambda before: _elsewhere(data, before))


def _elsewhere(data: Path, before: str) -> Place | None:
    """Where the API of the stack on this folder is if not at `before`: it was started again, or has several.

    Another folder's stack is another cluster, with other jobs.
    """
    stack = living(data)
    if stack is None:
        return None
    urls = stack.api_urls()
    url = urls[(urls.index(before) + 1) % len(urls)] if before in urls else urls[0]
    return url, token_for(url)


def _client(url: str, transport: Transport) -> Client:
    return Client(url, transport, token=token_for(url))


def token_for(url: str) -> str:
    """The token in the environment, or in the file that it names; else the own token of this user's stack.

    A stack's own token goes to no other address than its own. Empty: there is none. Raises Invalid.
    """
    given, file = (os.environ.get(name, "") for name in (TOKEN, TOKEN_FILE))
    if given:
        return _sendable(given.strip(), TOKEN)
    if file:
        return _sendable(token_in(Path(file)), file)
    data = folder_of_api(url)
    return "" if data is None else own_token(data)


def _sendable(token: str, where: str) -> str:
    """A token as a header can hold it. Raises Invalid, which does not show it."""
    if not (token.isascii() and token.isprintable()):
        raise Invalid(f"{where} holds a character that no token has")
    return token


async def patiently(ask: Callable[[], Awaitable[T]], limit_s: float = SILENT_LIMIT_S) -> T:
    """Repeat `ask` while the API is away or busy. Raises the last error."""
    import asyncio  # noqa: PLC0415 - short commands do not need it, and others have imported it

    until = time.monotonic() + limit_s
    delay_s = BACKOFF_S
    while True:
        try:
            return await ask()
        except (Unreachable, ApiRefusal) as error:
            if not _passing(error) or time.monotonic() > until:
                raise
        await asyncio.sleep(delay_s)
        delay_s = min(2 * delay_s, BACKOFF_LIMIT_S)


def _passing(error: Unreachable | ApiRefusal) -> bool:
    return isinstance(error, Unreachable) or error.problem.status == TOO_MANY_REQUESTS


def on(client: Client) -> str:
    """Print which cluster answered."""
    return f"on cluster {client.cluster}, {client.url}" if client.cluster else f"on {client.url}"
