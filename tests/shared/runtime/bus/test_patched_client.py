"""What the NATS library's client hangs at or dies of does not hang or end a connection of ours."""

import asyncio
import os
import signal
from pathlib import Path

import aiohttp
import pytest
from nats.aio.client import Client, Srv
from nats.errors import MaxPayloadError

from schemas.base import Message, Question
from schemas.questions import Refused
from schemas.settings import Settings
from shared.runtime.bus.contract import Unavailable
from shared.runtime.bus.jetstream import JetStreamBus
from shared.runtime.bus.jetstream.patched_client import PatchedClient
from shared.runtime.process.nats_server import NatsServer
from tests.bus_nets import LIMIT_S, JetStreamNet, LiveNats
from tests.shared.runtime.bus.bus_build import until

AGENTS_SUBJECT = f"hopyard-read.n-1.{'x' * 3_900}"
"""an agent may ask on it"""


async def test_a_dead_letter_of_any_size_fits_the_server(live: JetStreamNet) -> None:
    """The server closed the connection of the service that reported such a message, for good."""
    bus = await live.client()
    largest = bytes(bus._connection.nats.max_payload)
    await bus._connection.dead_letter(AGENTS_SUBJECT, largest, "not to be read: " + "€" * 1_000)
    assert await bus.last_seq() == 0
    ((_, data),) = await live.dead_letters()
    assert len(data) > len(largest) - 5_000


async def test_a_message_that_its_headers_make_too_large_is_refused_here(live: JetStreamNet) -> None:
    nats = (await live.client())._connection.nats
    with pytest.raises(MaxPayloadError):
        await nats.publish("subject", bytes(nats.max_payload - 10), headers={"Hopyard-Reason": "none"})
    await nats.flush()


async def test_a_flush_that_is_cancelled_leaves_the_connection_working(live: JetStreamNet) -> None:
    """The connection received nothing for as long as two pings take."""
    bus = await live.client()
    for _ in range(3):
        flushing = asyncio.create_task(bus._connection.nats.flush())
        await asyncio.sleep(0)
        flushing.cancel()
        await asyncio.wait([flushing])
        assert flushing.cancelled()
    assert await bus.last_seq() == 0
    assert bus.counts.reconnects == 0


async def test_a_flush_ends_once_the_server_has_what_was_queued_before_it() -> None:
    """The ping overtook a subscription, so a question that came after a flush found nobody to answer it."""
    heard = list[bytes]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"INFO {}\r\n")
        async for line in reader:
            heard.append(line.split()[0])
            if line == b"PING\r\n":
                writer.write(b"PONG\r\n")
        writer.close()

    client = PatchedClient()
    async with await asyncio.start_server(serve, "127.0.0.1") as server:
        await client.connect("nats://127.0.0.1:{1}".format(*server.sockets[0].getsockname()))
        await client.subscribe("subject")
        await client.flush()
        assert heard == [b"CONNECT", b"PING", b"SUB", b"PING"]
        await client.close()


async def test_requests_that_cannot_be_sent_leave_nothing_behind(live: JetStreamNet, nats: LiveNats) -> None:
    """A service that was cut off kept each: its memory grew until the server was back, and did not shrink."""
    bus = await live.client()
    nats.kill()
    await until(lambda: not bus.connected())
    for _ in range(3):
        with pytest.raises(Unavailable):
            await bus.last_seq()
    assert not bus._connection.nats._resp_map
    await nats.restart()
    await until(bus.connected)
    assert await bus.last_seq() == 0


async def test_reconnecting_outlives_a_proxy_that_refuses_a_web_socket(
    live: JetStreamNet, nats: LiveNats, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task that reconnects ended by it, and tasks that waited for the connection waited for ever."""
    bus, connect, refused = await live.client(), Client._connect_to_server, list[Srv]()

    async def refuse_first(client: Client, server: Srv) -> None:
        if not refused:
            refused.append(server)
            raise aiohttp.ServerDisconnectedError
        await connect(client, server)

    monkeypatch.setattr(Client, "_connect_to_server", refuse_first)
    await nats.restart()
    await until(lambda: bus.counts.reconnects == 1)
    assert len(refused) == 1


async def test_a_service_served_while_the_server_dies_is_served_by_the_next_one(tmp_path: Path) -> None:
    """A flush on its way was forgotten: after ten seconds the service gave up, though NATS was back."""
    server = NatsServer(tmp_path)
    await server.start()
    bus = await JetStreamBus.connect(Settings(nats_url=server.url), "monitor", LIMIT_S)
    assert server.pid is not None
    os.kill(server.pid, signal.SIGSTOP)
    await asyncio.to_thread(os.waitpid, server.pid, os.WUNTRACED)  # a busy machine lets it answer for a while
    try:
        serving = asyncio.create_task(bus.serve("monitor", "hopyard.ask.monitor", _nothing))
        await asyncio.wait([serving], timeout=0.2)
        assert not serving.done()
        server.kill()
        await server.start()
        async with asyncio.timeout(LIMIT_S):
            await serving
        assert bus.counts.reconnects == 1, "it is not said to be served before"
        await bus.close()
    finally:
        await server.stop()


async def _nothing(_: Question) -> Message:
    return Refused(reason="nothing to say")
