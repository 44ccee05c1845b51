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
from hopyard.local.credentials import OPERATOR, account_of, ensure_tokens, own_token, page_link, tokens_of
from hopyard.local.damage import ARCHIVE, check_streams
from hopyard.local.data_folder import StackFile, close_contents, close_to_others, store_of
from hopyard.local.nats_supervision import keep_nats, start_nats
from hopyard.local.processes import Restarts, RunningProgram, Say, keep, start_all, stop
from hopyard.local.signals import to_its_end
from hopyard.local.template import Template
from hopyard.local.threads import ONE_THREAD
from schemas.catalogue import NOTHING_MORE, CatalogueFile
from schemas.cluster import ClusterFile, Node
from schemas.instances import instance_name
from schemas.settings import Settings
from services.table import OF_CLUSTER, OF_NODE
from shared.domain.cluster import nodes_of
from shared.domain.conflicting_settings import check_together
from shared.runtime import owner_only
from shared.runtime.addresses import loopback
from shared.runtime.process.nats_server import NatsServer, Peers
from shared.runtime.process.nats_servers import NatsServers, nats_servers, servers_begun
from shared.runtime.process.ports import HeldPorts
from shared.runtime.settings import (
    FILE_VARIABLE,
    PREFIX,
    SOURCES_VARIABLE,
    in_environment,
    in_file,
    load_settings,
    sources_of,
)

SERVICES = tuple(entry.name for entry in OF_CLUSTER)
IMPORTS = ("shared.runtime.process.main", *(f"{entry.module}.build" for entry in (*OF_CLUSTER, *OF_NODE)))
"""what services need"""
HOST = "127.0.0.1"
OPEN_CLUSTER = "hopyard"
"""the name of one without a cluster file, unless the setting `cluster_name` has another"""
READY_LIMIT_S = 90.0
READY_EVERY_S = 0.1
LOOK_EVERY_S = 0.5
STOP_LIMIT_S = 5.0
SAVE_LIMIT_S = 60.0
"""where agents run processes, which save before they end: a job of a longer grace is killed all the same"""

PROCESSES = "process"
"""the runner that has folders"""
FOLDERS = ("jobs_folder", "run_folder")
"""in the data folder, where nothing else is set"""
OF_CLIENTS = ("api_token", "nats_credentials")
"""what a user shows to some stack: it makes no operator of him here, and is no account of this NATS"""

Value = str | int | float | bool


class Listen(msgspec.Struct, frozen=True, kw_only=True):
    """An address on which a server listens."""

    host: str = HOST
    port: int = 0
    """0: any free port"""


class StackSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What to run, and where. Settings are named as `hopyard config show` names them."""

    data: Path
    cluster: ClusterFile | None
    """None: nodes are known once agents join from elsewhere"""
    catalogue: CatalogueFile = NOTHING_MORE
    """of the emulated world, beside the shipped entries; with none, the file that the settings name"""
    clock_origin: float
    speed: float = 1.0
    scenario: str = ""
    """its name"""
    settings: Mapping[str, Value] = {}
    """of the scenario: the environment of this process wins over them"""
    chosen: Mapping[str, Value] = {}
    """on the command line: win over the environment"""
    instances: Mapping[str, int] = {}
    """of each service; of one that is not named there is one"""
    api_port: int = 0
    """0: any free port"""
    nats: Listen = Listen()
    nats_servers: int = 1
    """3: a cluster, and each holds all"""
    restarts: Restarts = Restarts(most=0)


class Stack:
    """A running stack: its addresses and its identity."""

    def __init__(self, nats: NatsServers, ports: Mapping[str, int], *, data: Path, tls: bool) -> None:
        self.nats = nats
        self.ports = ports
        self.data = data
        self.scheme = "https" if tls else "http"
        self.api_url = f"{self.scheme}://{HOST}:{ports['admission']}"
        self.running: list[RunningProgram] = []
        self.template = Template(IMPORTS)

    def settings(self) -> Settings:
        """Settings with which a program on this machine reaches its NATS, to ask and to read."""
        return msgspec.structs.replace(load_settings(os.environ), **self.at_nats())

    def at_nats(self) -> dict[str, str]:
        """The settings that lead there, as the operator."""
        account = str(account_of(self.data, OPERATOR)) if own_accounts(load_settings(os.environ)) else ""
        return {"nats_url": self.nats.url, "nats_credentials": account}

    @property
    def token(self) -> str:
        """An operator's."""
        return own_token(self.data)

    def page_link(self) -> str:
        """Of the page, with the token that it shows all by; for nobody's eyes but the owner's."""
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
        )


