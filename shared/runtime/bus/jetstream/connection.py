"""One process's connection to NATS: retried until it opens, kept while servers restart, closed once."""

import asyncio
import math
import os
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import structlog
from nats.aio.client import Server
from nats.errors import (
    ConnectionClosedError,
    ConnectionReconnectingError,
    Error,
    NoRespondersError,
    NoServersError,
    OutboundBufferLimitError,
)
from nats.js.errors import APIError, ServerError, ServiceUnavailableError

from schemas.settings import Settings
from schemas.subjects import AGENT, DEAD_PREFIX, FACTS_STREAM, READ_PREFIX
from shared.runtime.addresses import servers_of
from shared.runtime.bus.accounts import AGENTS, OPERATOR, inbox_of, is_agent
from shared.runtime.bus.backoff import CLUSTER_LONGEST_S, pause_s, pauses
from shared.runtime.bus.contract import Unavailable
from shared.runtime.bus.counts import Counts
from shared.runtime.bus.jetstream.asking_again import first_answer
from shared.runtime.bus.jetstream.cancellation import patch_wait_for
from shared.runtime.bus.jetstream.patched_client import PatchedClient
from shared.runtime.bus.limits import REASON_CHARS
from shared.runtime.owner_only import Exposed, read_secret

CONNECT_TIMEOUT_S = 2
REFUSALS = 5
"""refusals, before the first connection, after which credentials count as wrong: half a second or so"""
PING_EVERY_S = 5
"""after two pings without an answer the connection counts as lost"""
CLUSTER_PING_EVERY_S = 1
"""`PING_EVERY_S` if there is another server to go to"""
CLUSTER_CONNECT_TIMEOUT_S = 1
CLUSTER_REQUEST_TIMEOUT_S = 2.0
CLUSTER_CONFIRM_S = 1.0
"""a message that is not confirmed by then is sent again: the stream's leader may be gone, and another
elected"""
FLUSH_TIMEOUT_S = 1
LATE_S = 5.0
"""a wait of this length is logged as a warning"""
CLOCK_READINGS = 5
CLOCK_TIMEOUT_S = 2.0
REFUSED_AT_MOST = 1_000
"""subjects that are remembered as refused"""
ANY_NODE = "_"
"""in subjects, in place of the node of an agent whose account is for any node"""
_REFUSED = re.compile(
    r'permissions violation for (?P<how>publish|subscription) to "(?P<subject>[^"]+)"', re.IGNORECASE
)
STREAM_INFO = f"$JS.API.STREAM.INFO.{FACTS_STREAM}"
DEAD_LETTER_HEADER_BYTES = 4_096
SUBJECT_CHARS = 500
"""characters of a dead letter's subject that its header keeps"""
EXPECTED_LAST = "Nats-Expected-Last-Subject-Sequence"
"""header by which a message is refused unless the last one of its subject has this sequence; 0: none"""
NO_LEADER = 10008
"""JetStream's error code: the servers of a cluster do not agree on who leads"""
NOTHING_STORED = "NATS confirms nothing that it is to store; its disk may be full, or most servers away"
"""after a write that failed a server confirms nothing until it is started again where there is room"""
AWAY = "there is no connection to NATS"
REFUSED = "NATS refuses the credentials of this process"
"""as after an expulsion, until the node is admitted again"""
AWAY_AFTER_S = 3.0
"""within a second or two another server of a cluster takes over, or one that was restarted is back"""


class _Dated(msgspec.Struct):
    """The part of a JetStream answer that holds the server's time."""

    ts: datetime


def dated(answer: bytes) -> datetime:
    """The time at which the server answered. Raises Error for an answer that reports an error."""
    try:
        return msgspec.json.decode(answer, type=_Dated).ts
    except msgspec.DecodeError:
        raise Error(f"no time in {answer[:REASON_CHARS]!r}") from None


class Fence(msgspec.Struct, frozen=True):
    """Where the `ServiceLed` stands by which an instance leads while no newer one is on its subject."""

    subject: str
    seq: int

    @property
    def headers(self) -> dict[str, str]:
        """With these the server refuses a fact once the fence is not the newest of its subject."""
        return {
            EXPECTED_LAST: str(self.seq),
            f"{EXPECTED_LAST}-Subject": self.subject,
        }


