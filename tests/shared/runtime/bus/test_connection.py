import asyncio
import errno
import re
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from nats.errors import Error
from nats.js.errors import ServerError, ServiceUnavailableError

from schemas.base import Message, Question
from schemas.questions import MONITOR, Refused, ShowStatus
from schemas.settings import Settings
from schemas.subjects import ALL_FACTS, FACTS_STREAM
from shared.runtime.bus.contract import Unavailable
from shared.runtime.bus.jetstream import JetStreamBus
from shared.runtime.bus.jetstream.connection import AWAY, NOTHING_STORED, dated, in_words
from shared.runtime.bus.jetstream.consumer import Consumer, Lost
from shared.runtime.process.nats_server import NatsServer
from tests.bus_nets import LIMIT_S, JetStreamNet, LiveNats
from tests.processes import standing_still
from tests.shared.runtime.bus.bus_build import cancelled, until


async def test_ten_services_may_start_at_once(live: JetStreamNet) -> None:
    buses = await asyncio.gather(*(live.client(f"service-{n}") for n in range(10)))
    assert all(bus.connected() for bus in buses)


async def test_a_stream_takes_on_changed_limits(live: JetStreamNet, nats: LiveNats) -> None:
    await (await live.client()).publish([cancelled()])
    changed = nats.settings(duplicate_window_real_s=30.0)
    bus = await JetStreamBus.connect(changed, "service", timeout_s=5.0)
    assert await bus.last_seq() == 1
    await bus.close()
    assert (await live.stream(FACTS_STREAM)).duplicate_window == 30.0


async def test_no_limit_of_the_stream_drops_facts(live: JetStreamNet) -> None:
    """Not even one that an earlier version gave it."""
    bus = await live.client()
    earlier = replace(await live.stream(FACTS_STREAM), max_bytes=1_000_000_000)
    await bus._connection.js.update_stream(earlier)
    await (await live.client("another")).last_seq()
    assert (await live.stream(FACTS_STREAM)).max_bytes == -1


def test_an_error_response_has_no_time() -> None:
    """One of several servers answers so while they have no leader: a service ended by it."""
    with pytest.raises(Error, match=r"no time in .*no leader"):
        dated(b'{"error":{"code":503,"description":"no leader"}}')


async def test_a_consumer_that_opens_as_the_connection_is_closed_is_lost(live: JetStreamNet) -> None:
    """To close it raised AttributeError, in place of what the reader waits for."""
    bus = await live.client()
    await bus.close()
    consumer = Consumer(bus._connection)
    try:
        with pytest.raises(Lost):
            await consumer.open(0, [ALL_FACTS])
    finally:
        await consumer.close()


async def test_no_server_is_unavailable_after_the_time_limit() -> None:
    settings = Settings(nats_url="nats://127.0.0.1:9")
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:9 within 0\.3 s: connection refused$"):
        await JetStreamBus.connect(settings, "service", timeout_s=0.3)


def no_tls() -> ssl.SSLError:
    """As of a server that speaks in the clear."""
    incoming = ssl.MemoryBIO()
    incoming.write(b"INFO {}\r\n")
    client = ssl.create_default_context().wrap_bio(incoming, ssl.MemoryBIO(), server_hostname="head")
    with pytest.raises(ssl.SSLError) as raised:
        client.do_handshake()
    return raised.value


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "name or service not known"),
        (no_tls(), "no TLS with it: .*(version|record).*"),
        (OSError(errno.EHOSTUNREACH, "Connect call failed ('10.0.0.1', 4222)"), "no route to host"),
        (OSError("Multiple exceptions: …"), "Multiple exceptions: …"),
        (
            ServiceUnavailableError(code=503, description="JetStream system …", err_code=10008),
            "NATS has no leader: too few of .*",
        ),
        (ServerError(500, "insufficient resources", 10023), "NATS says: insufficient resources"),
    ],
)
def test_why_a_server_is_not_reached_is_said_in_words(error: Exception, words: str) -> None:
    assert re.fullmatch(words, in_words(error))


async def test_a_server_that_takes_the_call_and_says_nothing_is_reported_in_words() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        settings = Settings(nats_url=f"nats://127.0.0.1:{mute.getsockname()[1]}")
        with pytest.raises(Unavailable, match=r" within 0\.3 s: it does not answer$"):
            await JetStreamBus.connect(settings, "service", timeout_s=0.3)


async def test_an_invalid_nats_url_is_named() -> None:
    with pytest.raises(ValueError, match=r"nats_url: .*'localhost'"):
        await JetStreamBus.connect(Settings(nats_url="localhost"), "service")


async def test_a_service_waits_for_a_server_that_starts_later(tmp_path: Path) -> None:
    server = NatsServer(tmp_path)
    connecting = asyncio.create_task(JetStreamBus.connect(Settings(nats_url=server.url), "service", 10.0))
    await asyncio.sleep(0.1)
    try:
        await server.start()
        bus = await connecting
        assert bus.connected()
        await bus.close()
    finally:
        await server.stop()
    assert not server.running()


async def test_a_service_that_does_not_answer_is_named(live: JetStreamNet) -> None:
    asker, asleep = await live.client("admission"), await live.client("monitor")
    with pytest.raises(Unavailable, match=r"^monitor is not there to answer$"):
        await asker.ask(ShowStatus(), 10.0)

    async def sleep(_: Question) -> Message:
        return await asyncio.Future[Message]()

    await asleep.serve("monitor", MONITOR, sleep)
    with pytest.raises(Unavailable, match=r"^monitor does not answer within 0\.2 s$"):
        await asker.ask(ShowStatus(), 0.2)


