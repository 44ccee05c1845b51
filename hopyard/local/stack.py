"""The embedded stack: a NATS server, the services and an agent per node, as processes of this machine.

Every process is the one that runs in production, configured by its environment. All start at once, and
none waits for another: each retries until what it needs is there. At the end no process is left behind.
"""

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import aiohttp
import msgspec

from hopyard.failures import Invalid, NotReady
from hopyard.local.accounts import accounts_in, ensure_accounts, is_expelled, stamp_of
from hopyard.local.child import Program
from hopyard.local.clock import going_on
from hopyard.local.credentials import OPERATOR, account_of, ensure_tokens, own_token, page_link
from hopyard.local.damage import check_streams
from hopyard.local.data_folder import StackFile, close_contents, close_to_others, last_port, write_port
from hopyard.local.nats_supervision import keep_nats, start_nats
from hopyard.local.processes import Restarts, RunningProgram, Say, keep, start_all, stop
from hopyard.local.signals import to_its_end
from hopyard.local.stack_settings import (
    HOST,
    PROCESSES,
    SERVICES,
    StackSpec,
    account_environment,
    environment,
    overruled,
    own_accounts,
    own_environment,
    settings_of,
    write_files,
)
from hopyard.local.template import Template
from schemas.cluster import Node
from schemas.instances import instance_name
from schemas.settings import Settings
from services.table import OF_CLUSTER, OF_NODE
from shared.domain.cluster import nodes_of
from shared.runtime import owner_only
from shared.runtime.addresses import authority, loopback
from shared.runtime.process.nats_server import NatsServer, Peers
from shared.runtime.process.nats_servers import NatsServers, nats_servers, servers_begun
from shared.runtime.process.ports import HeldPorts
from shared.runtime.settings import load_settings

IMPORTS = ("shared.runtime.process.main", *(f"{entry.module}.build" for entry in (*OF_CLUSTER, *OF_NODE)))
"""modules that services import"""
READY_LIMIT_S = 90.0
READY_EVERY_S = 0.1
LOOK_EVERY_S = 0.5
REFUSED_EVERY_S = 5.0
"""seconds until accounts that NATS refused are handed over again"""
STOP_LIMIT_S = 5.0
SAVE_LIMIT_S = 60.0
"""the limit where agents run jobs' processes, which save before they end, whatever grace a job asks for"""


class Stack:
    """A running stack: its addresses and its identity."""

    def __init__(self, nats: NatsServers, ports: Mapping[str, int], *, data: Path, tls: bool) -> None:
        self.nats = nats
        self.ports = ports
        self.data = data
        self.scheme = "https" if tls else "http"
        self.api_url = f"{self.scheme}://{HOST}:{ports['admission']}"
        self.running: list[RunningProgram] = []
        self.accounts = stamp_of(data)
        """stamp of the accounts that NATS has taken; it reads those of now as it starts"""
        self.accounts_refused = ""
        """why NATS has not taken those of now; empty: it has, or will in a moment"""
        self.template = Template(IMPORTS)

    def settings(self) -> Settings:
        """Settings with which a program on this machine reaches its NATS, to ask and to read."""
        return msgspec.structs.replace(load_settings(os.environ), **self.at_nats())

    def at_nats(self) -> dict[str, str]:
        """The settings with which an operator connects to this stack's NATS."""
        account = str(account_of(self.data, OPERATOR)) if own_accounts(load_settings(os.environ)) else ""
        return {"nats_url": self.nats.url, "nats_credentials": account}

    @property
    def token(self) -> str:
        """An operator's token for the API."""
        return own_token(self.data)

    def page_link(self) -> str:
        """The page's address with a viewer's token, which only the owner may see."""
        return page_link(self.api_url, self.data)

    def stack_file(self) -> StackFile:
        """The description of this stack for other commands."""
        pids = {running.program.name: running.process.pid for running in self.running}
        ports = dict(self.ports)
        ended = [running for running in self.running if running.last_error]
        return StackFile(
            api_url=self.api_url,
            nats_url=self.nats.url,
            pid=os.getpid(),
            pids=pids,
            ports=ports,
            restarts={running.program.name: running.restarts for running in ended},
            last_errors={running.program.name: running.last_error for running in ended},
            accounts=self.accounts,
            accounts_refused=self.accounts_refused,
        )


