"""`hopyard agent`: this process becomes the agent of this machine, in a stack that runs elsewhere."""

import asyncio
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from hopyard.failures import Failure, Invalid, Unreachable
from hopyard.local.accounts import admitted, admitted_any
from hopyard.local.processes import Say
from hopyard.local.stacks import folder_at, my_stack, starting
from schemas.settings import Settings
from services.agent.gpus.machine import UnfitMachine, machine_of
from shared.runtime.bus.contract import Unavailable
from shared.runtime.bus.jetstream.connection import ANY_NODE, Connection
from shared.runtime.bus.jetstream.state import JetStreamState
from shared.runtime.process.joining import Shared, announced, variables
from shared.runtime.settings import PREFIX, load_settings, sources_of
from shared.runtime.state_folder import state_folder

USUAL = {"nodes": "this-machine", "runner": "process"}
"""settings of such an agent, unless the environment or a settings file says otherwise"""
OUTPUT = Path("hopyard/output")
"""folder of the jobs' output, below the user's or the system's folder for the state of programs"""
CONNECT_LIMIT_S = 5.0
LOOK_EVERY_S = 0.5
ADMITTED_LIMIT_S = 5.0
HINT = "; HOPYARD_NATS_CREDENTIALS names the file that `hopyard node admit` has made there"


def join(given: Mapping[str, str], say: Say) -> NoReturn:
    """`given`: settings of the command line. Does not return: the process runs the agent from here on.

    Raises Invalid, InvalidFile, Failure for GPUs that are not there and for credentials that NATS refuses.
    """
    environ = environment(os.environ, given)
    settings = _loaded(environ)
    if settings.nodes == USUAL["nodes"]:
        environ[PREFIX + "NODE"] = _node_name(settings)
    environ |= _own_account(_loaded(environ))
    try:
        shared = asyncio.run(_shared(_loaded(environ), say))
    except _Refused as refusal:
        environ |= _account_once_up(_loaded(environ), refusal, say)
        shared = asyncio.run(_shared(_loaded(environ), say))
    environ |= variables(shared, sources_of(environ))
    _loaded(environ)
    os.execve(sys.executable, [sys.executable, "-P", "-m", "services.agent"], environ)  # noqa: S606 - ourselves


def environment(environ: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """The agent's environment, before it knows the stack. Raises Invalid; Unreachable without a stack."""
    try:
        own = sources_of(environ)
    except ValueError as error:
        raise Invalid(str(error)) from None
    usual = USUAL if "output_folder" in own else {**USUAL, "output_folder": _output_folder(environ)}
    if sys.stderr.isatty():
        usual = {**usual, "log_format": "console"}
    chosen = {name: value for name, value in usual.items() if name not in own} | dict(given)
    if "nats_url" not in chosen and "nats_url" not in own:
        chosen["nats_url"] = _my_nats()
    return {**environ, **{PREFIX + name.upper(): value for name, value in chosen.items()}}


def _output_folder(environ: Mapping[str, str]) -> str:
    try:
        return str(state_folder(environ) / OUTPUT)
    except FileNotFoundError as error:
        raise Invalid(str(error)) from None


def _my_nats() -> str:
    try:
        return my_stack(Path.cwd()).nats_url
    except Unreachable:
        raise Unreachable("no stack to join: name one by --join nats://HOST:4222") from None


def _own_account(settings: Settings) -> dict[str, str]:
    """The account for a stack that this user runs on this machine: the node needs no other admission."""
    data = folder_at(Path.cwd(), lambda stack: stack.nats_url == settings.nats_url)
    if data is None or _shown(settings):
        return {}
    file = admitted(data, settings.node) if settings.node else admitted_any(data)
    return {PREFIX + "NATS_CREDENTIALS": str(file.absolute())}


class _Refused(Failure):
    """NATS accepts no client without credentials, and none were given."""


def _account_once_up(settings: Settings, refusal: _Refused, say: Say) -> dict[str, str]:
    """The node's account in a stack of this user's that is still starting. Raises the refusal if none is."""
    waits = False
    while True:
        begun = starting()
        if found := _own_account(settings):
            return found
        if not begun:
            raise refusal
        if not waits:
            say(f"the stack on {begun[0]} is still starting; waiting until it is up")
        waits = True
        time.sleep(LOOK_EVERY_S)


def _loaded(environ: Mapping[str, str]) -> Settings:
    try:
        return load_settings(environ)
    except ValueError as error:
        raise Invalid(str(error)) from None


def _node_name(settings: Settings) -> str:
    try:
        return machine_of(settings).file.name
    except UnfitMachine as error:
        raise Failure(str(error)) from None


class _Store(JetStreamState):
    def __init__(self, connection: Connection) -> None:
        self._connection = connection


async def _shared(settings: Settings, say: Say) -> Shared:
    """The settings that all processes of the stack share; waits for the stack, however long."""
    try:
        connection = Connection(settings, "joining")
    except ValueError as error:
        raise Invalid(str(error)) from None
    except PermissionError as error:  # of credentials that cannot be read, or that others can read
        raise Failure(str(error)) from None
    _check_account(connection, settings)
    try:
        await _open(connection, say, settings)
        return await _look(_Store(connection), say)
    except PermissionError as error:
        raise Failure(str(error)) if _shown(settings) else _Refused(f"{error}{HINT}") from None
    finally:
        await connection.close()


def _check_account(connection: Connection, settings: Settings) -> None:
    """Raises Failure for the account of a service or of another node: with it an agent can do nothing."""
    own, file = connection.credentials, settings.nats_credentials
    if own is None:
        return
    if not connection.is_agents:
        raise Failure(
            f"{file} has the account {own.user}, which is no node's: "
            "`hopyard node admit NODE` on the head makes one"
        )
    if settings.node and connection.node not in {ANY_NODE, settings.node}:
        raise Failure(
            f"{file} has the account of node {connection.node}, and this one is called {settings.node}: "
            f"give it that name, or admit it on the head: hopyard node admit {settings.node}"
        )


def _shown(settings: Settings) -> bool:
    return bool(settings.nats_credentials or settings.nats_token or settings.nats_user)


async def _open(connection: Connection, say: Say, settings: Settings) -> None:
    """Connect, once NATS answers; a new account may take it a moment. Raises PermissionError."""
    waits, until = False, time.monotonic() + ADMITTED_LIMIT_S
    while True:
        try:
            return await connection.open(CONNECT_LIMIT_S)
        except PermissionError:
            if not settings.nats_credentials or time.monotonic() > until:
                raise
            await asyncio.sleep(LOOK_EVERY_S)
        except Unavailable as error:
            if not waits:
                say(f"{error}; trying again until there is one")
            waits = True


async def _look(store: JetStreamState, say: Say) -> Shared:
    """The stack's settings, once a service has announced them; prints if that takes long."""
    waits, late = False, time.monotonic() + ADMITTED_LIMIT_S
    while True:
        try:
            found = await announced(store)
        except Unavailable:
            found = None
        if found is not None:
            return found
        if not waits and time.monotonic() > late:
            say("no service of a stack answers on this NATS yet; waiting for one")
            waits = True
        await asyncio.sleep(LOOK_EVERY_S)
