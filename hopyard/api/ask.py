"""Asks services over NATS, for questions that the HTTP API does not serve."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from hopyard.failures import Failure, Unreachable
from hopyard.local.credentials import OPERATOR, account_of
from hopyard.local.data_folder import StackFile, read_stack_file
from hopyard.local.stacks import BY_NATS, folder_at, folder_of_api, my_stack
from schemas.base import Message, Question
from schemas.questions import Refused
from schemas.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from shared.runtime.bus.jetstream.connection import Connection

M = TypeVar("M", bound=Message)
T = TypeVar("T")

CONNECT_TIMEOUT_S = 5.0


def ask(question: Question, kind: type[M], timeout_s: float) -> M:
    """The answer. Raises Unreachable if no service answers, Failure if the question is refused."""
    from shared.runtime.bus.jetstream.questions import JetStreamQuestions  # noqa: PLC0415 - brings NATS, which --help need not wait for

    reply = over_nats(lambda connection: JetStreamQuestions(connection).ask(question, timeout_s))
    if not isinstance(reply, kind):
        raise Failure(reply.reason if isinstance(reply, Refused) else "an answer of the wrong kind")
    return reply


def over_nats(do: "Callable[[Connection], Awaitable[T]]", api_url: str = "") -> T:
    """The result of `do` with a connection of the operator's account to the NATS of the given API's stack.

    Raises Unreachable, Failure.
    """
    import asyncio  # noqa: PLC0415 - --help need not wait for it

    return asyncio.run(connected(do, api_url))


async def connected(do: "Callable[[Connection], Awaitable[T]]", api_url: str = "") -> T:
    """`over_nats` within a running event loop."""
    from shared.runtime.bus.contract import Unavailable  # noqa: PLC0415 - as above
    from shared.runtime.bus.jetstream.connection import Connection  # noqa: PLC0415 - as above

    try:
        connection = Connection(_settings(api_url), "cli")
    except (PermissionError, ValueError) as error:  # of files that settings name
        raise Failure(str(error)) from None
    try:
        await connection.open(CONNECT_TIMEOUT_S)
        return await do(connection)
    except (Unavailable, PermissionError) as error:
        raise Unreachable(str(error)) from None
    except ValueError as error:
        raise Failure(str(error)) from None
    finally:
        await connection.close()


def _settings(api_url: str) -> Settings:
    """HOPYARD_NATS_URL and its like, else this user's own stack. Raises Unreachable if there is none."""
    from shared.runtime.settings import load_settings  # noqa: PLC0415 - as above

    try:
        settings = load_settings(os.environ)
    except ValueError as error:
        raise Failure(str(error)) from None
    if not ("HOPYARD_NATS_URL" in os.environ or settings.nats_url != Settings().nats_url):
        settings = msgspec.structs.replace(settings, nats_url=_stack(api_url).nats_url)
    return _with_account(settings)


def _stack(api_url: str) -> StackFile:
    if not api_url:
        return my_stack(Path.cwd(), instead=BY_NATS)
    data = folder_of_api(api_url)
    found = None if data is None else read_stack_file(data)
    if found is None:
        raise Unreachable(f"the NATS of the stack at {api_url} is not known here: HOPYARD_NATS_URL names it")
    return found


def _with_account(settings: Settings) -> Settings:
    """If no credentials are set and the address is that of a stack of this user: its operator's."""
    if settings.nats_credentials or settings.nats_token or settings.nats_user:
        return settings
    data = folder_at(Path.cwd(), lambda stack: stack.nats_url == settings.nats_url)
    account = None if data is None else account_of(data, OPERATOR)
    if account is None or not account.exists():
        return settings
    return msgspec.structs.replace(settings, nats_credentials=str(account))