@contextlib.asynccontextmanager
async def running_stack(spec: StackSpec, say: Say) -> AsyncIterator[Stack]:
    """A stack that is ready, for as long as the block lasts.

    Raises Invalid for settings, and NotReady; Died when a service ended more often than `spec.restarts`
    allows, which also cancels the block, and so does NotInstalled.
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
    _claim(spec.api_port)
    names = _names(spec)
    held = HeldPorts(HOST, len(names))  # to the end: a process that starts again has its port
    ports = dict(zip(names, held.ports, strict=True)) | (
        {"admission": spec.api_port} if spec.api_port else {}
    )
    stack = Stack(_nats(spec, settings), ports, data=spec.data, tls=tls)
    try:
        await start_nats(stack.nats, say)
        at_nats = msgspec.structs.replace(settings, **stack.at_nats())
        await check_streams(spec.data, at_nats, say, spec.nats_servers)
        await start_all(_programs(spec, stack), stack.template, stack.running)
        async with _kept(stack, spec.restarts, say, known):
            await _until_ready(stack)
            yield stack
    finally:
        # A signal that comes now changes nothing: what failed before is what is raised.
        await to_its_end(_end(stack, SAVE_LIMIT_S if settings.runner == PROCESSES else STOP_LIMIT_S))


async def _end(stack: Stack, limit_s: float) -> None:
    await stop(stack.running, limit_s)
    await stack.nats.stop()
    await stack.template.end()


def _nodes(spec: StackSpec) -> list[Node]:
    """Of its cluster, whose agents the stack starts itself; none that was expelled."""
    nodes = nodes_of(spec.cluster) if spec.cluster else ()
    return [node for node in nodes if not is_expelled(spec.data, node.node_id)]


def _mode(settings: Settings) -> int:
    """Jobs with accounts of their own pass through to their folders; only an agent that is root has such."""
    passed = settings.runner == PROCESSES and os.geteuid() == 0
    return owner_only.PASSED if passed else owner_only.FOLDER


def own_accounts(settings: Settings) -> bool:
    """Whether each service and node has an account of its own: unless the settings have one for all."""
    return not (settings.nats_token or settings.nats_user)


def check_exposure(spec: StackSpec, settings: Settings) -> None:
    """Raises Invalid for a NATS that others reach and that lets in whoever knows a name."""
    named_only = settings.nats_user and not (settings.nats_password or settings.nats_token)
    if named_only and not loopback(spec.nats.host):
        raise Invalid(f"nats_user without nats_password: at {spec.nats.host} it would let everybody in")


def in_clear(spec: StackSpec, settings: Settings) -> str:
    """What is to be said of a NATS that others reach without TLS; empty: nothing."""
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
            f"{spec.data} was begun with {begun} NATS server{'s' if begun > 1 else ''}, and would be lost to "
            f"{spec.nats_servers}: choose --nats {begun}, or another --data"
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
    """Keep every process alive while the block runs. An error of the block comes out as it is."""
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

    `known`: the stamp of accounts before the server read them. Ones that cannot be read change nothing.
    The server reads each change twice (`NatsServer.take_accounts`).
    """
    again = failed = False
    while True:
        await asyncio.sleep(LOOK_EVERY_S)
        now = stamp_of(stack.data)
        due, again = again, now != known
        if not (due or again):
            continue
        known = now
        try:
            stack.nats.take_accounts()
            failed = False
        except (Invalid, OSError) as error:
            if not failed:
                say(f"NATS goes on with the accounts it has: {error}")
            again = failed = True


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
            environ=environ | _own(spec, service, of, port) | _account(spec, name if of_node else service),
            log=logs / f"{name}.log",
            umask=-1 if of_node and runner == PROCESSES else owner_only.UMASK,
        )
        for name, port in stack.ports.items()
        for service, _, of in [name.partition("-")]
        for of_node in [service not in SERVICES]
    ]


def write_files(spec: StackSpec) -> None:
    """Write the files that the settings of all services name."""
    if spec.cluster is not None:
        owner_only.write(_cluster_of(spec), msgspec.json.encode(spec.cluster))
    if spec.catalogue != NOTHING_MORE:
        owner_only.write(_catalogue_of(spec), msgspec.json.encode(spec.catalogue))


def environment(spec: StackSpec, nats_url: str) -> dict[str, str]:
    """The settings of all services: of the scenario, the environment, the command line, the stack itself.

    A later one wins.
    """
    ours = _own_settings(spec, nats_url)
    if spec.catalogue != NOTHING_MORE:
        ours["catalogue"] = str(_catalogue_of(spec).absolute())
    folders = _folders(spec)
    sources = {
        **{
            name: f"scenario {spec.scenario}".strip()
            for name in spec.settings
            if _variable(name) not in os.environ
        },
        **dict.fromkeys(spec.chosen, "command line"),
        **dict.fromkeys((*folders, *ours, "web_port", "node", "instance", "instances"), "the stack itself"),
    }
    handed_on = {SOURCES_VARIABLE: msgspec.json.encode(sources).decode()}
    return (
        ONE_THREAD
        | _variables(folders)
        | _variables(spec.settings)
        | os.environ
        | _variables(spec.chosen)
        | _variables(ours)
        | handed_on
    )


