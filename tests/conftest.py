"""What many tests share: logs as they were, one real NATS server, fresh networks over it and in memory."""

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
import structlog
from bus_nets import LISTENER_QUEUE, JetStreamNet, LiveNats, MemoryNet, Net


@pytest.fixture(autouse=True)
def _logs_as_they_were() -> Iterator[None]:
    """A command sets logs up for its process, and for a stderr that may be gone by the next test."""
    handlers, level = logging.root.handlers[:], logging.root.level
    yield
    structlog.reset_defaults()
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


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