@contextlib.asynccontextmanager
async def running_stack(spec: StackSpec, say: Say) -> AsyncIterator[Stack]:
    """A stack that is ready, for as long as the block lasts.

    Raises Invalid for bad settings, and NotReady. Cancels the block and raises Died when a service ended more
    often than `spec.restarts` allows, and so for NotInstalled and StoreDamaged.
    """
    settings = settings_of(spec)
    check_exposure(spec, settings)
    check_servers(spec)
    if warning := in_clear(spec, settings):
        say(warning)
    if without := overruled(spec):
        say(f"without effect on this stack: {', '.join(without)}")
    close_to_others(spec.data, _mode(settings))
    spec.data.chmod(_mode(settings))
    close_contents(spec.data)
    ensure_tokens(spec.data)
    ensure_accounts(spec.data, [node.node_id for node in _nodes(spec)])
    known = stamp_of(spec.data)
    tls = bool(settings.web_certificate)
    check_free(f"port {spec.api_port}", HOST, spec.api_port)
    check_free(f"--listen {authority(spec.nats.host, spec.nats.port)}", spec.nats.host, spec.nats.port)
    names = _names(spec)
    api = api_port(spec)
    held = HeldPorts(HOST, len(names))  # held to the end, so that a restarted process gets its port again
    ports = dict(zip(names, held.ports, strict=True)) | {"admission": api.ports[0]}
    write_port(spec.data, api.ports[0])
    stack = Stack(_nats(spec, settings), ports, data=spec.data, tls=tls)
    try:
        await start_nats(stack.nats, say)
        at_nats = msgspec.structs.replace(settings, **stack.at_nats())
        await check_streams(spec.data, at_nats, say, spec.nats_servers)
        spec = await going_on(spec, at_nats, say)
        await start_all(_programs(spec, stack), stack.template, stack.running)
        async with _kept(stack, spec.restarts, say, known):
            await _until_ready(stack)
            yield stack
    finally:
        # A signal that comes now changes nothing: an earlier failure is still what is raised.
        await to_its_end(_end(stack, SAVE_LIMIT_S if settings.runner == PROCESSES else STOP_LIMIT_S))


def api_port(spec: StackSpec) -> HeldPorts:
    """The port that is asked for, else the folder's last one: links and commands find the API there again."""
    if spec.api_port:
        return HeldPorts(HOST, port=spec.api_port)
    try:
        return HeldPorts(HOST, port=last_port(spec.data))
    except OSError:
        return HeldPorts(HOST)


async def _end(stack: Stack, limit_s: float) -> None:
    await stop(stack.running, limit_s)
    await stack.nats.stop()
    await stack.template.end()


def _nodes(spec: StackSpec) -> list[Node]:
    """The nodes of the stack's cluster, whose agents it starts itself, without those that were expelled."""
    nodes = nodes_of(spec.cluster) if spec.cluster else ()
    return [node for node in nodes if not is_expelled(spec.data, node.node_id)]


def _mode(settings: Settings) -> int:
    """Mode of the data folder. Jobs of other accounts, which only a root agent runs, must pass through it."""
    passed = settings.runner == PROCESSES and os.geteuid() == 0
    return owner_only.PASSED if passed else owner_only.FOLDER


def check_exposure(spec: StackSpec, settings: Settings) -> None:
    """Raises Invalid for a NATS that others reach and that asks for a user's name alone."""
    named_only = settings.nats_user and not (settings.nats_password or settings.nats_token)
    if named_only and not loopback(spec.nats.host):
        raise Invalid(f"nats_user without nats_password: at {spec.nats.host} it would let everybody in")


def in_clear(spec: StackSpec, settings: Settings) -> str:
    """A warning about a NATS that others reach without TLS; empty: there is no need for one."""
    if loopback(spec.nats.host) or settings.nats_certificate:
        return ""
    return (
        f"NATS at {spec.nats.host} speaks no TLS: passwords and jobs cross the network in the clear "
        "(settings nats_certificate, nats_key)"
    )


def check_servers(spec: StackSpec) -> None:
    """Raises Invalid for a folder that another number of NATS servers holds."""
    begun = servers_begun(spec.data / "nats")
    if begun not in (0, spec.nats_servers):
        raise Invalid(
            f"{spec.data} was begun with {begun} NATS server{'s' if begun > 1 else ''}, and "
            f"{spec.nats_servers} would not find its jobs: choose --nats {begun}, or another --data"
        )


def _nats(spec: StackSpec, settings: Settings) -> NatsServers:
    tls = (settings.nats_certificate, settings.nats_key) if settings.nats_certificate else None

    def server(folder: Path, number: int, peers: Peers | None) -> NatsServer:
        return NatsServer(
            folder,
            accounts=(lambda: accounts_in(spec.data)) if own_accounts(settings) else tuple,
            tls=tls,
            host=spec.nats.host,
            port=spec.nats.port if number == 0 else 0,
            token=settings.nats_token,
            user=settings.nats_user,
            password=settings.nats_password,
            peers=peers,
        )

    return nats_servers(spec.data / "nats", spec.nats_servers, server)