def _folders(spec: StackSpec) -> dict[str, Value]:
    """Those that nobody chose. A folder of this machine is none that nodes on others have."""
    nobodys = spec.cluster is None and not loopback(spec.nats.host)
    own = {ARCHIVE, *(() if nobodys else FOLDERS)} - {*sources_of(os.environ), *spec.settings, *spec.chosen}
    return {name: str((spec.data / name.partition("_")[0]).absolute()) for name in own}


def cluster_name(spec: StackSpec) -> str:
    """Raises Invalid for a bad setting."""
    return spec.cluster.name if spec.cluster else settings_of(spec).cluster_name or OPEN_CLUSTER


def _cluster_of(spec: StackSpec) -> Path:
    return spec.data / "cluster.json"


def _own_settings(spec: StackSpec, nats_url: str) -> dict[str, Value]:
    """The settings that the stack itself decides."""
    return {
        "nats_url": nats_url,
        **({"nats_replicas": spec.nats_servers} if spec.nats_servers > 1 else {}),
        "clock_origin": spec.clock_origin,
        "speed": spec.speed,
        "cluster": "" if spec.cluster is None else str(_cluster_of(spec).absolute()),
        "cluster_name": cluster_name(spec),
        "store": str(store_of(spec.data).absolute()),
        "output_folder": str((spec.data / "output").absolute()),
        "web_host": HOST,
        "api_tokens": str(tokens_of(spec.data).absolute()),
        **dict.fromkeys(OF_CLIENTS, ""),
    }


def _catalogue_of(spec: StackSpec) -> Path:
    return spec.data / "catalogue.json"


def _own(spec: StackSpec, service: str, of: str, port: int) -> dict[str, str]:
    """The environment of one process: its port, and its node or its number among instances, as `of` says."""
    if service not in SERVICES:
        return _variables({"web_port": port, "node": of})
    instance = int(of or 1)
    instances = spec.instances.get(service, 1)
    own: dict[str, Value] = {"web_port": port, "instance": instance, "instances": instances}
    return _variables(own | {"store": str(store_of(spec.data, instance).absolute())})


def _account(spec: StackSpec, name: str) -> dict[str, str]:
    """The file of the account by which a process comes to NATS."""
    if not own_accounts(settings_of(spec)):
        return {}
    return _variables({"nats_credentials": str(account_of(spec.data, name).absolute())})


def settings_of(spec: StackSpec) -> Settings:
    """What the services run with, as far as a user decides it.

    Raises Invalid for a bad setting, and for settings that cannot hold together.
    """
    copies = {"nats_replicas": spec.nats_servers} if spec.nats_servers > 1 else {}
    decided = _variables({**spec.chosen, "speed": spec.speed, **copies, **dict.fromkeys(OF_CLIENTS, "")})
    try:
        settings = load_settings(_variables(spec.settings) | os.environ | decided)
        check_together(settings)
    except ValueError as error:
        raise Invalid(str(error)) from None
    return settings


def overruled(spec: StackSpec) -> list[str]:
    """What the environment or its settings file sets and the stack decides otherwise, with who decides."""
    by = dict.fromkeys(_own_settings(spec, ""), "the stack itself")
    by |= dict.fromkeys((*spec.chosen, "speed"), "the command line")
    decided = _variables({**_own_settings(spec, ""), **spec.chosen})
    given = _variables({**in_file(os.environ), **in_environment(os.environ)})
    return [
        f"{_place(name, source)} ({by[name]} decides)"
        for name, source in sources_of(os.environ).items()
        if name in by and given[_variable(name)] != decided[_variable(name)]
    ]


def _place(name: str, source: str) -> str:
    """Where a setting stands, as a user would look for it."""
    return f"{name} in {source}" if source == os.environ.get(FILE_VARIABLE) else _variable(name)


def _variables(settings: Mapping[str, Value]) -> dict[str, str]:
    return {_variable(name): _text(value) for name, value in settings.items()}


def _variable(name: str) -> str:
    return PREFIX + name.upper()


def _text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _names(spec: StackSpec) -> list[str]:
    """Of each process."""
    nodes = _nodes(spec)
    services = [
        instance_name(name, number)
        for name in SERVICES
        for number in range(1, spec.instances.get(name, 1) + 1)
    ]
    return [*services, *(f"{entry.name}-{node.node_id}" for entry in OF_NODE for node in nodes)]


def _claim(port: int) -> None:
    """Raises NotReady when it is taken."""
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((HOST, port))
    except OSError as error:
        raise NotReady(f"port {port}: {error.strerror}; choose another") from None


def free_ports(count: int) -> list[int]:
    """Ports nobody listens on, no two the same; whoever comes first has them."""
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
    """Whether the service behind a web port of this machine says so; who it is need not be proven."""
    try:
        async with session.get(f"{scheme}://{HOST}:{port}/readyz", ssl=False) as response:
            return response.status == 200  # noqa: PLR2004 - HTTP's own number
    except (aiohttp.ClientError, OSError):
        return False
