"""NATS forgets a stream in memory when it restarts. Services start all the same."""

import asyncio
from pathlib import Path

import pytest
from nats.errors import Error
from nats.js.errors import NotFoundError
from structlog.testing import capture_logs

from schemas.subjects import FACTS_STREAM, SAMPLES_STREAM
from shared.runtime.bus.contract import Unavailable
from shared.runtime.bus.jetstream import JetStreamBus, bus, connection, streams
from shared.runtime.bus.jetstream.connection import Connection
from tests.bus_nets import LIMIT_S, JetStreamNet, LiveNats
from tests.guarded_nats import ROGUE, Guarded
from tests.shared.runtime.bus.bus_build import until


async def test_a_service_starts_though_nats_has_started_again_and_admission_is_away(tmp_path: Path) -> None:
    """A service waited for ever for a stream that it does not need, without a word."""
    stack = Guarded(tmp_path)
    await stack.server.start()
    try:
        async with stack.bus("admission"):
            pass
        stack.server.kill()
        await stack.server.start()
        async with stack.bus("estimator") as estimator:
            assert await estimator.last_seq() == 0
    finally:
        await stack.server.stop()


async def test_a_stream_in_memory_is_made_again_whenever_nats_has_started_again(
    live: JetStreamNet, nats: LiveNats
) -> None:
    await live.client("admission")
    for _ in range(2):
        await nats.restart()
        await there(live, SAMPLES_STREAM)


async def test_a_stream_in_memory_is_made_again_if_nats_restarts_while_admission_starts(
    live: JetStreamNet, nats: LiveNats, monkeypatch: pytest.MonkeyPatch
) -> None:
    ensured = streams.ensure

    async def ensured_in_vain(connection: Connection, timeout_s: float | None) -> None:
        await ensured(connection, timeout_s)
        await nats.restart()
        await until(lambda: connection.counts.reconnects == 1)

    monkeypatch.setattr(bus, "ensure", ensured_in_vain)
    await live.client("admission")
    await there(live, SAMPLES_STREAM)


async def test_a_stream_of_the_disk_that_is_gone_is_not_made_again_beside_services_that_knew_it(
    live: JetStreamNet, nats: LiveNats
) -> None:
    admission = await live.client("admission")
    await admission._connection.js.delete_stream(FACTS_STREAM)
    await nats.restart()
    await there(live, SAMPLES_STREAM)
    with pytest.raises(NotFoundError):
        await live.stream(FACTS_STREAM)


async def there(live: JetStreamNet, stream: str) -> None:
    async with asyncio.timeout(LIMIT_S):
        while True:
            try:
                await live.stream(stream)
            except (Error, OSError):
                await asyncio.sleep(0.05)
            else:
                return


@pytest.mark.parametrize(
    ("user", "name", "said"),
    [
        ("estimator", "estimator", "waiting for a stream"),
        (ROGUE, "agent", "waiting for a service that answers agents"),
    ],
)
async def test_a_long_wait_at_the_start_is_logged_as_a_warning(
    tmp_path: Path, user: str, name: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "LATE_S", 0.3)
    stack = Guarded(tmp_path)
    await stack.server.start()
    try:
        with capture_logs() as logs, pytest.raises(Unavailable):
            await JetStreamBus.connect(stack.settings(user), name, timeout_s=2.0)
    finally:
        await stack.server.stop()
    waited = [one for one in logs if one["event"] == said]
    assert waited[0]["log_level"] == "debug"
    assert [one["log_level"] for one in waited].count("warning") == 1
    assert all(one["reason"] for one in waited)