class Connection:
    """One connection of one service, with callbacks for when it is lost, back or closed."""

    def __init__(self, settings: Settings, name: str) -> None:
        self.settings = settings
        self.name = name
        self.counts = Counts()
        self.log = structlog.get_logger().bind(bus=name)
        self.when_lost: set[Callable[[], None]] = set()
        self.when_back: set[Callable[[], None]] = set()
        self.when_closed: set[Callable[[], None]] = set()
        self.credentials = credentials_of(settings)
        self.fence: Fence | None = None
        """the leader's fence; None: a service or agent without other instances publishes without one"""
        self.why_not_stored = ""
        """why the last attempt to store something failed; empty: it did not"""
        self._unconfirmed_since = math.inf
        """when the oldest write began behind which NATS has confirmed none; infinite: there is none"""
        self.refused: set[str] = set()
        """subjects on which the server has refused this account to publish; in lower case, as the client
        reports them"""
        self._refuses_us = False
        """NATS refuses our credentials since the connection was lost"""
        self._unusable = ""
        """why the file of the credentials, read again, could not be used"""
        self._unreached: Exception = NoServersError()
        """why the last attempt to reach a server failed, which the client itself does not raise"""
        self._servers = servers_of(settings.nats_url)
        self._lost_server = ""
        """address of the server that was lost last"""
        self._lost_at = math.inf
        """when the connection was lost, by a clock that cannot be set; infinite: it is there"""
        self._changed = asyncio.Event()
        """set while connected, and once closed"""
        patch_wait_for()
        self._attach(PatchedClient())

    # ---- opening

    async def open(self, timeout_s: float | None) -> None:
        """Connect. Raises Unavailable if no server takes us in time, PermissionError after `REFUSALS`.

        One refusal says little: a server (2.15) that reads its accounts again refuses valid credentials too.
        """
        reason: Exception | None = None
        refusals, waits = 0, False
        try:
            async with asyncio.timeout(timeout_s):
                for pause in pauses():
                    reason = await self._try_to_open()
                    if reason is None:
                        return
                    refused = _is_of_credentials(reason)
                    refusals += refused
                    if refusals == REFUSALS:
                        raise PermissionError(f"NATS at {self._where} refuses these credentials: {reason}")
                    if not (refused or waits):
                        self.log.warning("waiting for NATS", servers=self._where, reason=repr(reason))
                        waits = True
                    await asyncio.sleep(pause)
        except TimeoutError:
            why = in_words(reason) if reason else "it does not answer"
            raise Unavailable(f"no NATS server at {self._where} within {timeout_s:g} s: {why}") from None

    async def _try_to_open(self) -> Exception | None:
        """Try once to connect, with a new client; returns why it failed, or None."""
        client = PatchedClient()
        try:
            await self._connect(client)
        except BaseException as error:
            await _discard(client)
            if not isinstance(error, (Error, OSError)):
                raise
            return self._unreached if isinstance(error, NoServersError) else error
        # Until here the client made one attempt; from here on it reconnects by itself, without end.
        client.options.update(allow_reconnect=True, max_reconnect_attempts=-1)
        self._attach(client)
        self._changed.set()
        return None

    async def _connect(self, client: PatchedClient) -> None:
        await client.connect(
            self._servers,
            name=self.name,
            **self._credentials(),
            **self._tls(),
            error_cb=self._on_error,
            disconnected_cb=self._on_lost,
            reconnected_cb=self._on_back,
            closed_cb=self._on_closed,
            allow_reconnect=False,
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            connect_timeout=CLUSTER_CONNECT_TIMEOUT_S if self.clustered else CONNECT_TIMEOUT_S,
            ping_interval=CLUSTER_PING_EVERY_S if self.clustered else PING_EVERY_S,
            reconnect_to_server_handler=self._next_server,
            pending_size=0,  # publishing while the connection is lost is an error at once
        )

    async def time_ahead(self, now: Callable[[], float]) -> tuple[float, float]:
        """Real seconds that the clock `now` (Unix time) is ahead of the server's, and their largest error.

        The server is asked a few times, and its quickest answer counts. Raises Unavailable.
        """
        with unavailable("the time at NATS"):
            readings = [await self._read_server_clock(now) for _ in range(CLOCK_READINGS)]
        return min(readings, key=lambda reading: reading[1])

    async def _read_server_clock(self, now: Callable[[], float]) -> tuple[float, float]:
        asked = now()
        if self.is_agents:
            reply = await first_answer(self.nats, f"{READ_PREFIX}.{self.node}.time", b"")
        else:
            reply = await self.nats.request(STREAM_INFO, b"", timeout=CLOCK_TIMEOUT_S)
        answered = now()
        server_time = dated(reply.data).timestamp()
        return (asked + answered) / 2 - server_time, (answered - asked) / 2

    def _attach(self, client: PatchedClient) -> None:
        self.nats = client
        limit_s = self.settings.publish_timeout_real_s
        self.js = client.jetstream(
            timeout=min(limit_s, CLUSTER_REQUEST_TIMEOUT_S) if self.clustered else limit_s
        )

    def _tls(self) -> dict[str, Any]:
        """Options for TLS, where the address or the settings ask for it. Raises OSError."""
        settings = self.settings
        secured = any(url.startswith(("tls:", "wss:")) for url in self._servers)
        if not (secured or settings.nats_authority or settings.nats_server_name):
            return {}
        try:
            context = ssl.create_default_context(cafile=settings.nats_authority or None)
        except OSError as error:
            raise OSError(f"{settings.nats_authority}: {error.strerror}") from None
        return {"tls": context, "tls_hostname": settings.nats_server_name or None}

    def _credentials(self) -> dict[str, Any]:
        settings, own = self.settings, self.credentials
        if own is not None:
            inbox = inbox_of(own.user).encode()
            return {"user": own.user, "password": own.password, "inbox_prefix": inbox}
        if settings.nats_token:
            return {"token": settings.nats_token}
        if settings.nats_user:
            return {"user": settings.nats_user, "password": settings.nats_password}
        return {}

    @property
    def clustered(self) -> bool:
        """Whether `nats_url` names several servers."""
        return len(self._servers) > 1

    @property
    def confirmed_s(self) -> float:
        """Real seconds to wait for an acknowledgement before a message is sent again."""
        limit = self.settings.publish_timeout_real_s
        return min(limit, CLUSTER_CONFIRM_S) if self.clustered else limit

    def pauses(self) -> Iterator[float]:
        """Real seconds to wait before each further attempt.

        Short in a cluster: it may elect a leader at any moment, without notice.
        """
        return pauses(CLUSTER_LONGEST_S) if self.clustered else pauses()

    @property
    def is_agents(self) -> bool:
        """Whether this is an agent's account, which may not use JetStream (`node_reads`)."""
        return self.credentials is not None and is_agent(self.credentials.user)

    @property
    def answers_agents(self) -> bool:
        """Whether this connection answers agents that ask what the streams hold (`node_reads`)."""
        own = self.credentials
        return own is not None and not self.is_agents and own.user != OPERATOR

    @property
    def node(self) -> str:
        """The node of this agent; ANY_NODE if its account is for any."""
        user = self.credentials.user if self.credentials else ""
        return user.removeprefix(f"{AGENT}-") if user != AGENTS else ANY_NODE

    @property
    def _where(self) -> str:
        return ", ".join(urlsplit(server).netloc.rpartition("@")[2] for server in self._servers)

    # ---- while it lasts

    def connected(self) -> bool:
        return bool(self.nats.is_connected)

    def write_confirmed(self) -> None:
        """Note that NATS stores."""
        self.why_not_stored, self._unconfirmed_since = "", math.inf

    def write_unconfirmed(self) -> None:
        """Note that NATS has not confirmed a write in its time. A lost connection has a reason of its own."""
        if self.connected():
            self.why_not_stored = NOTHING_STORED

    def write_given_up(self, began: float) -> None:
        """Note that a caller gave a write up, perhaps before its time was over.

        `began`: when it was sent, by the monotonic clock. The renewal of a lease waits less long than a fact
        does; but once no write has been confirmed for as long as a fact waits, nothing is stored.
        """
        self._unconfirmed_since = min(self._unconfirmed_since, began)
        if time.monotonic() - self._unconfirmed_since >= self.confirmed_s:
            self.write_unconfirmed()

    @property
    def why_away(self) -> str:
        """Why the connection is lost; empty for as long as another server may need to take over."""
        if time.monotonic() - self._lost_at <= AWAY_AFTER_S:
            return ""
        return REFUSED if self._refuses_us else AWAY

    async def up(self) -> None:
        """Wait for the connection. Raises Unavailable once it is closed."""
        await self._changed.wait()
        if self.nats.is_closed:
            raise Unavailable("the bus is closed")

    async def flush(self) -> None:
        """Wait until a server has our subscriptions. Raises Unavailable once the connection is closed.

        Where the connection is lost meanwhile the client subscribes again, so the server is asked again.
        """
        log = self.log_once_late()
        for pause in pauses():
            await self.up()
            try:
                await self.nats.flush()
            except Error as error:
                log("waiting for what is subscribed", reason=in_words(error))
            else:
                if self.connected():  # while the client reconnects, its `flush` returns at once
                    return
            await asyncio.sleep(pause)

    @contextmanager
    def notifying(self, listeners: set[Callable[[], None]], callback: Callable[[], None]) -> Iterator[None]:
        """A context in which every change of the connection calls `callback`."""
        listeners.add(callback)
        try:
            yield
        finally:
            listeners.discard(callback)

    def log_once_late(self) -> Callable[..., None]:
        """A function that logs what is waited for: as a warning once, after LATE_S; else as debug."""
        late_at, warned = time.monotonic() + LATE_S, False

        def log(event: str, **keys: object) -> None:
            nonlocal warned
            warns = not warned and time.monotonic() >= late_at
            warned = warned or warns
            (self.log.warning if warns else self.log.debug)(event, **keys)

        return log

    async def dead_letter(self, subject: str, data: bytes, reason: str, seq: int = 0) -> None:
        """Publish an unreadable message as a dead letter; it is lost if the bus is away."""
        self.counts.malformed += 1
        self.log.warning("malformed message", subject=subject, seq=seq, reason=reason)
        headers = {
            "Hopyard-Reason": reason[:REASON_CHARS],
            "Hopyard-Subject": subject[:SUBJECT_CHARS],
            "Hopyard-Seq": str(seq),
        }
        if (
            seq
        ):  # read again after a restart, it is dropped by this id; another's of this id has the same data
            headers["Nats-Msg-Id"] = f"{self.name}/{seq}/{blake2b(data, digest_size=8).hexdigest()}"
        room = self.nats.max_payload - DEAD_LETTER_HEADER_BYTES
        with suppress(Error):
            await self.nats.publish(f"{DEAD_PREFIX}.{self.name}", data[:room], headers=headers)

    async def _on_error(self, error: Exception) -> None:
        found = _REFUSED.search(str(error))
        if found is None:
            opened = self._changed.is_set() or self._lost_at < math.inf  # else `open` raises it
            if opened and _is_of_credentials(error) and not self._refuses_us:
                self._refuses_us = True
                self.log.error("NATS refuses the credentials", reason=str(error))
            elif isinstance(error, OSError):
                self._refuses_us, self._unreached = False, error
            self.log.debug("connection", reason=repr(error))
            return
        self.counts.subjects_refused += 1
        self.log.error("NATS refuses a subject", subject=found["subject"], reason=str(error))
        if found["how"] == "publish" and len(self.refused) < REFUSED_AT_MOST:
            self.refused.add(found["subject"])

    def refuses(self, subject: str) -> bool:
        """Whether the server has refused this account to publish there."""
        return subject.lower() in self.refused

    def check_allowed(self, subject: str) -> None:
        """Raises PermissionError for one on which the server has refused to publish."""
        if self.refuses(subject):
            raise PermissionError(f"this account may not publish on {subject}")

    def _next_server(self, servers: list[Server], _: dict[str, Any]) -> tuple[Server, float]:
        """The server to reconnect to, and the pause before: the one that failed least, the lost one last."""
        self._read_credentials_again()
        server = min(servers, key=lambda server: (server.reconnects, server.uri.netloc == self._lost_server))
        return server, pause_s(server.reconnects)

    def _read_credentials_again(self) -> None:
        """Take the password that the file has now: a node that is admitted again has a new one."""
        known, file = self.credentials, self.settings.nats_credentials
        if known is None or not Path(file).exists():  # an expelled node has no file
            return
        try:
            own = _credentials_for(known.user, self.settings)
        except PermissionError as error:
            if str(error) != self._unusable:
                self.log.warning("the credentials cannot be used", reason=str(error))
            self._unusable = str(error)
            return
        self.credentials, self._unusable = own, ""
        self.nats.options["password"] = own.password

    async def _on_lost(self) -> None:
        self._changed.clear()
        self._lost_at = time.monotonic()
        self._unconfirmed_since = math.inf
        current = self.nats._current_server  # noqa: SLF001 - the client has no other way to say
        self._lost_server = current.uri.netloc if current is not None else ""
        # The client would send what it has queued as soon as it is back, before what was lost with the socket
        # is published again: facts would change their order.
        self.nats._pending.clear()  # noqa: SLF001
        self.nats._pending_data_size = 0  # noqa: SLF001
        self.log.warning("connection lost")
        _call(self.when_lost)

    async def _on_back(self) -> None:
        self.counts.reconnects += 1
        self.log.info("connection back")
        self._refuses_us = False
        self._lost_at = math.inf
        self._changed.set()
        _call(self.when_back)

    async def _on_closed(self) -> None:
        self._changed.set()
        _call(self.when_closed)

    async def close(self) -> None:
        flushed = False
        if self.connected():
            with suppress(Error):
                await self.nats.flush(timeout=FLUSH_TIMEOUT_S)
                flushed = True
        await _discard(self.nats, flushed=flushed)
        await self._on_closed()