@contextlib.asynccontextmanager
async def _kept(stack: Stack, restarts: Restarts, say: Say, known: int) -> AsyncIterator[None]:
    """Keep every process alive while the block runs. Errors are raised without their exception group."""
    try:
        async with asyncio.TaskGroup() as group:
            keepers = [
                group.create_task(keep(running, stack.template, restarts, say)) for running in stack.running
            ]
            keepers.append(group.create_task(keep_nats(stack.nats, restarts, say)))
            keepers.append(group.create_task(keep_accounts(stack, say, known)))
            yield
            for keeper in keepers:
                keeper.cancel()
    except BaseExceptionGroup as several:
        raise _first(several) from None


async def keep_accounts(stack: Stack, say: Say, known: int) -> None:
    """Keep NATS' accounts up to date while the stack runs, as nodes are admitted and expelled.

    `known`: the accounts' stamp before the server read them. Accounts that cannot be read change nothing, nor
    do those that the server refuses: both are handed over until it takes them. The server reads each change
    twice (`NatsServer.take_accounts`).
    """
    again, given, refused = False, known, None
    while True:
        await asyncio.sleep(REFUSED_EVERY_S if refused else LOOK_EVERY_S)
        refused = why = stack.nats.why_not_taken()
        if refused == "":
            stack.accounts = given
        now = stamp_of(stack.data)
        due, again = again or bool(refused), now != known
        if due or again:
            known = now
            try:
                stack.nats.take_accounts()
                given, why = now, why or None  # it is known in a moment whether it takes these
            except (Invalid, OSError) as error:
                why, again = str(error), True
        if why and not stack.accounts_refused:
            say(f"NATS goes on with the accounts it has: {why}")
        if why == "" and stack.accounts_refused:
            say("NATS takes the accounts again")
        if why is not None:
            stack.accounts_refused = why


def _first(error: BaseException) -> BaseException:
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


def _programs(spec: StackSpec, stack: Stack) -> list[Program]:
    write_files(spec)
    environ = environment(spec, stack.nats.url)
    logs, runner = spec.data / "logs", settings_of(spec).runner
    return [
        Program(
            name=name,
            module=f"services.{service}",
            environ=environ
            | own_environment(spec, service, of, port)
            | account_environment(spec, name if of_node else service),
            log=logs / f"{name}.log",
            umask=-1 if of_node and runner == PROCESSES else owner_only.UMASK,
        )
        for name, port in stack.ports.items()
        for service, _, of in [name.partition("-")]
        for of_node in [service not in SERVICES]
    ]


def _names(spec: StackSpec) -> list[str]:
    """The name of each process."""
    nodes = _nodes(spec)
    services = [
        instance_name(name, number)
        for name in SERVICES
        for number in range(1, spec.instances.get(name, 1) + 1)
    ]
    return [*services, *(f"{entry.name}-{node.node_id}" for entry in OF_NODE for node in nodes)]


def check_free(name: str, host: str, port: int) -> None:
    """Raises NotReady when the port is taken, or the address is none of this machine."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, kind, _, _, address = min(found, key=lambda one: one[0] != socket.AF_INET)  # as NATS chooses
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except (OSError, UnicodeError) as error:  # the latter for what no host can be called
        reason = error.strerror if isinstance(error, OSError) else "no name of a host"
        raise NotReady(f"{name}: {reason}; choose another") from None


def free_ports(count: int) -> list[int]:
    """Free ports, all different; another program may still take one first."""
    return HeldPorts(HOST, count).ports


async def _until_ready(stack: Stack) -> None:
    began = time.monotonic()
    waiting = dict(stack.ports)
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5.0)) as session:
        while waiting:
            answers = await asyncio.gather(
                *(is_ready(session, port, stack.scheme) for port in waiting.values())
            )
            waiting = {
                name: port for (name, port), ready in zip(waiting.items(), answers, strict=True) if not ready
            }
            if time.monotonic() - began > READY_LIMIT_S:
                raise NotReady(f"not ready after {READY_LIMIT_S:g} s: {', '.join(waiting)}")
            await asyncio.sleep(READY_EVERY_S)


async def is_ready(session: aiohttp.ClientSession, port: int, scheme: str = "http") -> bool:
    """Whether the service behind a web port of this machine is ready; its certificate is not checked."""
    try:
        async with session.get(f"{scheme}://{HOST}:{port}/readyz", ssl=False) as response:
            return response.status == 200  # noqa: PLR2004 - HTTP's own number
    except (aiohttp.ClientError, OSError):
        return False
