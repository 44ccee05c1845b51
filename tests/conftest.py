"""What many tests share: one real NATS server, and fresh networks over it and in memory."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from bus_nets import LISTENER_QUEUE, JetStreamNet, LiveNats, MemoryNet, Net


@pytest.fixture(scope="session")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveNats]:
    """A server, not yet started; its facts stay from test to test unless a test takes `live` or `net`."""
    server = LiveNats(tmp_path_factory.mktemp("nats"))
    yield server
    server.kill()


@asynccontextmanager
async def _over(server: LiveNats) -> AsyncIterator[JetStreamNet]:
    await server.ensure_running()
    net = JetStreamNet(server.settings(listener_queue=LISTENER_QUEUE, publish_in_flight=64))
    await net.open()
    try:
        yield net
    finally:
        await net.close()


@pytest.fixture
async def live(nats: LiveNats) -> AsyncIterator[JetStreamNet]:
    """A fresh network over the real server."""
    async with _over(nats) as net:
        yield net


@pytest.fixture(params=["memory", "jetstream"])
async def net(request: pytest.FixtureRequest, nats: LiveNats) -> AsyncIterator[Net]:
    """A fresh network, once in memory and once over the real server."""
    if request.param == "jetstream":
        async with _over(nats) as live:
            yield live
    else:
        memory = MemoryNet()
        yield memory
        await memory.close()