async def _discard(client: PatchedClient, *, flushed: bool = False) -> None:
    """Close a client without calling its callbacks, since a connection that we end is not lost.

    Unless it is `flushed`, what it has queued is dropped.
    """
    if not flushed:
        client.drop()
    client._disconnected_cb = client._closed_cb = None  # noqa: SLF001
    if client._flush_queue is not None:  # noqa: SLF001 - a client that never tried to connect cannot close
        await client.close()


@contextmanager
def unavailable(what: str) -> Iterator[None]:
    """A context in which errors of an unreachable bus are raised as Unavailable."""
    try:
        yield
    except APIError as error:
        if isinstance(error, (ServiceUnavailableError, ServerError)):
            raise Unavailable(f"{what}: {in_words(error)}") from error
        raise
    except Unavailable:
        raise
    except (Error, OSError) as error:
        raise Unavailable(f"{what}: {in_words(error)}") from error


def in_words(error: Exception) -> str:
    """An error of the NATS client in plain words."""
    match error:
        case OutboundBufferLimitError() | ConnectionClosedError() | ConnectionReconnectingError():
            return AWAY
        case TimeoutError():
            return "NATS does not answer in time"
        case NoRespondersError():
            return "nothing answers this subject"
        case APIError():
            return _of_jetstream(error)
        case OSError():
            return _of_system(error)
        case _:
            return str(error) or repr(error)