async def test_a_question_without_an_answer_says_that_nats_stores_nothing(tmp_path: Path) -> None:
    """As where most of its servers are away: no service knows whether it still leads, and none answers."""
    server = NatsServer(tmp_path)
    await server.start()
    settings = Settings(nats_url=server.url, publish_timeout_real_s=0.2)
    bus = await JetStreamBus.connect(settings, "admission", timeout_s=5.0)
    with standing_still(server.pid):
        with pytest.raises(Unavailable):
            await bus.put("lease/admission", b"")
        with pytest.raises(Unavailable, match=f"^monitor does not answer within 0.2 s: {NOTHING_STORED}$"):
            await bus.ask(ShowStatus(), 0.2)
    await bus.close()
    await server.stop()


async def test_a_question_without_a_connection_says_so(live: JetStreamNet, nats: LiveNats) -> None:
    """Also in the seconds in which another server may take over."""
    bus = await live.client("admission")
    nats.kill()
    await until(lambda: not bus.connected())
    with pytest.raises(Unavailable, match=f"^monitor cannot be asked: {AWAY}$"):
        await bus.ask(ShowStatus(), 0.2)
    await nats.restart()


async def test_an_unreachable_bus_is_named(live: JetStreamNet, nats: LiveNats) -> None:
    """The client says `outbound buffer limit exceeded`."""
    bus = await live.client("admission")
    nats.kill()
    await until(lambda: not bus.connected())
    with pytest.raises(Unavailable, match=r": there is no connection to NATS$"):
        await bus.get("cursor/admission")
    await nats.restart()


async def test_closing_does_not_wait_for_a_server_that_is_away(live: JetStreamNet, nats: LiveNats) -> None:
    bus = await live.client("monitor")
    await bus.serve("monitor", MONITOR, _nothing)
    nats.kill()
    await until(lambda: not bus.connected())
    async with asyncio.timeout(10.0):
        await bus.close()
    await nats.restart()


async def test_closing_does_not_wait_for_a_server_that_reads_nothing(tmp_path: Path) -> None:
    """The client waited until all was sent: a service that was to begin again hung between its lives."""
    async with frozen(NatsServer(tmp_path)) as bus:
        async with asyncio.timeout(LIMIT_S):
            await bus.close()


async def test_a_client_leaves_a_server_that_reads_nothing_for_another(tmp_path: Path) -> None:
    """The client waited until all was sent, and so for as long as the server stood still."""
    async with frozen(NatsServer(tmp_path / "one"), NatsServer(tmp_path / "other")) as bus:
        left = bus._connection.nats.connected_url
        await until(lambda: bus.counts.reconnects == 1)
        assert bus._connection.nats.connected_url != left
        await bus.close()


@asynccontextmanager
async def frozen(*servers: NatsServer) -> AsyncIterator[JetStreamBus]:
    """A bus whose server is stopped, with more on its way than the connection buffers."""
    for server in servers:
        await server.start()
    url = ",".join(server.url for server in servers)
    bus = await JetStreamBus.connect(Settings(nats_url=url), "service", timeout_s=5.0)
    connected = bus._connection.nats.connected_url
    assert connected is not None
    (its,) = [server for server in servers if server.port == connected.port]
    try:
        with standing_still(its.pid):
            await flood(bus)
            yield bus
    finally:
        for server in servers:
            await server.stop()


async def flood(bus: JetStreamBus) -> None:
    """More than a connection without a reader buffers."""
    for _ in range(200):
        await bus._connection.nats.publish("flood", bytes(100_000))
        await asyncio.sleep(0)


async def _nothing(_: Question) -> Message:
    return Refused(reason="nothing to say")


async def test_more_replicas_than_servers_is_a_clear_error(nats: LiveNats) -> None:
    await nats.ensure_running()
    with pytest.raises(ValueError, match="nats_replicas is 3, and NATS is one server alone"):
        await JetStreamBus.connect(nats.settings(nats_replicas=3), "service", timeout_s=5.0)


async def _try(settings: Settings) -> None:
    bus = await JetStreamBus.connect(settings, "service", timeout_s=5.0)
    await bus.publish([cancelled()])
    await bus.close()


async def test_only_the_token_gives_access(tmp_path: Path) -> None:
    server = NatsServer(tmp_path, token='s3"cret')
    await server.start()
    try:
        await _try(Settings(nats_url=server.url, nats_token='s3"cret'))
        for wrong in (Settings(nats_url=server.url), Settings(nats_url=server.url, nats_token="other")):
            with pytest.raises(PermissionError, match="refuses these credentials"):
                await _try(wrong)
    finally:
        server.kill()


async def test_a_user_and_password_give_access(tmp_path: Path) -> None:
    server = NatsServer(tmp_path, user="hopyard", password="pw")
    await server.start()
    try:
        await _try(Settings(nats_url=server.url, nats_user="hopyard", nats_password="pw"))
        with pytest.raises(PermissionError):
            await _try(Settings(nats_url=server.url, nats_user="hopyard", nats_password="no"))
    finally:
        server.kill()
