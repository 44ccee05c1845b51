"""A NATS server with the accounts of a stack, and clients that stop at nothing."""

import contextlib
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import msgspec
from nats.aio.client import Client

from hopyard.local.accounts import (
    accounts_in,
    ensure_accounts,
)
from hopyard.local.credentials import account_of
from schemas.base import Event
from schemas.ids import NodeId
from schemas.settings import Settings
from schemas.subjects import FACTS_STREAM, SNAPSHOT_BUCKET, STATE_BUCKET, subjects_of
from services.table import TABLE
from shared.runtime.bus.accounts import inbox_of
from shared.runtime.bus.jetstream import JetStreamBus
from shared.runtime.bus.jetstream.patched_client import PatchedClient
from shared.runtime.process.nats_server import NatsServer

NODES = (NodeId("n-1"), NodeId("n-2"))
ROGUE = "agent-n-1"
OWN = {entry.name: entry.publishes for entry in TABLE}
STREAMS = (FACTS_STREAM, f"KV_{STATE_BUCKET}", f"OBJ_{SNAPSHOT_BUCKET}")
API = "$JS.API.STREAM"


def subject_of(kind: type[Event], entity: str) -> str:
    (subject,) = subjects_of([kind], entity)
    return subject


class Guarded:
    """A server with the accounts of a stack, and its streams."""

    def __init__(self, data: Path) -> None:
        self.data = data
        ensure_accounts(data, NODES)
        self.server = NatsServer(data / "nats", accounts=lambda: accounts_in(data))

    def settings(self, user: str) -> Settings:
        return Settings(nats_url=self.server.url, nats_credentials=str(account_of(self.data, user)))

    @contextlib.asynccontextmanager
    async def bus(self, user: str) -> AsyncIterator[JetStreamBus]:
        name = "agent" if user.startswith("agent") else user
        bus = await JetStreamBus.connect(self.settings(user), name, timeout_s=10.0)
        try:
            yield bus
        finally:
            await bus.close()

    @contextlib.asynccontextmanager
    async def raw(self, user: str) -> AsyncIterator["Raw"]:
        own = msgspec.json.decode(account_of(self.data, user).read_bytes(), type=dict[str, str])
        refused: list[str] = []

        async def note(error: Exception) -> None:
            refused.append(str(error).partition('"')[2].rstrip('"'))  # in small letters

        client = PatchedClient()
        await client.connect(
            self.server.url,
            user=own["user"],
            password=own["password"],
            inbox_prefix=inbox_of(user).encode(),
            error_cb=note,
            allow_reconnect=False,
        )
        try:
            yield Raw(client, refused)
        finally:
            await client.close()


class Raw:
    """A client that stops at nothing."""

    def __init__(self, client: Client, refused: list[str]) -> None:
        self.client = client
        self._refused = refused

    async def refused(self, subjects: Iterable[str], data: bytes = b"") -> set[str]:
        """Which of them it may not publish on; a server says so in the order of the messages."""
        for subject in subjects:
            await self.client.publish(subject, data)
        return await self._said()

    async def refusals(self) -> int:
        """How many messages were refused since somebody last asked."""
        await self.client.flush()
        count = len(self._refused)
        self._refused.clear()
        return count

    async def unheard(self, subjects: Iterable[str]) -> set[str]:
        for subject in subjects:
            await self.client.subscribe(subject)
        return await self._said()

    async def _said(self) -> set[str]:
        await self.client.flush()
        found, self._refused[:] = set(self._refused), []
        return found