def _of_jetstream(error: APIError) -> str:
    if error.err_code == NO_LEADER:
        return "NATS has no leader: too few of its servers answer, or they elect one"
    return f"NATS says: {error.description}" if error.description else str(error)


def _of_system(error: OSError) -> str:
    match error:
        case ssl.SSLCertVerificationError():
            return f"its certificate is not valid here: {error.verify_message}"
        case ssl.SSLError():  # its `errno` is not the system's
            return f"no TLS with it: {(error.reason or str(error)).replace('_', ' ').lower()}"
        case socket.gaierror():
            return (error.strerror or str(error)).lower()
        case OSError(errno=int(number)):
            return f"{error.filename or ''}: {os.strerror(number)}".removeprefix(": ").lower()
        case _:
            return str(error) or repr(error)


def _is_of_credentials(error: Exception) -> bool:
    return "authorization" in str(error).lower()


class NatsCredentials(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file that the setting `nats_credentials` names."""

    user: str
    password: str


def credentials_of(settings: Settings) -> NatsCredentials | None:
    """None: the settings name no file. Raises PermissionError for one that we cannot read, or others can."""
    if not settings.nats_credentials:
        return None
    try:
        return msgspec.json.decode(read_secret(Path(settings.nats_credentials)), type=NatsCredentials)
    except Exposed as error:
        raise PermissionError(str(error)) from None
    except (OSError, msgspec.DecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise PermissionError(f"nats_credentials: {settings.nats_credentials}: {reason}") from None


def _credentials_for(user: str, settings: Settings) -> NatsCredentials:
    """Raises PermissionError as `credentials_of`, and for those of another user."""
    own = credentials_of(settings)
    if own is None or own.user != user:
        raise PermissionError(f"nats_credentials: {settings.nats_credentials}: not of the account {user}")
    return own


def _call(callbacks: set[Callable[[], None]]) -> None:
    for callback in tuple(callbacks):
        callback()
