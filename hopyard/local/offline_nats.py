"""Runs a stack's NATS server for one command while the stack itself does not run."""

import contextlib
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

from schemas.settings import Settings
from shared.runtime.bus.jetstream.connection import Connection
from shared.runtime.process.nats_server import RECOVERY_LIMIT_S, NatsServer

CONNECT_TIMEOUT_S = 10.0


@contextlib.asynccontextmanager
async def offline_nats(data: Path) -> AsyncIterator[Connection]:
    """A server for as long as the block lasts. Raises RuntimeError, OSError if it does not start."""
    token = secrets.token_urlsafe(32)
    server = NatsServer(data / "nats", token=token)
    await server.start(RECOVERY_LIMIT_S)
    try:
        connection = Connection(Settings(nats_url=server.url, nats_token=token), "folder")
        await connection.open(CONNECT_TIMEOUT_S)
        try:
            yield connection
        finally:
            await connection.close()
    finally:
        await server.stop()
